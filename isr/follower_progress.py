"""Progress of one follower, as its leader knows it.

Pure: no clock, no I/O.
"""

from typing import final

import msgspec

from tidelog.isr.durability import Durability

NEVER_MS = -(1 << 62)
"""A time before all others."""


class FollowerReport(msgspec.Struct, frozen=True, gc=False):
    """State of a follower at its fetch.

    The leader has compared the follower's log up to `log_end_offset`: it is a prefix of its own.
    """

    node_id: int
    broker_epoch: int
    """Broker epoch of the process that fetches (KIP-903)."""
    log_end_offset: int
    durable_end_offset: int
    is_whole: bool = True
    """Whether its replica is healthy: without damage, and on a disk that accepts writes."""


@final
class FollowerProgress:
    """The last report of one follower in this leader epoch, and its lag.

    "Caught up" is a point in time: the follower has all records that the leader had then. The
    leader sets a mark (time, log end), and replaces it as soon as the follower reaches it. So a
    follower that always trails by a moment counts as caught up a moment ago, while more is
    appended. A follower without news sends no report: if it has all records, it counts as caught
    up until `update_caught_up` finds more.

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
        """Start without a report. An in-sync replica counts as caught up now, so a leader waits."""
        self.broker_epoch: int | None = None
        """Broker epoch of the last report, `None` before the first report."""
        self.caught_up_ms = now_ms if is_in_sync else NEVER_MS
        self.is_whole = True
        """Whether the last report said so; true before the first report."""
        self._has_all = False
        """Whether the follower had all records at the last check."""
        self._mark_ms = now_ms
        self._mark_offset = leader_end_offset
        self._log_end_offset = 0
        self._durable_end_offset = 0

    def position(self, durability: Durability) -> int:
        """Return the exclusive end of the follower's records; 0 before the first report."""
        if durability is Durability.FSYNC:
            return self._durable_end_offset
        return self._log_end_offset

    def update_caught_up(
        self, *, leader_end_offset: int, durability: Durability, now_ms: int
    ) -> bool:
        """Set the time at which it begins to lag; return whether it lacks records."""
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
        """Apply a report; ignore a report of an earlier process of the follower."""
        if self.broker_epoch is not None and report.broker_epoch != self.broker_epoch:
            if report.broker_epoch < self.broker_epoch:
                return
            # A new process, which was never caught up.
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
        """Return the last report with a new durable end offset; `None` before the first report."""
        if self.broker_epoch is None:
            return None
        return FollowerReport(
            node_id, self.broker_epoch, self._log_end_offset, durable_end_offset, self.is_whole
        )
