"""The followers of one leader: who is in sync, who should be, and who holds back what is committed.

Pure: no clock, no I/O. The leader wishes for other in-sync replicas, the cluster decides; a wish is
compare-and-set on the partition epoch (KIP-497). What must hold, or else replicas that are eligible
to lead lack records:

- A replica that was wished for counts as in sync from then on, until the partition epoch moves or
  the wish is refused for certain: the cluster may have granted it already (the *maximal* ISR).
- If no answer came, the leader asks for what is so: that raises the partition epoch, and then no
  copy of what it asked for before can be carried out any more.
- It is wished for only with the broker epoch of its own reports (KIP-903), and only when it has all
  that is committed, and all that was in the leader's log when the leader epoch began.
- It is wished for only while it is whole. One that is not is wished out at once.
"""

from typing import final

import msgspec

from tidelog.isr.durability import Durability
from tidelog.isr.follower_progress import FollowerProgress, FollowerReport
from tidelog.isr.replica_set import BrokerView, ReplicaSet

JOINING_HOLD_MS = 1000
"""Who was caught up so recently and is about to join holds back what is committed. Else it might
always be a moment behind, and never get in."""
RETRY_MS = 500
"""A wish that was not granted is not repeated sooner."""


class InSyncWish(msgspec.Struct, frozen=True):
    """The in-sync replicas that a leader wants.

    Those that are in sync already: then nothing shall be carried out any more that it asked for
    before, at the same partition epoch.
    """

    partition_epoch: int
    """Of the state that it decided on."""
    in_sync_replicas: tuple[tuple[int, int], ...]
    """Node ids with the broker epochs of the processes that the leader means."""


class LeaderEnds(msgspec.Struct, frozen=True, gc=False):
    """What a leader has itself."""

    log_end_offset: int
    high_watermark: int
    durability: Durability


@final
class Followers:
    """What one leader, in one leader epoch, knows of the other replicas.

    Invariant: everybody in sync, wished for or about to join is in `members`, but for the leader.
    """

    def __init__(
        self, replicas: ReplicaSet, view: BrokerView, *, epoch_start_offset: int, now_ms: int
    ) -> None:
        """Begin with nobody's report; `epoch_start_offset` is the log's end at this moment."""
        self._view = view
        self._epoch_start_offset = epoch_start_offset
        self.replicas = replicas
        """As the cluster has agreed on them."""
        self._progress: dict[int, FollowerProgress] = {}
        self._asked: tuple[int, ...] = ()
        self._wish: InSyncWish | None = None
        """What was wished for at this partition epoch last."""
        self._is_out = False
        """Whether the wish is on its way, and its outcome not known."""
        self._may_arrive_late = False
        """Whether copies of a wish at this partition epoch may still be carried out."""
        self._retry_ms = now_ms
        self._must_retry = False
        """Whether a wish was refused, and it was not looked since whether there still is one."""
        self._joining: dict[int, None] = {}
        self.members: tuple[FollowerProgress, ...] = ()
        """Those who must have a record before it is committed."""
        self._follow(replicas, leader_end_offset=epoch_start_offset, now_ms=now_ms)

    @property
    def has_outsiders(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.replicas.in_sync_replicas) < len(self.replicas.assigned_replicas)

    def progress_of(self, node_id: int) -> FollowerProgress | None:
        """Return what is known of one follower, `None` when there is no such replica."""
        return self._progress.get(node_id)

    def is_member(self, node_id: int) -> bool:
        """Return whether a follower must have a record before it is committed."""
        progress = self._progress.get(node_id)
        return progress is not None and progress in self.members

    def replicas_changed(
        self, replicas: ReplicaSet, *, leader_end_offset: int, now_ms: int
    ) -> None:
        """Go on with other replicas, others in sync, or another minimum."""
        if replicas.partition_epoch > self.replicas.partition_epoch:
            # Whatever was wished for came true, or never will: it named an older epoch.
            self._asked = ()
            self._wish = None
            self._is_out = self._may_arrive_late = False
            self._retry_ms = now_ms
        self._follow(replicas, leader_end_offset=leader_end_offset, now_ms=now_ms)

    def reported(self, report: FollowerReport, ends: LeaderEnds, *, now_ms: int) -> None:
        """Take note of how far a follower is; others than replicas are not heard."""
        progress = self._progress.get(report.node_id)
        if progress is None:
            return
        progress.reported(
            report,
            leader_end_offset=ends.log_end_offset,
            durability=ends.durability,
            now_ms=now_ms,
        )
        if self.has_outsiders:
            self._look_who_joins(now_ms=now_ms)

    def next_wish(self, ends: LeaderEnds, *, now_ms: int) -> InSyncWish | None:
        """Return what to ask the cluster for now, `None` when there is nothing.

        What is returned counts as asked for; say `granted` or `refused` when its outcome is known.
        """
        for progress in self._progress.values():
            progress.observe(
                leader_end_offset=ends.log_end_offset, durability=ends.durability, now_ms=now_ms
            )
        self._look_who_joins(now_ms=now_ms)
        if self._is_out or now_ms < self._retry_ms:
            return None
        self._must_retry = False
        wanted = self._wanted(ends, now_ms=now_ms)
        if self._is_so(wanted) and not self._may_arrive_late:
            return None
        epochs = [(node_id, self._broker_epoch(node_id)) for node_id in wanted]
        known = tuple((node_id, epoch) for node_id, epoch in epochs if epoch is not None)
        if len(known) < len(wanted):
            return None  # The metadata is about to change.
        self._asked = tuple({*self._asked, *wanted})
        self._wish = InSyncWish(self.replicas.partition_epoch, known)
        self._is_out = True
        self._gather_members()
        return self._wish

    def granted(self, wish: InSyncWish) -> None:
        """Take note that a wish was carried out; the metadata here says so already."""
        if wish is not self._wish:
            return
        self._is_out = False
        if self._is_so([node_id for node_id, _ in wish.in_sync_replicas]):
            # The partition epoch is another one: nothing comes of what was asked for before.
            self._asked = ()
            self._wish = None
            self._may_arrive_late = False
            self._gather_members()

    def refused(self, wish: InSyncWish, *, is_certain: bool, now_ms: int) -> None:
        """Take note that a wish was refused, or of no answer.

        `is_certain` says that this copy of it will never be carried out.
        """
        if wish is not self._wish:
            return
        self._is_out = False
        self._retry_ms = now_ms + RETRY_MS
        self._must_retry = True
        self._may_arrive_late |= not is_certain
        if not self._may_arrive_late:
            self._asked = ()
            self._wish = None
            self._gather_members()

    def next_deadline_ms(self, ends: LeaderEnds) -> int | None:
        """Return when `next_wish` may have something to say though nobody reports; or `None`."""
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
        self._gather_members()

    def _look_who_joins(self, *, now_ms: int) -> None:
        if not self._joining and not self.has_outsiders:
            return
        joining: dict[int, None] = {}
        for node_id, progress in self._progress.items():
            if (
                node_id not in self.replicas.in_sync_replicas
                and self._may_join(node_id, progress)
                and now_ms - progress.caught_up_ms <= JOINING_HOLD_MS
            ):
                joining[node_id] = None
        if joining != self._joining:
            self._joining = joining
            self._gather_members()

    def _may_join(self, node_id: int, progress: FollowerProgress) -> bool:
        if not progress.is_whole:
            return False
        facts = self._view.facts_of(node_id)
        # The life that reports must be the one that the cluster knows. KIP-903.
        return facts is not None and facts.may_join and facts.broker_epoch == progress.broker_epoch

    def _wanted(self, ends: LeaderEnds, *, now_ms: int) -> list[int]:
        wanted: list[int] = []
        late_before_ms = now_ms - self._view.replica_lag_time_max_ms
        join_from = max(ends.high_watermark, self._epoch_start_offset)
        for node_id in self.replicas.assigned_replicas:
            progress = self._progress.get(node_id)
            if progress is None:
                wanted.append(node_id)  # The leader itself.
                continue
            if not progress.is_whole:
                continue
            position = progress.position(ends.durability)
            if position < ends.log_end_offset and progress.caught_up_ms < late_before_ms:
                continue  # Late; it would have to leave again at once.
            if node_id in self.replicas.in_sync_replicas or (
                position >= join_from and self._may_join(node_id, progress)
            ):
                wanted.append(node_id)
        return wanted

    def _is_so(self, wanted: list[int]) -> bool:
        return sorted(wanted) == sorted(self.replicas.in_sync_replicas)

    def _broker_epoch(self, node_id: int) -> int | None:
        progress = self._progress.get(node_id)
        if progress is not None and progress.broker_epoch is not None:
            return progress.broker_epoch
        facts = self._view.facts_of(node_id)
        return None if facts is None else facts.broker_epoch

    def _gather_members(self) -> None:
        self.members = tuple(
            progress
            for node_id, progress in self._progress.items()
            if node_id in self.replicas.in_sync_replicas
            or node_id in self._asked
            or node_id in self._joining
        )
