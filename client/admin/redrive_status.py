"""How far the redrive of a queue is, all partitions together.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from typing import final

import msgspec

from tidelog.wire.messages.redrives import RedriveDescription, RedriveStatus


@final
class RedriveReport(msgspec.Struct, frozen=True):
    """The redrive that runs, or ran last."""

    status: RedriveStatus | None
    """Of the partitions together: it runs while it does at one of them; `None`: there never was
    one."""
    started_ms: int = 0
    """Unix milliseconds, by the clocks of brokers."""
    ended_ms: int | None = None
    """When all was looked at, or it was cancelled; `None` while it runs."""
    to_move: int = 0
    """Messages that were there when it began."""
    moved: int = 0
    """Messages that are where they were to go."""
    on_the_way: int = 0
    """Messages that it has taken out, and that are not there yet."""
    left: int = 0
    """Messages that it has not looked at."""
    skipped: int = 0
    """Messages that stay: not from `only_from`, or without a place to go to."""
    failed: int = 0
    """Messages that were refused where they were to go, and are in the queue again."""
    messages_per_s: float = 0.0
    """How many were moved in a second so far, on the average."""
    rate: int | None = None
    """At most so many a second, from each partition; `None` for as fast as it goes."""
    only_from: str | None = None
    """Only dead letters of this queue; `None` for all."""
    to_topic_id: bytes | None = None
    """`None` if each one goes where it came from."""
    reason: str = ""
    """Why it failed, or was cancelled."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do: it has ended, and nothing is on its way."""
        return self.status is not RedriveStatus.RUNNING and not self.on_the_way


def report_of(partitions: Sequence[RedriveDescription], now_ms: int) -> RedriveReport:
    """Return what the partitions say together; `now_ms` is the time at brokers."""
    known = [each for each in partitions if each.status is not None]
    if not known:
        return RedriveReport(None)
    newest = max(known, key=lambda each: each.started_ms)
    statuses = [RedriveStatus(each.status or 0) for each in known]
    status = min(statuses, key=_URGENCY.index)
    ends = [each.ended_ms for each in known if each.ended_ms is not None]
    ended_ms = max(ends) if len(ends) == len(known) else None
    started_ms = min(each.started_ms for each in known)
    moved = sum(each.moved for each in known)
    is_over = ended_ms is not None and not any(each.on_the_way for each in known)
    until_ms = ended_ms if is_over and ended_ms is not None else now_ms
    return RedriveReport(
        status,
        started_ms,
        ended_ms,
        to_move=sum(each.to_move for each in known),
        moved=moved,
        on_the_way=sum(each.on_the_way for each in known),
        left=sum(each.left for each in known),
        skipped=sum(each.skipped for each in known),
        failed=sum(each.failed for each in known),
        messages_per_s=1000 * moved / max(until_ms - started_ms, 1000),
        rate=newest.messages_per_s,
        only_from=newest.origin_queue,
        to_topic_id=newest.destination,
        reason=newest.reason,
    )


_URGENCY = (
    RedriveStatus.RUNNING,
    RedriveStatus.FAILED,
    RedriveStatus.CANCELLED,
    RedriveStatus.COMPLETED,
)
"""What is said of all partitions: the first of these that is true of one."""
