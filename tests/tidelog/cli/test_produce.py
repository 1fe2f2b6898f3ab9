"""The command `tidelog produce`."""

import io
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import trio
from rich.console import Console

from tidelog.cli import main
from tidelog.cli.produce import show_progress

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def lines(tmp_path: Path) -> str:
    file = tmp_path / "lines"
    file.write_bytes(b"a:1\nb:2\nc\n")
    return str(file)


def consumed(topic: str, capsys: Printed) -> list[dict[str, Any]]:
    """Return what is in a topic."""
    capsys.readouterr()
    main.run(["consume", topic, "--from", "beginning", "--until-end", "--json"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_each_line_of_a_file_becomes_a_record(topic: str, lines: str, capsys: Printed) -> None:
    status = main.run(["produce", topic, "--file", lines])

    said = capsys.readouterr()
    assert (status, said.err) == (0, "")
    assert said.out.startswith("3 records acknowledged in ")
    assert [record["value"] for record in consumed(topic, capsys)] == ["a:1", "b:2", "c"]


def test_the_summary_can_be_json(topic: str, lines: str, capsys: Printed) -> None:
    main.run(["produce", topic, "--file", lines, "--json"])

    summary = json.loads(capsys.readouterr().out)
    assert (summary["read"], summary["acknowledged"], summary["error"]) == (3, 3, None)
    assert summary["seconds"] > 0


def test_every_record_gets_the_headers(topic: str, lines: str, capsys: Printed) -> None:
    main.run(["produce", topic, "--file", lines, "--headers", "host=web-1, empty=,a=b=c"])

    headers = [
        {"name": "host", "value": "web-1"},
        {"name": "empty", "value": ""},
        {"name": "a", "value": "b=c"},
    ]
    assert [record["headers"] for record in consumed(topic, capsys)] == [headers] * 3


def test_one_key_is_for_all_lines(topic: str, lines: str, capsys: Printed) -> None:
    main.run(["produce", topic, "--file", lines, "-k", "ann"])

    assert [record["key"] for record in consumed(topic, capsys)] == ["ann"] * 3


def test_a_file_is_one_value_to_the_byte(topic: str, tmp_path: Path, capsys: Printed) -> None:
    content = bytes(range(256)) * 1000
    file = tmp_path / "value"
    file.write_bytes(content)

    assert main.run(["produce", topic, "--whole-value", str(file), "--key", "k"]) == 0
    file.write_bytes(b"")
    assert main.run(["produce", topic, "--whole-value", str(file)]) == 0

    assert [(record["key"], record["value"]) for record in consumed(topic, capsys)] == [
        ("k", {"base64": b64encode(content).decode()}),
        (None, ""),
    ]


def test_a_tombstone_has_no_value(topic: str, lines: str, capsys: Printed) -> None:
    assert main.run(["produce", topic, "--key", "ann", "--tombstone", "--headers", "a=b"]) == 0
    words = ["--key-separator", ":", "--null-value", "1"]
    assert main.run(["produce", topic, "--file", lines, *words]) == 1

    assert [(record["key"], record["value"]) for record in consumed(topic, capsys)] == [
        ("ann", None),
        ("a", None),
        ("b", "2"),
    ]


def test_records_of_json_keep_keys_headers_and_timestamps(
    topic: str, tmp_path: Path, capsys: Printed
) -> None:
    records: list[dict[str, Any]] = [
        {"key": {"base64": "/w=="}, "value": None, "timestamp_ms": 5, "headers": []},
        {
            "key": None,
            "value": "line\nend",
            "timestamp_ms": 6,
            "headers": [{"name": "h", "value": {"base64": "/w=="}}],
        },
    ]
    file = tmp_path / "records"
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))

    words = ["--format", "json", "--compression", "zstd"]
    assert main.run(["produce", topic, "--file", str(file), *words]) == 0

    found = consumed(topic, capsys)
    assert [{name: each[name] for name in records[0]} for each in found] == records


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["--file", "a", "--whole-value", "b"],
            "give one of --file, --whole-value and --tombstone",
        ),
        (["--tombstone"], "--tombstone deletes a key: add --key KEY"),
        (["--key", "k", "--key-separator", ":"], "--key and --key-separator exclude each other"),
        (["--format", "json", "--key", "k"], "--key is for --format raw"),
        (["--format", "json", "--null-value", ""], "--null-value is for --format raw"),
        (["--format", "json", "--whole-value", "a"], "--format json is for lines"),
        (["--whole-value", "a", "--value-encoding", "base64"], "--value-encoding is for lines"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    assert main.run(["produce", "orders", *words]) == 2
    assert f"error: {complaint}" in capsys.readouterr().err


def test_without_acknowledgements_records_are_only_sent(
    topic: str, lines: str, capsys: Printed
) -> None:
    main.run(["produce", topic, "--file", lines, "--acks", "0", "--compression", "lz4"])

    assert capsys.readouterr().out.startswith("3 records sent in ")


def test_a_line_without_a_separator_ends_it_and_what_was_before_is_delivered(
    topic: str, lines: str, capsys: Printed
) -> None:
    status = main.run(["produce", topic, "--file", lines, "--key-separator", ":"])

    assert status == 1
    assert capsys.readouterr().err == (
        "error: line 3 has no key separator ':'; 2 of 2 records were acknowledged\n"
    )
    assert [record["key"] for record in consumed(topic, capsys)] == ["a", "b"]


@pytest.mark.usefixtures("at_broker")
def test_records_that_are_refused_are_counted(lines: str, capsys: Printed) -> None:
    status = main.run(["produce", "nope", "--file", lines])

    assert status == 1
    assert capsys.readouterr().err.endswith("; 0 of 3 records were acknowledged\n")


def test_an_unknown_partition_is_an_error(topic: str, lines: str, capsys: Printed) -> None:
    status = main.run(["produce", topic, "--file", lines, "--partition", "1"])

    assert status == 1
    assert capsys.readouterr().err.startswith(f"error: topic '{topic}' has 1 partition")


@pytest.mark.usefixtures("at_broker")
def test_a_missing_file_is_an_error(capsys: Printed) -> None:
    status = main.run(["produce", "nope", "--file", "/no/such/file"])

    assert status == 1
    assert capsys.readouterr().err == "error: /no/such/file: No such file or directory\n"


def test_an_unreadable_file_is_an_error(topic: str, tmp_path: Path, capsys: Printed) -> None:
    status = main.run(["produce", topic, "--file", str(tmp_path)])

    assert status == 1
    assert capsys.readouterr().err == ("error: Is a directory; 0 of 0 records were acknowledged\n")


@pytest.mark.parametrize(
    "words", [["--headers", "host"], ["--headers", "=x"], ["--key-separator", ""], ["--acks", "2"]]
)
def test_wrong_use_is_explained(words: list[str], lines: str, capsys: Printed) -> None:
    assert main.run(["produce", "orders", "--file", lines, *words]) == 2
    assert capsys.readouterr().err.startswith("Usage: tidelog produce ")


async def test_progress_on_a_terminal_shows_count_and_rate(autojump_clock: trio.abc.Clock) -> None:
    del autojump_clock
    screen = io.StringIO()
    counts = iter(range(0, 1_000_000, 5_000))

    async with show_progress(
        lambda: next(counts), Console(file=screen, force_terminal=True, width=80)
    ):
        await trio.sleep(0.35)

    assert "10,000 records acknowledged" in screen.getvalue()
    assert "50,000/s" in screen.getvalue()


async def test_progress_without_a_terminal_shows_nothing() -> None:
    output = io.StringIO()

    async with show_progress(lambda: 0, Console(file=output)):
        await trio.lowlevel.checkpoint()

    assert output.getvalue() == ""
