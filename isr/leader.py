"""The leader of one partition: its high watermark, and its acknowledgements.

Pure: no clock, no I/O. `isr.followers` has the state of the other replicas.
"""

from typing import final

from tidelog.isr.durability import Durability
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.followers import Followers, IsrChange, LogEnds
from tidelog.isr.replica_set import ALONE, NO_BROKERS, ReplicaSet
from tidelog.wire.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError
from tidelog.wire.messages.produce import Acks


@final
class PartitionLeader:
    """State of one leader of a partition in one leader epoch.

    Invariant: the high watermark never falls, never passes the leader's own position, and does not
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
        """Start to lead with the present log; without `followers`, alone.

        `high_watermark` is the one that this replica knew as a follower. `None` if unknown; a
        leader without followers then starts with its durable end.
        """
        self.leader_epoch = leader_epoch
        self.durability = durability
        """May change at any time: committed records stay committed."""
        self.epoch_start_offset = log_end_offset
        """Log end offset at the start of the leader epoch."""
        self._log_end_offset = log_end_offset
        self._durable_end_offset = durable_end_offset
        if followers is None:
            followers = Followers(ALONE, NO_BROKERS, epoch_start_offset=log_end_offset, now_ms=0)
        self._followers = followers
        if high_watermark is None:
            high_watermark = 0 if followers.members else durable_end_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        """First offset not known to be on every in-sync replica (exclusive end); to be read only.
        """
        self._advance_high_watermark()

    @property
    def replicas(self) -> ReplicaSet:
        """The committed replica set."""
        return self._followers.replicas

    @property
    def is_all_in_sync(self) -> bool:
        """Whether all replicas are in the ISR."""
        return not self._followers.has_out_of_sync

    @property
    def has_caught_up(self) -> bool:
        """Whether all records that earlier leaders may have acknowledged are committed.

        Until then the high watermark may be lower than that of an earlier leader.
        """
        return self.high_watermark >= self.epoch_start_offset

    def is_hw_limiting(self, node_id: int) -> bool:
        """Return whether the high watermark waits for a follower."""
        return self._followers.is_member(node_id)

    def follower_end_offset(self, node_id: int) -> int | None:
        """Return the log end offset of a follower, `None` before its first report."""
        progress = self._followers.progress_of(node_id)
        if progress is None or progress.broker_epoch is None:
            return None
        return progress.position(Durability.REPLICATED)

    def progressed(self, *, log_end_offset: int, durable_end_offset: int) -> int:
        """Update the ends of the leader's own log; return the high watermark."""
        self._log_end_offset = log_end_offset
        self._durable_end_offset = durable_end_offset
        self._advance_high_watermark()
        return self.high_watermark

    def follower_reported(self, report: FollowerReport, *, now_ms: int) -> None:
        """Apply the report of a follower whose log was compared with this one."""
        assert report.log_end_offset <= self._log_end_offset, "a follower has more than its leader"
        self._followers.reported(report, self._ends(), now_ms=now_ms)
        self._advance_high_watermark()

    def follower_became_durable(
        self, node_id: int, broker_epoch: int, durable_end_offset: int, *, now_ms: int
    ) -> None:
        """Update the durable end offset of a follower."""
        progress = self._followers.progress_of(node_id)
        if progress is None or progress.broker_epoch != broker_epoch:
            return
        report = progress.became_durable(node_id, durable_end_offset)
        if report is not None:
            self.follower_reported(report, now_ms=now_ms)

    def replicas_changed(self, replicas: ReplicaSet, *, now_ms: int) -> None:
        """Apply a new replica set: other replicas, another ISR, or another minimum."""
        self._followers.replicas_changed(
            replicas, leader_end_offset=self._log_end_offset, now_ms=now_ms
        )
        self._advance_high_watermark()

    def next_isr_change(self, *, now_ms: int) -> IsrChange | None:
        """Return the ISR to propose; see `Followers.next_isr_change`."""
        change = self._followers.next_isr_change(self._ends(), now_ms=now_ms)
        self._advance_high_watermark()  # A replica may have been too slow to join.
        return change

    def on_isr_change_committed(self, change: IsrChange) -> None:
        """Settle a committed change; the metadata here has it already."""
        self._followers.on_isr_change_committed(change)
        self._advance_high_watermark()

    def on_isr_change_rejected(self, change: IsrChange, *, is_certain: bool, now_ms: int) -> None:
        """Settle a change that was rejected, or got no answer; see `Followers`."""
        self._followers.on_isr_change_rejected(change, is_certain=is_certain, now_ms=now_ms)
        self._advance_high_watermark()

    def next_deadline_ms(self) -> int | None:
        """Return the time to call `next_isr_change` even without an event, `None` for never."""
        return self._followers.next_deadline_ms(self._ends())

    def require_enough_in_sync(self, acks: Acks) -> None:
        """Check before an append that it can be acknowledged at this level.

        Raises:
            NotEnoughReplicasError: The ISR has fewer replicas than `min_insync_replicas`.
        """
        replicas = self._followers.replicas
        if acks is Acks.ALL and len(replicas.in_sync_replicas) < replicas.min_insync_replicas:
            raise NotEnoughReplicasError(f"{self._how_many_in_sync()}; nothing was appended")

    def why_not_to_wait(self, acks: Acks) -> NotEnoughReplicasAfterAppendError | None:
        """Return the error that ends the wait for an acknowledgement; `None` while it may come.

        The appended records stay in the log, and are committed if the ISR is large enough again.
        """
        if acks is not Acks.ALL or self._followers.replicas.has_enough:
            return None
        return NotEnoughReplicasAfterAppendError(
            f"{self._how_many_in_sync()}, since these records were appended; they may be kept or"
            " not"
        )

    def acknowledged_offset(self, acks: Acks) -> int:
        """Return the offset below which `ack_level(acks, durability)` is true of all records.

        It may be lower than the high watermark for a while: after a change of the durability to
        `FSYNC`, records that were committed in memory are not on disk yet.
        """
        if acks is not Acks.ALL:
            return self._position()
        return min(self._everywhere(), self.high_watermark)

    def _ends(self) -> LogEnds:
        return LogEnds(self._log_end_offset, self.high_watermark, self.durability)

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
        is_fsync = self.durability is Durability.FSYNC
        lowest = self._durable_end_offset if is_fsync else self._log_end_offset
        for member in self._followers.members:
            lowest = min(lowest, member.position(self.durability))
        return lowest

    def _advance_high_watermark(self) -> None:
        """Raise the high watermark to the lowest position of all members, if enough are in sync."""
        everywhere = self._everywhere()
        if everywhere > self.high_watermark:
            replicas = self._followers.replicas
            if len(replicas.in_sync_replicas) >= replicas.min_insync_replicas:
                self.high_watermark = everywhere
