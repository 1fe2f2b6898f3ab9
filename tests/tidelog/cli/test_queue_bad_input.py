"""Wrong input of queue commands: each error is one line with the valid form."""

import itertools
import json
from collections.abc import Sequence

import pytest

from tidelog.cli import main

_numbers = itertools.count()


class Commands:
    """Runs commands of queues."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command; return its status and what it says."""
        status = main.run(["queue", *words])
        printed = self._capsys.readouterr()
        if status == 0:
            return 0, printed.out
        lines = printed.err.splitlines()
        assert status == 2 or len(lines) == 1, f"one line was expected, not {lines}"
        return status, lines[-1]

    def receive(self, queue: str, *words: str) -> str:
        """Return the handle of the only message."""
        status, printed = self.run("receive", queue, "--json", "--wait", "5", *words)
        assert status == 0
        (message,) = json.loads(printed)
        return str(message["receipt_handle"])


@pytest.fixture
def commands(at_broker: None, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Return commands that talk to the broker."""
    del at_broker
    return Commands(capsys)


@pytest.fixture
def name() -> str:
    """Return a name that no other test uses."""
    return f"wrong-{next(_numbers)}"


WRONG = {
    "unknown queue": (["receive", "nope"], 1, "there is no queue 'nope'; create it first"),
    "forged handle": (
        ["delete-message", "{q}", "lAEAAMQqAAAA"],
        1,
        "is no receipt handle; use one",
    ),
    "attempt id": (["receive", "{q}", "--attempt-id", ""], 2, "an attempt id has 1 to 128 bytes"),
    "attempt id of a standard queue": (
        ["receive", "{q}", "--attempt-id", "a"],
        1,
        "is not FIFO: only receives of FIFO queues have an attempt id",
    ),
    "visibility timeout": (
        ["receive", "{q}", "--visibility-timeout", "43201"],
        2,
        "43201.0 is not in the range 0<=x<=43200.0",
    ),
    "wait": (["receive", "{q}", "--wait", "-1"], 2, "-1.0 is not in the range"),
    "extension": (["extend", "{q}", "h", "--seconds", "43201"], 2, "is not in the range"),
    "empty batch": (["delete-message", "{q}"], 2, "Missing argument 'HANDLE...'"),
    "oversized batch": (["receive", "{q}", "--max", "1001"], 2, "is not in the range 1<=x<=1000"),
    "oversized message": (
        ["send", "{q}", "v", "--key", "x" * 120_000],
        1,
        "(max_message_bytes); 0 messages sent",
    ),
    "dead-letter loop": (
        ["alter", "{q}", "--set", "dead_letter_queue={q}"],
        1,
        "dead letters of '{q}' would come back",
    ),
    "dead-letter queue that is not there": (
        ["alter", "{q}", "--set", "dead_letter_queue=nope"],
        1,
        "there is no dead-letter queue 'nope'; create it first",
    ),
    "FIFO without group": (
        ["send", "{q}-fifo", "v"],
        1,
        "needs a group: give its key; 0 messages sent",
    ),
    "FIFO with a delay": (
        ["send", "{q}-fifo", "v", "--key", "k", "--delay", "1"],
        1,
        "have no delays of their own; the queue can have one",
    ),
    "kind": (
        ["alter", "{q}", "--set", "is_fifo=on"],
        1,
        "fifo cannot be changed: it is set when a",
    ),
    "scope": (
        ["alter", "{q}-fifo", "--set", "deduplication_scope=queue"],
        1,
        "deduplication_scope cannot be changed",
    ),
    "setting": (["alter", "{q}", "--set", "colour=red"], 1, "there is no queue setting 'colour'"),
    "value": (
        ["alter", "{q}", "--set", "visibility_timeout_ms=soon"],
        1,
        "it must be a duration such as 8d, 1h30m, 90s or 250ms",
    ),
    "partitions": (["create", "{q}", "--partitions", "7"], 1, "has 1 partitions, not 7"),
}


def test_a_wrong_argument_is_an_error_of_one_line_with_the_valid_form(
    commands: Commands, name: str
) -> None:
    commands.run("create", name, "--topic-config", "max_message_bytes=64KiB")
    commands.run("create", f"{name}-fifo", "--fifo")

    found = {
        what: commands.run(*(word.format(q=name) for word in words))
        for what, (words, _, _) in WRONG.items()
    }

    others = {
        what: found[what]
        for what, (_, status, complaint) in WRONG.items()
        if found[what][0] != status or complaint.format(q=name) not in found[what][1]
    }
    assert others == {}


@pytest.mark.parametrize("settings", [[], ["--config", "require_latest_receipt=on"], ["--fifo"]])
def test_handles_of_other_queues_and_expired_handles_have_different_errors(
    commands: Commands, name: str, settings: Sequence[str]
) -> None:
    commands.run("create", name, *settings)
    commands.run("create", f"{name}-other")
    commands.run("send", name, "--key", "k", "v")
    stale = commands.receive(name, "--visibility-timeout", "0.2")
    handle = commands.receive(name)
    forged = f"{handle[:-6]}{'AAAAAA' if handle[-6:] != 'AAAAAA' else 'BBBBBB'}"

    foreign = commands.run("delete-message", f"{name}-other", handle)
    damaged = commands.run("delete-message", name, forged)
    late = commands.run("extend", name, stale, "--seconds", "5")
    too_long = commands.run("extend", name, handle, "--seconds", "43200")
    commands.run("delete-message", name, handle)
    gone = commands.run("extend", name, handle, "--seconds", "5")

    assert foreign == (1, foreign[1])
    assert "this receipt is of another queue" in foreign[1]
    assert damaged[0] == 1
    assert "receipt" in damaged[1]
    assert late[0] == 1
    assert late[1].startswith("error: the message was received again since; ")
    assert too_long[0] == 1
    assert "at most 43200 seconds after it was received" in too_long[1]
    assert gone == (1, "error: the message is not there any more")
