"""Progress of the redrive of a queue, all partitions together.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from typing import Final, final

import msgspec

from tidelog.wire.messages.redrives import RedriveDescription, RedriveStatus

_KEPT: Final = 10
"""Redrives that a queue reports, as many as each of its partitions remembers."""


@final
class RedriveReport(msgspec.Struct, frozen=True):
    """Redrive that runs, or ran."""

    status: RedriveStatus | None
    """Status of the partitions together: it runs while it runs in one of them; `None`: the queue
    never had a redrive."""
    started_ms: int = 0
    """Start in Unix milliseconds, by the clocks of brokers."""
    ended_ms: int | None = None
    """End, after the last message or by a cancellation; `None` while it runs."""
    to_move: int = 0
    """Messages in the queue at the start."""
    moved: int = 0
    """Messages that are in their destination."""
    on_the_way: int = 0
    """Messages taken out of the queue that are not in their destination yet."""
    left: int = 0
    """Messages that were not looked at yet."""
    skipped: int = 0
    """Messages that stay: not from `only_from`, or without a destination."""
    failed: int = 0
    """Messages that the destination refused; they are in the queue again."""
    messages_per_s: float = 0.0
    """Average messages per second so far."""
    rate: int | None = None
    """Maximum messages per second and partition; `None` without a limit."""
    only_from: str | None = None
    """Only dead letters of this queue; `None` for all."""
    to_topic_id: bytes | None = None
    """Destination; `None` if each message returns to its source."""
    reason: str = ""
    """Reason of a failure or cancellation."""
    redrive_id: bytes = b""
    """Id that its program chose; empty for none."""
    note: str = ""
    """Text of its program."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended and no message is in between."""
        return self.status is not RedriveStatus.RUNNING and not self.on_the_way


def report_of(partitions: Sequence[RedriveDescription], now_ms: int) -> RedriveReport:
    """Return the sum of the partitions' reports; `now_ms` is the time at brokers."""
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
        reason=next((each.reason for each in known if each.status == status and each.reason), ""),
        redrive_id=newest.redrive_id,
        note=newest.note,
    )


def reports_of(redrives: Sequence[RedriveDescription], now_ms: int) -> list[RedriveReport]:
    """Return the reports of the redrives of partitions, the latest first.

    Redrives of several partitions are one if they have the same id, or none and the same number.
    """
    groups: dict[tuple[bytes, int], list[RedriveDescription]] = {}
    for each in redrives:
        if each.status is not None:
            key = (each.redrive_id, 0 if each.redrive_id else each.number)
            groups.setdefault(key, []).append(each)
    latest = sorted(
        groups.values(),
        key=lambda group: max((each.started_ms, each.number) for each in group),
        reverse=True,
    )
    return [report_of(group, now_ms) for group in latest[:_KEPT]]


_URGENCY = (
    RedriveStatus.RUNNING,
    RedriveStatus.FAILED,
    RedriveStatus.CANCELLED,
    RedriveStatus.COMPLETED,
)
"""Statuses by precedence: the first that one of the partitions has."""
