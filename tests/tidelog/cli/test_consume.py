"""`tidelog consume`."""

import json
from pathlib import Path

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def filled(topic: str, tmp_path: Path, capsys: Printed) -> str:
    """Return a topic with ten records."""
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"k%d:%d\n" % (n, n) for n in range(10)))
    assert main.run(["produce", topic, "--file", str(file), "--key-separator", ":"]) == 0
    capsys.readouterr()
    return topic


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--from-beginning"], range(10)),
        (["--from-beginning", "--max", "3"], range(3)),
        (["--from-beginning", "--max", "10"], range(10)),
        (["--from-beginning", "--read-from", "followers"], range(10)),
        (["--from-beginning", "--read-from", "nearest", "--client-rack", "a"], range(10)),
        (["--partition", "0", "--offset", "7"], range(7, 10)),
        (["--offset", "7"], range(7, 10)),
        (["--from", "beginning"], range(10)),
        (["-o", "beginning", "-p", "0", "-c", "3", "-e"], range(3)),
        (["--from", "7", "-n", "2"], range(7, 9)),
        (["--from", "-3"], range(7, 10)),
        (["--tail", "3", "--max-messages", "1"], range(7, 8)),
        (["--tail", "300"], range(10)),
        (["--from", "1h"], range(10)),
        (["--from", "s@1700000000000"], range(10)),
        (["--from", "2999-01-01"], []),
        (["--from", "end"], []),
        (["--partition", "0", "--offset", "7", "--max", "2"], range(7, 9)),
        (["--partition", "0", "--offset", "10"], []),
        (["--since", "1h"], range(10)),
        (["--since", "1970-01-01T00:00Z"], range(10)),
        (["--since", "2999-01-01"], []),
        (["--offset", "earliest"], range(10)),
    ],
)
def test_it_begins_and_ends_where_it_is_told(
    words: list[str], values: range | list[int], filled: str, *, capsys: Printed
) -> None:
    status = main.run(["consume", filled, "--until-end", *words])

    said = capsys.readouterr()
    assert (status, said.err) == (0, "")
    assert said.out.split() == [str(value) for value in values]


def test_keys_are_printed_before_a_separator(filled: str, capsys: Printed) -> None:
    main.run(["consume", filled, "--from-beginning", "--max", "2", "--key-separator", "->"])

    assert capsys.readouterr().out == "k0->0\nk1->1\n"


def test_json_lines_have_keys_and_offsets(filled: str, capsys: Printed) -> None:
    main.run(["consume", filled, "--from-beginning", "--max", "1", "--format", "json"])

    record = json.loads(capsys.readouterr().out)
    assert (record["topic"], record["offset"], record["key"]) == (filled, 0, "k0")


@pytest.mark.parametrize("words", [[], ["--until-end"]])
def test_an_offset_behind_the_end_is_an_error(
    words: list[str], filled: str, capsys: Printed
) -> None:
    status = main.run(["consume", filled, "--partition", "0", "--offset", "11", *words])

    said = capsys.readouterr().err
    assert status == 1
    assert said.startswith("error: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--read-from", "nearest"], "--read-from nearest and --client-rack NAME go together"),
        (["--client-rack", "a"], "--read-from nearest and --client-rack NAME go together"),
        (["--from-beginning", "--since", "1h"], "choose one of --from, --from-beginning,"),
        (["--from", "end", "--tail", "3"], "choose one of --from, --from-beginning, --offset,"),
        (["--format", "json", "--key-separator", ":"], "--key-separator needs --format raw"),
        (
            ["--group", "billing", "--partition", "0", "--offset", "1"],
            "--group excludes --partition, and starts other than beginning and end",
        ),
        (["--since", "yesterday"], "Invalid value for '--since': 'yesterday' is not a time"),
        (["--until-end"], "--until-end prints nothing without a start"),
        (["--max", "0"], "Invalid value for '-c' / '-n' / '--max' / '--max-messages'"),
        (["--from", "soon"], "Invalid value for '-o' / '--from': 'soon' is no place in a log"),
        (["--from", "-0"], "Invalid value for '-o' / '--from': '-0' is no place in a log"),
        (["--json", "-f", "%s"], "--json and --format exclude each other"),
        (["-f", "%s", "-K", ":"], "--key-separator needs --format raw"),
        (["--json", "--null-value", "x"], "--null-value needs another format: JSON has null"),
        (["-f", "orders"], "'orders' is no format: write raw, json, or tokens"),
        (["-f", "%q"], "--format '%q': '%q' is no token: %t %p %o"),
        (["-f", "%s\\q"], "--format '%s\\q': '\\q' is no escape"),
    ],
)
def test_wrong_use_is_explained(words: list[str], complaint: str, capsys: Printed) -> None:
    status = main.run(["consume", "orders", *words])

    assert status == 2
    assert f"\nerror: {complaint}" in capsys.readouterr().err


@pytest.mark.usefixtures("at_broker")
def test_a_topic_that_is_not_there_is_said(capsys: Printed) -> None:
    assert main.run(["consume", "nope"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no topic 'nope'")
