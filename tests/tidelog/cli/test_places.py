"""Places in a log."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from tidelog.cli import main
from tidelog.cli.places import Place, parse_place, require_one_partition, time_or_end

Printed = pytest.CaptureFixture[str]

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", "earliest"),
        ("earliest", "earliest"),
        (" end ", "latest"),
        ("latest", "latest"),
        ("0", ("offset", 0)),
        ("2025", ("offset", 2025)),
        ("999999999999", ("offset", 999_999_999_999)),
        ("-1", ("last", 1)),
        ("-100", ("last", 100)),
        ("1h", ("time", NOW_MS - HOUR_MS)),
        ("1h ago", ("time", NOW_MS - HOUR_MS)),
        ("2023-11-14T22:13:20Z", ("time", NOW_MS)),
        ("s@1700000000000", ("time", NOW_MS)),
    ],
)
def test_a_text_names_one_place(text: str, place: Place) -> None:
    assert parse_place(text, now_ms=NOW_MS) == place


@pytest.mark.parametrize("text", ["", "soon", "-0", "-", "-1h", "+5", "1.5", "s@", "e@5", "٣"])
def test_what_is_no_place_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no place in a log: write beginning, end, an offset"):
        parse_place(text, now_ms=NOW_MS)


def test_milliseconds_are_not_taken_for_an_offset() -> None:
    with pytest.raises(ValueError, match="write s@1700000000000 for the time"):
        parse_place("1700000000000", now_ms=NOW_MS)


def test_an_offset_is_a_place_in_one_partition() -> None:
    require_one_partition(5, [0])

    with pytest.raises(click.UsageError, match=r"offset 5 .* and there are 2"):
        require_one_partition(5, [0, 1])


@pytest.mark.parametrize("place", [("offset", 5), ("last", 5)])
def test_a_new_queue_starts_at_no_offset(place: Place) -> None:
    assert time_or_end("latest") == "latest"
    assert time_or_end(("time", 5)) == 5

    with pytest.raises(click.UsageError, match="a new queue starts at beginning, end or a time"):
        time_or_end(place)


@pytest.fixture
def filled(topic: str, tmp_path: Path, capsys: Printed) -> str:
    """Return a topic with five records in one partition."""
    file = tmp_path / "lines"
    file.write_bytes(b"a\nb\nc\nd\ne\n")
    assert main.run(["produce", topic, "--file", str(file)]) == 0
    capsys.readouterr()
    return topic


def test_every_command_takes_a_place(filled: str, capsys: Printed) -> None:
    def result(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main.run([*words, "--json"]) == 0, capsys.readouterr().err
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    main.run(["queue", "create", f"q-{filled}", "--topic", filled, "--from", "end"])
    reset = ("group", "reset-offsets", "g", "--topic", filled, "--from")
    seek = ("queue", "seek", f"q-{filled}", "--yes", "--from")
    for place, offset in (("beginning", 0), ("2", 2), ("-2", 3), ("1h", 0), ("end", 5)):
        (moved,) = result(*reset, place)["partitions"]
        assert moved["offset"] == offset
        assert result(*seek, place) == {"messages": 5 - offset}
    delete = ("topic", "delete-records", filled, "--partition", "0", "--before")
    for place, offset in (("beginning", 0), ("1h", 0), ("1", 1), ("-2", 3), ("end", 5)):
        assert result(*delete, place)["log_start_offset"] == offset


def test_an_offset_that_is_not_in_the_log_is_refused(filled: str, capsys: Printed) -> None:
    main.run(["queue", "create", f"q-{filled}", "--topic", filled])
    capsys.readouterr()

    assert main.run(["queue", "seek", f"q-{filled}", "--yes", "--from", "6"]) == 1

    assert f"{filled}/0 has offsets from 0 to 5, not 6" in capsys.readouterr().err


def test_an_offset_needs_a_partition_if_there_are_several(
    broker_address: str, capsys: Printed
) -> None:
    name = "two-partitions"
    at = ["--broker", broker_address]
    assert main.run(["topic", "create", name, "--partitions", "2", *at]) == 0
    for words in (
        ["consume", name, "--from", "0", "-e"],
        ["group", "reset-offsets", "g", "--topic", name, "--from", "0"],
    ):
        capsys.readouterr()
        assert main.run([*words, *at]) == 2
        assert "choose one with --partition" in capsys.readouterr().err
        assert main.run([*words, *at, "--partition", "0"]) == 0
    main.run(["queue", "create", f"q-{name}", "--topic", name, *at])
    capsys.readouterr()
    assert main.run(["queue", "seek", f"q-{name}", "--yes", "--from", "0", *at]) == 2
    shown = capsys.readouterr().err
    assert "and there are 2: name a place in all: beginning, end, a time or -N" in shown
    assert "--partition" not in shown
