"""How far a leader knows one follower to be.

Pure: no clock, no I/O.
"""

from typing import final

import msgspec

from tidelog.isr.durability import Durability

NEVER_MS = -(1 << 62)
"""Longer ago than anything."""


class FollowerReport(msgspec.Struct, frozen=True, gc=False):
    """What a follower says of itself when it fetches.

    Its log has been compared with the leader's up to `log_end_offset`: it is a beginning of it.
    """

    node_id: int
    broker_epoch: int
    """Of the process that fetches (KIP-903)."""
    log_end_offset: int
    durable_end_offset: int
    is_whole: bool = True
    """Whether its replica is in order: nothing in it is damaged, and its disk takes more."""


@final
class FollowerProgress:
    """The last report of one follower in this leader epoch, and how late it is.

    "Caught up" is a point in time: the follower has all that the leader had then. A mark (time, log
    end) is set, and replaced as soon as the follower reaches it; so a follower that always trails
    by a moment counts as caught up a moment ago, whatever arrives meanwhile. While there is nothing
    to report a follower does not: one that has everything counts as caught up until
    `update_caught_up` sees more.

    Invariant: `caught_up_ms` never falls while the same process reports.
    """

    __slots__ = (
        "_durable_end_offset",
        "_has_all",
        "_log_end_offset",
        "_mark_ms",
        "_mark_offset",
        "broker_epoch",
        "caught_up_ms",
        "is_whole",
    )

    def __init__(self, *, is_in_sync: bool, leader_end_offset: int, now_ms: int) -> None:
        """Know nothing yet. Who is in sync counts as caught up now: a new leader gives it time."""
        self.broker_epoch: int | None = None
        """Of the process that reported last, `None` before the first report."""
        self.caught_up_ms = now_ms if is_in_sync else NEVER_MS
        self.is_whole = True
        """Whether it said so last; who has not reported yet counts as such."""
        self._has_all = False
        """Whether it had everything when somebody looked last."""
        self._mark_ms = now_ms
        self._mark_offset = leader_end_offset
        self._log_end_offset = 0
        self._durable_end_offset = 0

    def position(self, durability: Durability) -> int:
        """Return below which offset it has everything (exclusive end); 0 before it reported."""
        if durability is Durability.FSYNC:
            return self._durable_end_offset
        return self._log_end_offset

    def update_caught_up(
        self, *, leader_end_offset: int, durability: Durability, now_ms: int
    ) -> bool:
        """Note when it begins to lag; return whether it lacks records."""
        lacks_some = self.position(durability) < leader_end_offset
        if self._has_all and lacks_some:
            self._has_all = False
            self.caught_up_ms = now_ms
        return lacks_some

    def reported(
        self,
        report: FollowerReport,
        *,
        leader_end_offset: int,
        durability: Durability,
        now_ms: int,
    ) -> None:
        """Take note of a report; one of an earlier process of the follower counts for nothing."""
        if self.broker_epoch is not None and report.broker_epoch != self.broker_epoch:
            if report.broker_epoch < self.broker_epoch:
                return
            # Another process, which was never caught up.
            self.caught_up_ms = NEVER_MS
            self._has_all = False
            self._mark_ms, self._mark_offset = now_ms, leader_end_offset
        self.update_caught_up(
            leader_end_offset=leader_end_offset, durability=durability, now_ms=now_ms
        )
        self.broker_epoch = report.broker_epoch
        self.is_whole = report.is_whole
        self._log_end_offset = report.log_end_offset
        self._durable_end_offset = min(report.durable_end_offset, report.log_end_offset)
        position = self.position(durability)
        if position >= leader_end_offset:
            self.caught_up_ms = now_ms
            self._has_all = True
        elif position >= self._mark_offset:
            self.caught_up_ms = max(self.caught_up_ms, self._mark_ms)
        else:
            return
        self._mark_ms, self._mark_offset = now_ms, leader_end_offset

    def became_durable(self, node_id: int, durable_end_offset: int) -> FollowerReport | None:
        """Return the report that it amounts to when more of what it has is on its disk.

        `None` before the first report.
        """
        if self.broker_epoch is None:
            return None
        return FollowerReport(
            node_id, self.broker_epoch, self._log_end_offset, durable_end_offset, self.is_whole
        )
