"""Observer of all replicas: the log of each, and the high watermarks of leaders.

As with `tests.simulation.cluster.witness`, functions are wrapped for the duration of a run.
"""

# Reads private state of replicas.
# pyright: reportPrivateUsage=false

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from tests.simulation.mutations.mutation import Mutation, Patch
from tidelog.broker.partitions.partition import AckWaiter, Partition
from tidelog.broker.replication.fetcher import ReplicaFetcher
from tidelog.broker.replication.isr_updater import IsrUpdater, _PendingChange
from tidelog.isr.follower import Restart, Truncate
from tidelog.isr.followers import Followers
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.log import PartitionLog
from tidelog.wire.batch.record_batch import BatchHeader, parse_header
from tidelog.wire.env.env import BytesLike
from tidelog.wire.messages.produce import Acks

_HEADER_CRC = slice(4, 8)
_DURABLE_POSITION = slice(24, 32)


class ReplicaListener(Protocol):
    """Listener for events of replicas."""

    def opened(self, node_id: int, replica: Partition) -> None:
        """Handle a replica's log that a process has opened."""
        ...

    def progressed(self, replica: Partition) -> None:
        """Handle a replica that has taken a role, or has updated its progress."""
        ...

    def cuts(self, replica: Partition, offset: int) -> None:
        """Handle a follower that is about to truncate its log at an offset."""
        ...

    def waits(self, replica: Partition, acks: Acks) -> None:
        """Handle a batch that a leader has appended and that is to be acknowledged."""
        ...

    def asks(
        self,
        node_id: int,
        replica: Partition,
        leader: PartitionLeader,
        *,
        in_sync: Sequence[tuple[int, int]],
    ) -> None:
        """Handle an ISR change that a leader is about to request: nodes and broker epochs."""
        ...


@contextmanager
def watching_replicas(listener: ReplicaListener) -> Generator[None]:
    """Report events of all replicas to `listener` while the block runs."""
    # Wrap the current functions: they may contain mutations.
    begin, lead, progress = Partition.__init__, Partition.lead, Partition.progressed
    wait_for_ack = Partition.wait_for_ack
    begin_repair, submit = ReplicaFetcher._begin_repair, IsrUpdater._submit

    def begin_watched(self: Partition, *args: Any, **named: Any) -> None:  # noqa: ANN401
        begin(self, *args, **named)
        listener.opened(_node_id(self.log), self)

    def lead_watched(
        self: Partition, leader_epoch: int, followers: Followers | None = None
    ) -> None:
        lead(self, leader_epoch, followers)
        listener.progressed(self)

    def progress_watched(self: Partition) -> None:
        progress(self)
        listener.progressed(self)

    def begin_repair_watched(
        self: ReplicaFetcher, partition: Partition, step: Truncate | Restart
    ) -> None:
        listener.cuts(partition, step.offset)
        begin_repair(self, partition, step)

    def wait_for_ack_watched(
        self: Partition, acks: Acks, offset: int, waiter: AckWaiter, *, index: int
    ) -> None:
        listener.waits(self, acks)
        wait_for_ack(self, acks, offset, waiter, index=index)

    async def submit_watched(self: IsrUpdater, changes: list[_PendingChange]) -> None:
        for each in not_overtaken(changes):
            listener.asks(
                self._context.node_id,
                each.partition,
                each.leader,
                in_sync=each.change.in_sync_replicas,
            )
        await submit(self, changes)

    patches: list[Patch] = [
        (Partition, "__init__", begin_watched),
        (Partition, "lead", lead_watched),
        (Partition, "progressed", progress_watched),
        (Partition, "wait_for_ack", wait_for_ack_watched),
        (ReplicaFetcher, "_begin_repair", begin_repair_watched),
        (IsrUpdater, "_submit", submit_watched),
    ]
    with Mutation("replica witness", "an observer is installed", *patches).applied():
        yield


def not_overtaken(changes: Iterable[_PendingChange]) -> list[_PendingChange]:
    """Return the changes that may be granted: an earlier partition epoch will be refused."""
    return [
        each
        for each in changes
        if each.change.partition_epoch == each.leader.replicas.partition_epoch
    ]


def batches_of(log: PartitionLog, start_offset: int) -> list[bytes]:
    """Return all batches from an offset on, without node-specific bytes."""
    found: list[bytes] = []
    offset = start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1 << 20, high_watermark=log.log_end_offset)
        assert part is not None, "the log has more batches"
        data = (part if part.is_ready() else part.load()).read()
        for header, batch in _split(data):
            if header.base_offset >= offset:
                found.append(batch)
                offset = header.next_offset
    return found


def _split(data: BytesLike) -> Generator[tuple[BatchHeader, bytes]]:
    view = memoryview(data)
    while view:
        header = parse_header(view)
        assert header is not None, "a slice holds complete batches"
        batch = bytearray(view[: header.size])
        batch[_HEADER_CRC] = bytes(4)
        batch[_DURABLE_POSITION] = bytes(8)
        yield header, bytes(batch)
        view = view[header.size :]


def _node_id(log: PartitionLog) -> int:
    return int(log._files.disk.root.removeprefix("/node"))
