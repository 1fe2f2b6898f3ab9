"""`tidelog queue send`: messages from arguments and from standard input."""

import json
import sys
from pathlib import Path

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]


def run(capsys: Printed, *words: str) -> str:
    """Return what a command prints that goes well."""
    assert main.run(["queue", *words]) == 0
    return capsys.readouterr().out


def test_lines_become_messages(
    queue: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch, *, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % n for n in range(1500)) + b"last")
    with file.open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        sent = run(capsys, "send", queue, "--delay", "3600", "--json")
    assert len(json.loads(sent)) == 1501
    seen = json.loads(run(capsys, "peek", queue, "--max", "5000", "--state", "delayed", "--json"))
    assert [each["value"] for each in seen] == [*map(str, range(1500)), "last"]
    assert run(capsys, "purge", queue, "--yes") == f"purged 1,501 messages of {queue}\n"


def test_the_only_message_that_is_refused_is_explained_without_counting(
    queue: str, capsys: Printed
) -> None:
    status = main.run(["queue", "send", queue, "v", "--key", "x" * 2_000_000])

    said = capsys.readouterr().err
    assert status == 1
    assert said.startswith("error: a batch of 2000")
    assert "bytes is larger than this topic's limit of" in said
    assert said.endswith("(max_message_bytes); 0 messages sent\n")


def test_bytes_are_sent_as_they_were_given(queue: str, capsys: Printed) -> None:
    run(capsys, "send", queue, "\udcff\udcfe", "--key", "\udcff", "--headers", "name=\udcff")

    (message,) = json.loads(run(capsys, "peek", queue, "--json"))

    assert (message["value"], message["key"]) == ({"base64": "//4="}, {"base64": "/w=="})
    assert message["headers"] == [{"name": "name", "value": {"base64": "/w=="}}]


@pytest.mark.usefixtures("at_broker")
def test_a_message_with_a_known_deduplication_id_is_a_duplicate(capsys: Printed) -> None:
    assert main.run(["queue", "create", "transfers", "--fifo"]) == 0
    words = ["queue", "send", "transfers", "--group", "a", "--deduplication-id", "t-1"]
    capsys.readouterr()
    assert main.run([*words, "take 5"]) == 0
    assert capsys.readouterr().out == "sent 1 message\n"
    assert main.run([*words, "take 5"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "sent 1 message",
        "0-0 is a duplicate: the queue keeps the first message",
    ]
    assert main.run([*words, "take 5", "--json"]) == 0
    (receipt,) = json.loads(capsys.readouterr().out)
    assert receipt == {"message_id": "0-0", "partition": 0, "offset": 0, "is_duplicate": True}


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["v", "w", "--group", "g", "--deduplication-id", "1"], "is for a single message"),
        (["v", "--group", "g", "--deduplication-id", ""], "has 1 to 128 bytes, not 0"),
        (["v", "--group", "g", "--key", "k"], "give one of them"),
        (["v"], "a message to a FIFO queue needs a group"),
    ],
)
def test_invalid_fields_of_a_fifo_message_are_an_error_of_one_line(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    assert main.run(["queue", "create", "transfers", "--fifo"]) == 0
    capsys.readouterr()

    assert main.run(["queue", "send", "transfers", *words]) != 0

    assert complaint in capsys.readouterr().err
