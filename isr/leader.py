"""The leader's view of one partition: what is committed, and what may be acknowledged.

Pure: no clock, no I/O. `isr.followers` has what a leader knows of the other replicas.
"""

from typing import final

from tidelog.isr.durability import Durability
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.followers import Followers, IsrChange, LogEnds
from tidelog.isr.replica_set import ALONE, NOBODY, ReplicaSet
from tidelog.wire.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError
from tidelog.wire.messages.produce import Acks


@final
class PartitionLeader:
    """What one leader, in one leader epoch, knows of its partition.

    Invariant: the high watermark never falls, never passes what the leader itself has, and does not
    move while fewer than `min_insync_replicas` are in sync.
    """

    def __init__(
        self,
        *,
        leader_epoch: int,
        durability: Durability,
        log_end_offset: int,
        durable_end_offset: int,
        high_watermark: int | None = None,
        followers: Followers | None = None,
    ) -> None:
        """Begin to lead with what is in the log; without `followers`, alone.

        `high_watermark` is what this replica knew as a follower. `None` when nothing is known; then
        it is the durable end of a leader that is alone.
        """
        self.leader_epoch = leader_epoch
        self.durability = durability
        """May be changed at any time: what is committed stays committed."""
        self.epoch_start_offset = log_end_offset
        """Where the log ended when the leader epoch began."""
        self._log_end_offset = log_end_offset
        self._durable_end_offset = durable_end_offset
        if followers is None:
            followers = Followers(ALONE, NOBODY, epoch_start_offset=log_end_offset, now_ms=0)
        self._followers = followers
        if high_watermark is None:
            high_watermark = 0 if followers.members else durable_end_offset
        self._high_watermark = min(high_watermark, log_end_offset)
        self._advance_high_watermark()

    @property
    def high_watermark(self) -> int:
        """First offset not known to be on every in-sync replica (exclusive end)."""
        return self._high_watermark

    @property
    def replicas(self) -> ReplicaSet:
        """The replicas, as the cluster has agreed on them."""
        return self._followers.replicas

    @property
    def is_all_in_sync(self) -> bool:
        """Whether there is no replica that could join those in sync."""
        return not self._followers.has_out_of_sync

    @property
    def has_caught_up(self) -> bool:
        """Whether all is committed that earlier leaders may have acknowledged.

        Before, the high watermark may be lower than it was at another leader.
        """
        return self._high_watermark >= self.epoch_start_offset

    def is_hw_limiting(self, node_id: int) -> bool:
        """Return whether the high watermark waits for a follower."""
        return self._followers.is_member(node_id)

    def follower_end_offset(self, node_id: int) -> int | None:
        """Return where the log of a follower ends, `None` while it has not said so."""
        progress = self._followers.progress_of(node_id)
        if progress is None or progress.broker_epoch is None:
            return None
        return progress.position(Durability.REPLICATED)

    def progressed(self, *, log_end_offset: int, durable_end_offset: int) -> None:
        """Take note of how far the leader's own log is."""
        self._log_end_offset = log_end_offset
        self._durable_end_offset = durable_end_offset
        self._advance_high_watermark()

    def follower_reported(self, report: FollowerReport, *, now_ms: int) -> None:
        """Take note of how far a follower is, whose log was compared with this one."""
        assert report.log_end_offset <= self._log_end_offset, "a follower has more than its leader"
        self._followers.reported(report, self._ends(), now_ms=now_ms)
        self._advance_high_watermark()

    def follower_became_durable(
        self, node_id: int, broker_epoch: int, durable_end_offset: int, *, now_ms: int
    ) -> None:
        """Take note of how much of what a follower has reported is on its disk."""
        progress = self._followers.progress_of(node_id)
        if progress is None or progress.broker_epoch != broker_epoch:
            return
        report = progress.became_durable(node_id, durable_end_offset)
        if report is not None:
            self.follower_reported(report, now_ms=now_ms)

    def replicas_changed(self, replicas: ReplicaSet, *, now_ms: int) -> None:
        """Go on with other replicas, others in sync, or another minimum."""
        self._followers.replicas_changed(
            replicas, leader_end_offset=self._log_end_offset, now_ms=now_ms
        )
        self._advance_high_watermark()

    def next_isr_change(self, *, now_ms: int) -> IsrChange | None:
        """Return the ISR to propose to the cluster; see `Followers.next_isr_change`."""
        change = self._followers.next_isr_change(self._ends(), now_ms=now_ms)
        self._advance_high_watermark()  # A replica may have been too slow to join.
        return change

    def on_isr_change_committed(self, change: IsrChange) -> None:
        """Settle a change that was carried out; the metadata here has it already."""
        self._followers.on_isr_change_committed(change)
        self._advance_high_watermark()

    def on_isr_change_rejected(self, change: IsrChange, *, is_certain: bool, now_ms: int) -> None:
        """Settle a change that was rejected, or got no answer; see `Followers`."""
        self._followers.on_isr_change_rejected(change, is_certain=is_certain, now_ms=now_ms)
        self._advance_high_watermark()

    def next_deadline_ms(self) -> int | None:
        """Return when to call `next_isr_change` even without an event, `None` for never."""
        return self._followers.next_deadline_ms(self._ends())

    def require_enough_in_sync(self, acks: Acks) -> None:
        """Check, before anything is appended, that it can be acknowledged at this level.

        Raises:
            NotEnoughReplicasError: Fewer replicas are in sync than must be.
        """
        if acks is Acks.ALL and not self._followers.replicas.has_enough:
            raise NotEnoughReplicasError(f"{self._how_many_in_sync()}; nothing was appended")

    def why_not_to_wait(self, acks: Acks) -> NotEnoughReplicasAfterAppendError | None:
        """Return why it makes no sense to wait for an acknowledgement; `None` while it does.

        What was appended stays in the log, and is committed if enough are in sync again.
        """
        if acks is not Acks.ALL or self._followers.replicas.has_enough:
            return None
        return NotEnoughReplicasAfterAppendError(
            f"{self._how_many_in_sync()}, since these records were appended; they may be kept or"
            " not"
        )

    def acknowledged_offset(self, acks: Acks) -> int:
        """Return the offset below which `ack_level(acks, durability)` is true of all records.

        May be lower than the high watermark for a while: what was committed in memory is not on
        disk at once when the durability becomes `FSYNC`.
        """
        if acks is not Acks.ALL:
            return self._position()
        return min(self._everywhere(), self._high_watermark)

    def _ends(self) -> LogEnds:
        return LogEnds(self._log_end_offset, self._high_watermark, self.durability)

    def _position(self) -> int:
        if self.durability is Durability.FSYNC:
            return self._durable_end_offset
        return self._log_end_offset

    def _how_many_in_sync(self) -> str:
        replicas = self._followers.replicas
        return (
            f"{len(replicas.in_sync_replicas)} of {len(replicas.assigned_replicas)} replicas are"
            f" in sync, and {replicas.min_insync_replicas} must be (min_insync_replicas)"
        )

    def _everywhere(self) -> int:
        lowest = self._position()
        for member in self._followers.members:
            lowest = min(lowest, member.position(self.durability))
        return lowest

    def _advance_high_watermark(self) -> None:
        """Raise the high watermark to what all members have, while enough are in sync."""
        everywhere = self._everywhere()
        if everywhere > self._high_watermark and self._followers.replicas.has_enough:
            self._high_watermark = everywhere
