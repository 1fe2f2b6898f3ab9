"""Fixture of a leader with followers, for scenarios."""

from tidelog.isr.durability import Durability
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.followers import Followers, IsrChange
from tidelog.isr.leader import PartitionLeader
from tidelog.isr.replica_set import BrokerStatus, BrokerView, ReplicaSet

LAG_MAX_MS = 10_000


class LeaderFixture:
    """A partition that broker 1 leads, and its events."""

    def __init__(
        self,
        *in_sync: int,
        minimum: int = 2,
        log_end: int = 0,
        durability: Durability = Durability.REPLICATED,
    ) -> None:
        """Lead with replicas on brokers 1, 2 and 3, of which these are in sync."""
        self.now_ms = 0
        self.brokers = {node: BrokerStatus(10 + node, True) for node in (1, 2, 3)}
        self.replicas = ReplicaSet((1, 2, 3), in_sync or (1, 2, 3), 5, minimum)
        view = BrokerView(1, self.brokers.get, LAG_MAX_MS)
        self.log_end = log_end
        self.leader = PartitionLeader(
            leader_epoch=7,
            durability=durability,
            log_end_offset=log_end,
            durable_end_offset=log_end,
            high_watermark=0,
            followers=Followers(self.replicas, view, epoch_start_offset=log_end, now_ms=0),
        )

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark

    def append(self, count: int = 1, *, durable_end: int | None = None) -> None:
        self.log_end += count
        self.leader.progressed(
            log_end_offset=self.log_end,
            durable_end_offset=self.log_end if durable_end is None else durable_end,
        )

    def report(
        self,
        node: int,
        end: int | None = None,
        *,
        epoch: int | None = None,
        durable: int = 0,
        is_whole: bool = True,
    ) -> None:
        """Report that a follower has all records, or those up to `end`."""
        log_end = self.log_end if end is None else end
        report = FollowerReport(node, epoch or 10 + node, log_end, durable, is_whole)
        self.leader.follower_reported(report, now_ms=self.now_ms)

    def append_everywhere(self, count: int) -> None:
        """Append, and report that both followers have all records."""
        self.append(count)
        self.report(2)
        self.report(3)

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    def next_change(self) -> IsrChange | None:
        return self.leader.next_isr_change(now_ms=self.now_ms)

    def propose(self) -> IsrChange:
        """Return the change that the leader proposes now."""
        change = self.next_change()
        assert change is not None
        return change

    def proposed(self) -> list[int] | None:
        """Return the node ids of the proposed ISR."""
        change = self.next_change()
        return None if change is None else [node for node, _ in change.in_sync_replicas]

    def agree(self, *in_sync: int, minimum: int = 2) -> None:
        """Commit another ISR."""
        epoch = self.leader.replicas.partition_epoch + 1
        replicas = ReplicaSet((1, 2, 3), in_sync, epoch, minimum)
        self.leader.replicas_changed(replicas, now_ms=self.now_ms)

    def reject(self, change: IsrChange, *, is_certain: bool = True) -> None:
        self.leader.on_isr_change_rejected(change, is_certain=is_certain, now_ms=self.now_ms)
