"""The command `tidelog produce`."""

import io
import json
from pathlib import Path

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


def consumed(topic: str, capsys: Printed) -> list[dict[str, object]]:
    """Return what is in a topic."""
    capsys.readouterr()
    main.run(["consume", topic, "--from-beginning", "--until-end", "--format", "json"])
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
