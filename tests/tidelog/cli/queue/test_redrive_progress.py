"""The progress and the report of redrives."""

import io
import json
from typing import Any, cast

import pytest
from msgspec.structs import replace
from rich.console import Console
from trio.testing import MockClock

from tidelog.cli.queue.redrive_progress import print_report, report_as_json, wait_for_redrive
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.queue.queue import Queue
from tidelog.wire.messages.redrives import RedriveStatus

REPORT = RedriveReport(
    RedriveStatus.CANCELLED,
    1_700_000_000_000,
    1_700_000_002_000,
    to_move=5000,
    moved=1200,
    on_the_way=7,
    left=3000,
    skipped=700,
    failed=93,
    messages_per_s=98.25,
    rate=100,
    only_from="orders",
    to_topic_id=b"\x0a" * 16,
    reason="enough",
)


class Scripted:
    """A queue whose redrive is as a script says, look by look."""

    def __init__(self, reports: list[RedriveReport]) -> None:
        self._reports = reports

    async def redrive_status(self) -> RedriveReport:
        return self._reports.pop(0) if len(self._reports) > 1 else self._reports[0]


async def test_the_wait_for_a_redrive_shows_a_bar(
    autojump_clock: MockClock,
) -> None:
    running = replace(REPORT, status=RedriveStatus.RUNNING, ended_ms=None)
    done = replace(REPORT, status=RedriveStatus.COMPLETED, on_the_way=0)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)

    report = await wait_for_redrive(cast("Queue", Scripted([running, REPORT, done])), console)

    assert report == done
    assert autojump_clock.current_time() > 0.9
    assert "98 messages/s" in shown.getvalue()
    assert "1993/5000" in shown.getvalue()


def test_programs_get_everything() -> None:
    found: dict[str, Any] = json.loads(json.dumps(report_as_json(REPORT)))

    assert set(found) == {*RedriveReport.__struct_fields__, "is_over"}
    assert found["status"] == "cancelled"
    assert found["to_topic_id"] == "0a" * 16


def test_the_report_of_a_redrive_has_counts_and_status(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(REPORT)

    out = capsys.readouterr().out
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["status", "cancelled, some messages are still in flight"] in lines
    assert ["moved", "1,200 of 5,000 messages"] in lines
    assert ["failed", "93 rejected by the target, and still in this queue"] in lines
    assert ["speed", "98.2 messages/s, at most 100 from each partition"] in lines
    print_report(RedriveReport(None))
    assert "this queue never had a redrive" in capsys.readouterr().out
