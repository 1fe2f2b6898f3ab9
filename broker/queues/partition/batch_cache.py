"""Cache of the places of recently read batches: most are received soon after.

Plain calls. The cache is dropped when the replica gets another leader epoch, or is not led here:
only a leader's log is never truncated.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, final

import msgspec

from tidelog.broker.partitions.partition import Partition
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.disk.disk import File
from tidelog.queue_layer.queue_partition import QueuePartition

_COUNT_MAX: Final = 256
_base_offset: Final = attrgetter("base_offset")


class Batch(msgspec.Struct, frozen=True):
    """Place of a whole batch."""

    base_offset: int
    next_offset: int
    file: File
    position: int
    size: int


@final
class BatchCache:
    """Committed batches of one partition, with their places in its files.

    Invariant: batches ascend. All of them were read while `_leader` led.
    """

    __slots__ = ("_batches", "_leader")

    def __init__(self) -> None:
        """Start without batches."""
        self._batches: list[Batch] = []
        self._leader: PartitionLeader | None = None

    def add(self, partition: Partition, batches: Iterable[Batch]) -> None:
        """Add batches that were read, ascending."""
        if not self._is_valid(partition):
            self._batches = []
            self._leader = partition.leader
        if self._leader is None:
            return
        known = self._batches
        for batch in batches:
            if known and batch.base_offset < known[-1].next_offset:
                del known[bisect_left(known, batch.base_offset, key=_base_offset) :]
            known.append(batch)
        if len(self._batches) > 2 * _COUNT_MAX:
            del self._batches[:-_COUNT_MAX]

    def last(self, partition: Partition) -> Batch | None:
        """Return the last known batch, `None` without one."""
        return self._batches[-1] if self._batches and self._is_valid(partition) else None

    def find(self, partition: Partition, first: int, end: int, *, max_bytes: int) -> list[Batch]:
        """Return the known batches from the one that holds `first` on.

        They are contiguous in one file. Empty if that batch is not known. All begin below `end`,
        and they have at most `max_bytes`, but there is at least one.
        """
        if not self._is_valid(partition):
            return []
        batches = self._batches
        place = bisect_right(batches, first, key=_base_offset) - 1
        if place < 0 or batches[place].next_offset <= first:
            return []
        batch = batches[place]
        found = [batch]
        while batch.next_offset < end and place + 1 < len(batches):
            place += 1
            behind, batch = batch.position + batch.size, batches[place]
            max_bytes -= found[-1].size
            is_behind = batch.position == behind and batch.file is found[0].file
            if batch.base_offset >= end or not is_behind or batch.size > max_bytes:
                break
            found.append(batch)
        return found

    def _is_valid(self, partition: Partition) -> bool:
        """Return whether the cached places are still valid."""
        log = partition.log
        return (
            self._leader is not None
            and partition.leader is self._leader
            and log.is_whole
            and (not self._batches or log.log_start_offset <= self._batches[0].base_offset)
        )


@final
class EmptyCache:
    """State of a partition at which a receive found no messages.

    Many receives wait at several partitions, and most events of one partition have no messages for
    the receives that wait at others.
    """

    __slots__ = ("_high_watermark", "_until_ms", "_version")

    def __init__(self) -> None:
        """Start without a state."""
        self._version = -1
        self._high_watermark = 0
        self._until_ms: int | None = None

    def set_empty(self, core: QueuePartition, high_watermark: int) -> None:
        """Record that no message can be received, with all records known below an offset."""
        self._version = core.state.version
        self._high_watermark = high_watermark
        self._until_ms = core.state.next_deadline_ms

    def invalidate(self) -> None:
        """Record that the state may have changed."""
        self._version = -1

    def is_empty(self, core: QueuePartition, high_watermark: int, now_ms: int) -> bool:
        """Return whether the state is certainly unchanged."""
        return (
            core.state.version == self._version
            and high_watermark == self._high_watermark
            and (self._until_ms is None or now_ms < self._until_ms)
        )
