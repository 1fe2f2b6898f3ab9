"""The followers of one leader: the ISR, the proposed ISR, and the maximal ISR.

Pure: no clock, no I/O. The leader proposes an ISR (Kafka: AlterPartition), the controller decides.
A change is compare-and-set on the partition epoch (KIP-497). These rules must hold, or else
eligible replicas may lack records:

- A replica of a proposed ISR counts as in sync from then on, until the partition epoch moves or the
  change is certainly rejected: the controller may have committed it already (the *maximal* ISR).
- Without an answer, the leader proposes the current ISR: that raises the partition epoch, after
  which no copy of an earlier change can be applied any more.
- A replica is proposed only with the broker epoch of its reports (KIP-903), and only when it has
  all committed records, and all records of the leader's log at the start of the leader epoch.
- A replica is proposed only while it is whole. A damaged replica is left out at once.
"""

from typing import NamedTuple, final

import msgspec

from tidelog.isr.durability import Durability
from tidelog.isr.follower_progress import FollowerProgress, FollowerReport
from tidelog.isr.replica_set import BrokerView, ReplicaSet

JOINING_HOLD_MS = 1000
"""Time since a joining replica was caught up, in which the high watermark waits for it. Otherwise
it might always be a moment behind, and never join the ISR."""
RETRY_MS = 500
"""Minimum time between a rejected change and its retry."""


class IsrMember(NamedTuple):
    """A replica of a proposed ISR."""

    node_id: int
    broker_epoch: int
    """Of the process whose reports the leader has seen."""


class IsrChange(msgspec.Struct, frozen=True):
    """The ISR that a leader proposes.

    It may be the current ISR: then no earlier change of the same partition epoch is applied.
    """

    partition_epoch: int
    """Of the state that it decided on."""
    in_sync_replicas: tuple[IsrMember, ...]


class LogEnds(msgspec.Struct, frozen=True, gc=False):
    """Log end and high watermark of a leader."""

    log_end_offset: int
    high_watermark: int
    durability: Durability


@final
class Followers:
    """The other replicas of one leader, in one leader epoch.

    Invariant: `members` are all replicas in sync, proposed or about to join, except the leader.
    """

    def __init__(
        self, replicas: ReplicaSet, view: BrokerView, *, epoch_start_offset: int, now_ms: int
    ) -> None:
        """Start without reports; `epoch_start_offset` is the log end at this moment."""
        self._view = view
        self._epoch_start_offset = epoch_start_offset
        self.replicas = replicas
        """The committed replica set."""
        self._progress: dict[int, FollowerProgress] = {}
        self._requested: tuple[int, ...] = ()
        self._pending_change: IsrChange | None = None
        """The last change at this partition epoch."""
        self._is_in_flight = False
        """Whether the outcome of the change is not known yet."""
        self._may_arrive_late = False
        """Whether copies of a change at this partition epoch may still be applied."""
        self._retry_ms = now_ms
        self._must_retry = False
        """Whether a change was rejected, and no other was computed since."""
        self._joining: dict[int, None] = {}
        self.members: tuple[FollowerProgress, ...] = ()
        """Followers that must have a record before it is committed."""
        self._follow(replicas, leader_end_offset=epoch_start_offset, now_ms=now_ms)

    @property
    def has_out_of_sync(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.replicas.in_sync_replicas) < len(self.replicas.assigned_replicas)

    def progress_of(self, node_id: int) -> FollowerProgress | None:
        """Return the progress of one follower, `None` when there is no such replica."""
        return self._progress.get(node_id)

    def is_member(self, node_id: int) -> bool:
        """Return whether a follower must have a record before it is committed."""
        progress = self._progress.get(node_id)
        return progress is not None and progress in self.members

    def replicas_changed(
        self, replicas: ReplicaSet, *, leader_end_offset: int, now_ms: int
    ) -> None:
        """Apply a new replica set: other replicas, another ISR, or another minimum."""
        if replicas.partition_epoch > self.replicas.partition_epoch:
            # Each earlier change was committed, or never will be: it named an older epoch.
            self._requested = ()
            self._pending_change = None
            self._is_in_flight = self._may_arrive_late = False
            self._retry_ms = now_ms
        self._follow(replicas, leader_end_offset=leader_end_offset, now_ms=now_ms)

    def reported(self, report: FollowerReport, ends: LogEnds, *, now_ms: int) -> None:
        """Apply a follower's report; ignore reports of nodes that are no replicas."""
        progress = self._progress.get(report.node_id)
        if progress is None:
            return
        progress.reported(
            report,
            leader_end_offset=ends.log_end_offset,
            durability=ends.durability,
            now_ms=now_ms,
        )
        if self.has_out_of_sync:
            self._update_joining(now_ms=now_ms)

    def next_isr_change(self, ends: LogEnds, *, now_ms: int) -> IsrChange | None:
        """Return the ISR to propose now, `None` if there is nothing to change.

        Its replicas count as in sync from now on. Report the outcome by `on_isr_change_committed`
        or `on_isr_change_rejected`.
        """
        for progress in self._progress.values():
            progress.update_caught_up(
                leader_end_offset=ends.log_end_offset, durability=ends.durability, now_ms=now_ms
            )
        self._update_joining(now_ms=now_ms)
        if self._is_in_flight or now_ms < self._retry_ms:
            return None
        self._must_retry = False
        target = self._target_isr(ends, now_ms=now_ms)
        if self._is_current_isr(target) and not self._may_arrive_late:
            return None
        epochs = [(node_id, self._broker_epoch(node_id)) for node_id in target]
        known = tuple(IsrMember(node_id, epoch) for node_id, epoch in epochs if epoch is not None)
        if len(known) < len(target):
            return None  # The metadata is about to change.
        self._requested = tuple({*self._requested, *target})
        self._pending_change = IsrChange(self.replicas.partition_epoch, known)
        self._is_in_flight = True
        self._update_members()
        return self._pending_change

    def on_isr_change_committed(self, change: IsrChange) -> None:
        """Settle a committed change; the metadata here has it already."""
        if change is not self._pending_change:
            return
        self._is_in_flight = False
        if self._is_current_isr([member.node_id for member in change.in_sync_replicas]):
            # The partition epoch is another one: nothing comes of what was asked for before.
            self._requested = ()
            self._pending_change = None
            self._may_arrive_late = False
            self._update_members()

    def on_isr_change_rejected(self, change: IsrChange, *, is_certain: bool, now_ms: int) -> None:
        """Settle a change that was rejected, or got no answer.

        `is_certain` says that this copy of it will never be applied.
        """
        if change is not self._pending_change:
            return
        self._is_in_flight = False
        self._retry_ms = now_ms + RETRY_MS
        self._must_retry = True
        self._may_arrive_late |= not is_certain
        if not self._may_arrive_late:
            self._requested = ()
            self._pending_change = None
            self._update_members()

    def next_deadline_ms(self, ends: LogEnds) -> int | None:
        """Return the time to call `next_isr_change` even without a report, `None` for never."""
        lag_max_ms = self._view.replica_lag_time_max_ms
        times = [
            progress.caught_up_ms + lag_max_ms + 1
            for node_id, progress in self._progress.items()
            if node_id in self.replicas.in_sync_replicas
            and progress.position(ends.durability) < ends.log_end_offset
        ]
        times += [
            self._progress[node_id].caught_up_ms + JOINING_HOLD_MS + 1 for node_id in self._joining
        ]
        if self._must_retry:
            times.append(self._retry_ms)
        return min(times, default=None)

    def _follow(self, replicas: ReplicaSet, *, leader_end_offset: int, now_ms: int) -> None:
        before = self.replicas.in_sync_replicas
        self.replicas = replicas
        for node_id in list(self._progress):
            if node_id not in replicas.assigned_replicas:
                del self._progress[node_id]
        for node_id in replicas.assigned_replicas:
            if node_id == self._view.node_id:
                continue
            is_new = node_id in replicas.in_sync_replicas and node_id not in before
            known = self._progress.get(node_id)
            if known is None or (is_new and known.broker_epoch is None):
                self._progress[node_id] = FollowerProgress(
                    is_in_sync=node_id in replicas.in_sync_replicas,
                    leader_end_offset=leader_end_offset,
                    now_ms=now_ms,
                )
        self._joining = {node_id: None for node_id in self._joining if node_id in self._progress}
        self._update_members()

    def _update_joining(self, *, now_ms: int) -> None:
        if not self._joining and not self.has_out_of_sync:
            return
        joining: dict[int, None] = {}
        for node_id, progress in self._progress.items():
            if (
                node_id not in self.replicas.in_sync_replicas
                and self._is_isr_eligible(node_id, progress)
                and now_ms - progress.caught_up_ms <= JOINING_HOLD_MS
            ):
                joining[node_id] = None
        if joining != self._joining:
            self._joining = joining
            self._update_members()

    def _is_isr_eligible(self, node_id: int, progress: FollowerProgress) -> bool:
        if not progress.is_whole:
            return False
        status = self._view.status_of(node_id)
        # The reporting process must be the registered one (KIP-903).
        return (
            status is not None and status.may_join and status.broker_epoch == progress.broker_epoch
        )

    def _target_isr(self, ends: LogEnds, *, now_ms: int) -> list[int]:
        target: list[int] = []
        late_before_ms = now_ms - self._view.replica_lag_time_max_ms
        join_from = max(ends.high_watermark, self._epoch_start_offset)
        for node_id in self.replicas.assigned_replicas:
            progress = self._progress.get(node_id)
            if progress is None:
                target.append(node_id)  # The leader itself.
                continue
            if not progress.is_whole:
                continue
            position = progress.position(ends.durability)
            if position < ends.log_end_offset and progress.caught_up_ms < late_before_ms:
                continue  # Lagging; it would have to leave again at once.
            if node_id in self.replicas.in_sync_replicas or (
                position >= join_from and self._is_isr_eligible(node_id, progress)
            ):
                target.append(node_id)
        return target

    def _is_current_isr(self, target: list[int]) -> bool:
        return sorted(target) == sorted(self.replicas.in_sync_replicas)

    def _broker_epoch(self, node_id: int) -> int | None:
        progress = self._progress.get(node_id)
        if progress is not None and progress.broker_epoch is not None:
            return progress.broker_epoch
        status = self._view.status_of(node_id)
        return None if status is None else status.broker_epoch

    def _update_members(self) -> None:
        self.members = tuple(
            progress
            for node_id, progress in self._progress.items()
            if node_id in self.replicas.in_sync_replicas
            or node_id in self._requested
            or node_id in self._joining
        )
