"""`tidelog queue`: messages at the command line, from their sending to their end."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]


def run(capsys: Printed, *words: str) -> str:
    """Return what a command prints that goes well."""
    assert main.run(["queue", *words]) == 0
    return capsys.readouterr().out


def received(capsys: Printed, queue: str, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(
        run(capsys, "receive", queue, "--wait", "5", "--json", *words)
    )
    return found


def test_a_message_is_sent_received_kept_released_and_deleted(queue: str, capsys: Printed) -> None:
    sent = run(capsys, "send", queue, "one", "--key", "k", "--headers", "trace=7")
    assert sent == "sent 1 message\n"
    (message,) = received(capsys, queue)
    assert (message["value"], message["key"], message["message_id"]) == ("one", "k", "0-0")
    assert message["headers"] == [{"name": "trace", "value": "7"}]
    assert message["receive_count"] == 1
    handle = str(message["receipt_handle"])

    assert run(capsys, "extend", queue, handle, "--seconds", "60") == "extended 1 message\n"
    titles, line = run(capsys, "in-flight", queue).splitlines()
    assert titles.split()[:4] == ["MESSAGE", "STATE", "RECEIVES", "VISIBLE"]
    assert line.split()[:3] == ["0-0", "in-flight", "1"]
    assert "tidelog-cli" in line
    assert run(capsys, "release", queue, handle) == "released 1 message\n"
    for seconds in ("60", "0"):
        changed = run(capsys, "change-visibility", queue, handle, "--seconds", seconds)
        assert changed == "changed 1 message\n"
    (message,) = received(capsys, queue)
    handle = str(message["receipt_handle"])
    assert run(capsys, "delete-message", queue, handle, "--json") == '{\n  "deleted": 1\n}\n'
    assert json.loads(run(capsys, "peek", queue, "--json")) == []


def test_a_receive_is_repeated_by_its_attempt_id(at_broker: None, capsys: Printed) -> None:
    del at_broker
    run(capsys, "create", "attempts", "--fifo", "--config", "max_in_flight=1")
    run(capsys, "send", "attempts", "one", "two", "--group", "g")
    first, again = (received(capsys, "attempts", "--attempt-id", "a", "--max", "1") for _ in "ab")
    assert first == again
    assert received(capsys, "attempts", "--max", "1", "--wait", "0") == []
    assert main.run(["queue", "receive", "attempts", "--raise-at-limit", "--wait", "0"]) == 1
    assert "its share of max_in_flight (1) is 1" in capsys.readouterr().err


def test_received_messages_are_printed_and_deleted_with_delete(queue: str, capsys: Printed) -> None:
    run(capsys, "send", queue, "one\ntwo", "x" * 100)
    titles, first, second = run(
        capsys, "receive", queue, "--wait", "5", "--delete", "--max", "2"
    ).splitlines()
    assert titles.split()[:2] == ["MESSAGE", "RECEIVES"]
    assert " one two " in first
    assert f" {'x' * 59}… " in second
    assert main.run(["queue", "receive", queue]) == 0
    assert capsys.readouterr().err == "no message is visible\n"


def test_a_file_is_one_message_of_any_length(queue: str, capsys: Printed, tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"long " * 1_000_000)
    (tmp_path / "short").write_bytes(b"two\nlines\n")
    sent = run(capsys, "send", queue, *("--file", str(tmp_path / "long")), "--key", "k")
    assert sent == "sent 1 message\n"
    run(capsys, "send", queue, "--file", str(tmp_path / "short"))
    assert "(4.8 MiB)" in run(capsys, "peek", queue)
    large, short = received(capsys, queue, "--visibility-timeout", "0")
    assert (large["value"], large["length"], short["value"]) == (None, 5_000_000, "two\nlines\n")
    output = str(tmp_path / "output")

    run(capsys, "receive", queue, "--output", output, "--delete", "--wait", "5")

    assert Path(output).read_bytes() == b"long " * 1_000_000
    assert main.run(["queue", "receive", queue, "--output", "-"]) == 0
    said = capsys.readouterr()
    assert said.out == "two\nlines\n"
    run(capsys, "delete-message", queue, said.err.strip())
    assert main.run(["queue", "receive", queue, "--output", output]) == 0
    assert capsys.readouterr().err == "no message is visible\n"
    assert Path(output).read_bytes() == b"long " * 1_000_000, "it is as it was"


def test_a_file_is_not_written_if_the_topic_has_deleted_chunks(
    queue: str, capsys: Printed, tmp_path: Path
) -> None:
    (tmp_path / "long").write_bytes(b"long " * 1_000_000)
    run(capsys, "send", queue, "--file", str(tmp_path / "long"))
    words = ["topic", "delete-records", queue, "--partition", "0", "--before", "3"]
    assert main.run(words) == 0
    capsys.readouterr()

    status = main.run(["queue", "receive", queue, "--output", str(tmp_path / "output")])

    said = capsys.readouterr()
    assert (status, said.out, said.err.count("\n")) == (1, "", 1)
    assert "the topic has deleted chunks of this message of 5000000 bytes" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["long"]


def test_a_file_that_cannot_be_written_is_an_error_and_deletes_nothing(
    queue: str, capsys: Printed, tmp_path: Path
) -> None:
    run(capsys, "send", queue, "one")
    output = str(tmp_path / "nowhere" / "output")

    assert main.run(["queue", "receive", queue, "--output", output, "--delete"]) == 1

    said = capsys.readouterr().err
    assert said == f"error: cannot write {output}: No such file or directory\n"
    (message,) = received(capsys, queue)
    assert message["receive_count"] == 1, "the failed command received nothing"


def test_a_message_is_released_at_once_if_the_disk_is_full(
    queue: str, capsys: Printed, tmp_path: Path
) -> None:
    run(capsys, "send", queue, "one")
    (tmp_path / "output.part").symlink_to("/dev/full")
    output = str(tmp_path / "output")

    assert main.run(["queue", "receive", queue, "--output", output, "--delete"]) == 1

    said = capsys.readouterr().err
    assert said == f"error: cannot write {output}: No space left on device\n"
    (message,) = received(capsys, queue)
    assert message["receive_count"] == 2


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["send", "nope", "v"], "there is no queue 'nope'"),
        (["receive", "nope"], "there is no queue 'nope'"),
        (["peek", "nope"], "there is no queue 'nope'"),
        (["in-flight", "nope"], "there is no queue 'nope'"),
        (["dead-letters", "nope"], "there is no queue 'nope'"),
        (["purge", "nope", "--yes"], "there is no queue 'nope'"),
        (["seek", "nope", "--from", "earliest", "--yes"], "there is no queue 'nope'"),
        (["delete-message", "nope", "gA"], "'gA' is no receipt handle"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    status = main.run(["queue", *words])

    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert said.err.startswith(f"error: {complaint}")
    assert said.err.count("\n") == 1


def test_rejected_handles_are_counted_and_the_first_is_explained(
    queue: str, capsys: Printed
) -> None:
    run(capsys, "send", queue, "one", "two")
    handles = [str(each["receipt_handle"]) for each in received(capsys, queue)]
    run(capsys, "delete-message", queue, handles[1])

    status = main.run(["queue", "release", queue, *handles])

    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert said.err.startswith("error: 1 handle was rejected, the others are settled; handle 2: ")
    assert main.run(["queue", "extend", queue, handles[1], "--seconds", "5"]) == 1
    assert capsys.readouterr().err == "error: the message is not there any more\n"


def test_a_handle_of_another_queue_is_refused(queue: str, capsys: Printed) -> None:
    run(capsys, "send", queue, "one")
    (message,) = received(capsys, queue)
    assert main.run(["queue", "create", f"{queue}-other"]) == 0
    capsys.readouterr()

    status = main.run(["queue", "delete-message", f"{queue}-other", str(message["receipt_handle"])])

    assert status == 1
    assert capsys.readouterr().err.startswith("error: this receipt is of another queue")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["receive", "q", "--max", "0"], "Invalid value for '--max': 0 is not in the range"),
        (["receive", "q", "--visibility-timeout", "43201"], "Invalid value for '--visib"),
        (["receive", "q", "--wait", "-1"], "Invalid value for '--wait': -1"),
        (["send", "q", "v", "--file", __file__], "VALUE and --file exclude each other"),
        (["send", "q", "--file", "/nope"], "Invalid value for '--file': '/nope'"),
        (["send", "q", "--delay", "-1", "v"], "Invalid value for '--delay'"),
        (["send", "q", "--delay", "nan", "v"], "Invalid value for '--delay': 'nan' is not a"),
        (
            ["send", "q", "--delay", "inf", "v"],
            "Invalid value for '--delay': 'inf' is not a",
        ),
        (["send", "q", "--delay", "1e300", "v"], "Invalid value for '--delay'"),
        (["receive", "q", "--wait", "nan"], "Invalid value for '--wait': 'nan' is not a duration"),
        (["receive", "q", "--visibility-timeout", "nan"], "Invalid value for '--visib"),
        (["extend", "q", "h", "--seconds", "nan"], "Invalid value for '--seconds': 'nan' is"),
        (["send", "q", "--headers", "x", "v"], "Invalid value for '--headers': 'x' is not of"),
        (["send", "q", "--headers", "tidelog.x=1", "v"], "headers that begin with 'tidelog.'"),
        (["extend", "q", "h"], "Missing option '--seconds'"),
        (["extend", "q", "--seconds", "5"], "Missing argument 'HANDLE...'"),
        (["release", "q", "h", "--delay", "soon"], "Invalid value for '--delay'"),
        (["release", "q", "h", "--reason", "x" * 8193], "a reason has at most 8192 characters"),
        (["peek", "q", "--state", "lost"], "Invalid value for '--state'"),
        (["purge", "q"], "confirmation needed: standard input is not a terminal; add --yes"),
        (["seek", "q", "--from", "whenever"], "Invalid value for '--from'"),
    ],
)
def test_wrong_use_is_explained_before_a_broker_is_asked(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    status = main.run(["queue", *words])

    said = capsys.readouterr().err
    assert status == 2
    assert f"\nerror: {complaint}" in said


def test_a_message_that_cannot_be_printed_is_not_deleted(
    queue: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "send", queue, "one")
    status = 0
    with (
        suppress(OSError),
        Path("/dev/full").open("w") as full,
        monkeypatch.context() as patched,
    ):
        patched.setattr(sys, "stdout", full)
        status = main.run(["queue", "receive", queue, "--wait", "5", "--delete"])

    assert status == 1
    assert capsys.readouterr().err == "error: No space left on device\n"
    assert "one" in run(capsys, "in-flight", queue, "--json")
