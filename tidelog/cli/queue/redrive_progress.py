"""The progress of redrives, as text, JSON and a bar, and the wait for their end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
import trio

from tidelog.cli.output.tables import counted, print_fields, print_json, print_table
from tidelog.cli.output.times import moment_text
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.queue.queue import Queue
from tidelog.wire.messages.redrives import RedriveStatus

if TYPE_CHECKING:
    from rich.console import Console

_INTERVAL_S: Final = 0.5


async def wait_for_redrive(queue: Queue, console: "Console") -> RedriveReport:
    """Wait for the end of the redrive of a queue; return its report.

    A terminal shows a bar, which is removed at the end.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=None)
        while True:
            report = await queue.redrive_status()
            progress.update(
                task,
                description=f"{report.messages_per_s:,.0f} messages/s",
                total=report.to_move or None,
                completed=report.moved + report.skipped + report.failed,
            )
            progress.refresh()
            if report.is_over:
                return report
            await trio.sleep(_INTERVAL_S)


def report_as_json(report: RedriveReport) -> dict[str, object]:
    """Return all fields of a redrive."""
    return {
        "status": None if report.status is None else report.status.name.lower(),
        "is_over": report.is_over,
        "started_ms": report.started_ms or None,
        "ended_ms": report.ended_ms,
        "to_move": report.to_move,
        "moved": report.moved,
        "on_the_way": report.on_the_way,
        "left": report.left,
        "skipped": report.skipped,
        "failed": report.failed,
        "messages_per_s": round(report.messages_per_s, 1),
        "rate": report.rate,
        "only_from": report.only_from,
        "to_topic_id": None if report.to_topic_id is None else report.to_topic_id.hex(),
        "reason": report.reason,
        "redrive_id": report.redrive_id.hex(),
        "note": report.note,
    }


def print_report(report: RedriveReport) -> None:
    """Print the progress of a redrive."""
    if report.status is None:
        print_fields({"status": "this queue never had a redrive"})
        return
    facts: dict[str, object] = {
        "status": _status_text(report),
        "started": moment_text(report.started_ms),
    }
    if report.ended_ms is not None:
        facts["ended"] = moment_text(report.ended_ms)
    if report.only_from is not None:
        facts["only from"] = report.only_from
    speed = f"{report.messages_per_s:,.1f} messages/s"
    if report.rate is not None:
        speed += f", at most {report.rate:,} from each partition"
    facts |= {
        "moved": f"{report.moved:,} of {counted(report.to_move, 'message')}",
        "on the way": report.on_the_way,
        "left": report.left,
        "speed": speed,
    }
    if report.skipped:
        facts["skipped"] = f"{report.skipped:,} not selected, or without a target"
    if report.failed:
        facts["failed"] = f"{report.failed:,} rejected by the target, and still in this queue"
    if report.reason:
        facts["reason"] = report.reason
    print_fields(facts)


def print_redrives(reports: Sequence[RedriveReport], *, as_json: bool) -> None:
    """Print redrives, the latest first."""
    if as_json:
        print_json([report_as_json(each) for each in reports])
        return
    if not reports:
        click.echo("this queue never had a redrive")
        return
    print_table(
        ("started", "status", "moved", "of", "skipped", "failed", "reason"),
        [
            (
                moment_text(each.started_ms),
                _status_text(each),
                each.moved,
                each.to_move,
                each.skipped,
                each.failed,
                each.reason,
            )
            for each in reports
        ],
        right=("moved", "of", "skipped", "failed"),
    )


def _status_text(report: RedriveReport) -> str:
    assert report.status is not None
    text = report.status.name.lower()
    if report.status is not RedriveStatus.RUNNING and report.on_the_way:
        text += ", some messages are still in flight"
    return text
