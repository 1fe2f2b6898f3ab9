"""`tidelog queue`: looking at messages, purging, going back."""

import itertools
import json

import pytest
import trio

from tidelog.cli import main
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.wire.messages.redrives import RedriveStatus

Printed = pytest.CaptureFixture[str]

_numbers = itertools.count()


@pytest.fixture
def queue(at_broker: None, capsys: Printed) -> str:
    """Create a queue with two messages that no other test has."""
    del at_broker
    name = f"cared-for-{next(_numbers)}"
    assert main.run(["queue", "create", name]) == 0
    assert main.run(["queue", "send", name, "one", "two"]) == 0
    capsys.readouterr()
    return name


def run(capsys: Printed, *words: str) -> str:
    """Return what a command prints that goes well."""
    assert main.run(["queue", *words]) == 0
    return capsys.readouterr().out


def test_looking_takes_nothing(queue: str, capsys: Printed) -> None:
    for _ in range(2):
        _, first, second = run(capsys, "peek", queue).splitlines()
        assert first.split() == ["0-0", "visible", "0", "-", "-", "-", "one"]
        assert second.split()[-1] == "two"
    assert len(run(capsys, "peek", queue, "--max", "1").splitlines()) == 2


def test_a_seek_to_earliest_delivers_all_messages_again(queue: str, capsys: Printed) -> None:
    run(capsys, "receive", queue, "--wait", "5", "--delete")
    assert run(capsys, "seek", queue, "--from", "1h", "--yes") == f"{queue} has 2 messages now\n"
    assert len(json.loads(run(capsys, "receive", queue, "--wait", "5", "--json"))) == 2
    found = json.loads(run(capsys, "seek", queue, "--from", "latest", "--yes", "--json"))
    assert found == {"messages": 0}


def test_a_purge_reports_the_count_of_deleted_messages(queue: str, capsys: Printed) -> None:
    assert json.loads(run(capsys, "purge", queue, "--yes", "--json")) == {"purged": 2}
    assert json.loads(run(capsys, "peek", queue, "--json")) == []


def test_a_queue_without_rejected_messages_has_no_dead_letters(queue: str, capsys: Printed) -> None:
    assert main.run(["queue", "dead-letters", queue]) == 0
    assert capsys.readouterr().err == "there are no such messages\n"


def test_dead_letters_are_shown_with_reasons_and_redriven(queue: str, capsys: Printed) -> None:
    dead = f"{queue}-dead"
    run(capsys, "create", dead)
    run(
        capsys,
        *("alter", queue, "--set", f"dead_letter_queue={dead}"),
        *("--set", "max_receive_count=1"),
    )
    run(capsys, "receive", queue, "--wait", "5", "--visibility-timeout", "0")
    run(capsys, "receive", queue, "--wait", "1")

    letters: list[dict[str, object]] = []
    while len(letters) < 2 or any(each["state"] == "dead" for each in letters):
        letters = json.loads(run(capsys, "dead-letters", queue, "--json"))
    assert {str(each["value"]) for each in letters} == {"one", "two"}
    origin = letters[0]["origin"]
    assert isinstance(origin, dict)
    assert (origin["queue"], origin["receive_count"]) == (queue, 1)
    _, line, _ = run(capsys, "dead-letters", queue).splitlines()
    assert line.split()[-1] == "max_receive_count"

    said = run(capsys, "redrive", dead, "--from", queue, "--wait")
    words = [line.split() for line in said.splitlines()]
    assert ["status", "completed"] in words
    assert ["moved", "2", "of", "2", "messages"] in words
    assert ["only", "from", queue] in words
    back: list[dict[str, object]] = []
    while len(back) < 2:
        back += json.loads(run(capsys, "receive", queue, "--wait", "5", "--json"))
    assert {str(each["value"]) for each in back} == {"one", "two"}
    found = json.loads(run(capsys, "redrive", dead, "--status", "--json"))
    assert (found["status"], found["is_over"]) == ("completed", True)
    assert (found["moved"], found["to_move"], found["left"]) == (2, 2, 0)
    (listed,) = json.loads(run(capsys, "redrive", dead, "--history", "--json"))
    assert listed == found
    header, row = run(capsys, "redrive", dead, "--history").splitlines()
    assert header.split() == ["started", "status", "moved", "of", "skipped", "failed", "reason"]
    assert "completed" in row
    run(capsys, "redrive", dead, "--cancel")
    for option in ("--status", "--history"):
        assert "this queue never had a redrive" in run(capsys, "redrive", queue, option)


@pytest.mark.parametrize(
    ("report", "is_cancel", "complaint"),
    [
        (RedriveReport(RedriveStatus.COMPLETED, moved=5), False, None),
        (RedriveReport(None), False, None),
        (RedriveReport(RedriveStatus.COMPLETED, moved=5, failed=2), False, "2 messages were rej"),
        (RedriveReport(RedriveStatus.CANCELLED, reason="enough"), False, "was cancelled: enough"),
        (RedriveReport(RedriveStatus.CANCELLED), True, None),
        (RedriveReport(RedriveStatus.FAILED, reason="no topic"), True, "failed: no topic"),
    ],
)
def test_the_wait_for_a_redrive_returns_its_result_as_exit_status(
    *,
    report: RedriveReport,
    is_cancel: bool,
    complaint: str | None,
    queue: str,
    capsys: Printed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ended(*_: object) -> RedriveReport:
        await trio.lowlevel.checkpoint()
        return report

    monkeypatch.setattr("tidelog.cli.queue.admin.wait_for_redrive", ended)

    words = ["--cancel"] if is_cancel else []
    status = main.run(["queue", "redrive", queue, "--wait", *words])

    said = capsys.readouterr()
    assert status == (complaint is not None)
    assert "status" in said.out, "the report is there all the same"
    assert (complaint or "") in said.err


@pytest.mark.usefixtures("at_broker")
def test_an_invalid_redrive_is_rejected(capsys: Printed) -> None:
    assert main.run(["queue", "redrive", "q", "--cancel", "--rate", "5"]) == 2
    assert (
        "error: options exclude each other: give --status, --history, --cancel"
        in capsys.readouterr().err
    )
    assert main.run(["queue", "redrive", "nope"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no queue 'nope'")


def test_scheduled_messages_are_cancelled_at_the_command_line(queue: str, capsys: Printed) -> None:
    (sent,) = json.loads(run(capsys, "send", queue, "later", "--delay", "3600", "--json"))
    message_id = sent["message_id"]
    assert run(capsys, "cancel-scheduled", queue, message_id) == f"cancelled 1 message of {queue}\n"
    assert json.loads(run(capsys, "peek", queue, "--state", "delayed", "--json")) == []
    assert main.run(["queue", "cancel-scheduled", queue, message_id]) == 1
    assert "there is no such message" in capsys.readouterr().err
    assert main.run(["queue", "cancel-scheduled", queue, message_id, "0-99"]) == 1
    assert "0 messages cancelled" in capsys.readouterr().err
    assert main.run(["queue", "cancel-scheduled", queue, "that one"]) == 2
    assert "is no message id" in capsys.readouterr().err
