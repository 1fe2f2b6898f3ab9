"""Where the batches are that were looked at last: most are handed out soon after.

Plain calls. What is known is thrown away when the replica is led anew, or not led here: only a
leader's log is never cut.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, final

from tidelog.broker.partitions.partition import Partition
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.disk.disk import File
from tidelog.logstore.log import LogStatus
from tidelog.queue_layer.queue_partition import QueuePartition

_COUNT_MAX: Final = 256


class Batch(NamedTuple):
    """Where a whole batch is."""

    base_offset: int
    next_offset: int
    file: File
    position: int
    size: int


@final
class BatchCache:
    """Committed batches of one partition, as they lie in its files.

    Invariant: they ascend. All of them were looked at while `_leader` led.
    """

    __slots__ = ("_batches", "_leader")

    def __init__(self) -> None:
        """Know none."""
        self._batches: list[Batch] = []
        self._leader: PartitionLeader | None = None

    def add(self, partition: Partition, batches: Iterable[Batch]) -> None:
        """Take note of batches that were looked at, ascending."""
        if not self._is_valid(partition):
            self._batches = []
            self._leader = partition.leader
        if self._leader is None:
            return
        known = self._batches
        for batch in batches:
            if known and batch.base_offset < known[-1].next_offset:
                del known[_first_from(known, batch.base_offset) :]
            known.append(batch)
        if len(self._batches) > 2 * _COUNT_MAX:
            del self._batches[:-_COUNT_MAX]

    def find(self, partition: Partition, first: int, end: int, *, max_bytes: int) -> list[Batch]:
        """Return batches from the one that holds `first` on, as far as they are known.

        They lie in one file, one behind the other. Nothing if that one is not known. All begin
        below `end`, and no more are returned than have `max_bytes`, but at least one.
        """
        if not self._is_valid(partition):
            return []
        batches = self._batches
        place = _first_from(batches, first + 1) - 1
        if place < 0 or batches[place].next_offset <= first:
            return []
        found: list[Batch] = []
        position = batches[place].position
        for batch in batches[place : _first_from(batches, end)]:
            is_behind = batch.position == position and batch.file is batches[place].file
            if found and not (is_behind and batch.size <= max_bytes):
                break
            found.append(batch)
            max_bytes -= batch.size
            position += batch.size
        return found

    def _is_valid(self, partition: Partition) -> bool:
        """Return whether what is known still holds."""
        log = partition.log
        return (
            self._leader is not None
            and partition.leader is self._leader
            and log.status is LogStatus.ONLINE
            and (not self._batches or log.log_start_offset <= self._batches[0].base_offset)
        )


def _first_from(batches: list[Batch], offset: int) -> int:
    """Return the place of the first batch that begins at an offset or above."""
    below: Any = (offset,)  # Less than every batch that begins there: base offsets come first.
    return bisect_left(batches, below)


@final
class EmptyCache:
    """What was so when somebody looked in vain.

    Of one partition: many receives wait at several ones, and most of what happens to one of these
    gives nothing to those who wait at the others.
    """

    __slots__ = ("_high_watermark", "_until_ms", "_version")

    def __init__(self) -> None:
        """Know nothing."""
        self._version = -1
        self._high_watermark = 0
        self._until_ms: int | None = None

    def set_empty(self, core: QueuePartition, high_watermark: int) -> None:
        """Take note that nobody can be given anything, with all records known below an offset."""
        self._version = core.state.version
        self._high_watermark = high_watermark
        self._until_ms = core.state.next_deadline_ms

    def invalidate(self) -> None:
        """Take note that it may be otherwise, whatever was so."""
        self._version = -1

    def is_empty(self, core: QueuePartition, high_watermark: int, now_ms: int) -> bool:
        """Return whether it is still so, without a suspect."""
        return (
            core.state.version == self._version
            and high_watermark == self._high_watermark
            and (self._until_ms is None or now_ms < self._until_ms)
        )
