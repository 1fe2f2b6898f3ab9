"""Finding offsets by place or by time."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol, TypeVar, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.batch.batch_columns import ColumnDecoder, decode_timestamp_deltas
from tidelog.wire.batch.record_batch import BatchHeader, parse_header
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    InvalidRequestError,
    LeaderNotAvailableError,
    LogOfflineError,
    WireFormatError,
)
from tidelog.wire.messages.fetch import (
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetAt,
    PartitionOffset,
    PartitionOffsetAt,
)

Found = TypeVar("Found")

_UNCOMPRESSED_BYTES_MAX = 32 << 20
_TIMES = ColumnDecoder(["timestamp_deltas"])
_RECORDS_MAX = 1 << 20
"""Batches are looked into, one at a time, as far as that takes some ten megabytes of memory: what
is small on the wire may unpack to a thousand times as much."""


class LedPartitions(Protocol):
    """Finds partitions that this broker leads."""

    def find(self, topic_id: bytes, number: int) -> Partition:
        """Return one.

        Raises:
            BrokerError: This broker does not lead it.
        """
        ...


@final
class OffsetsHandler:
    """Answers where reading could begin."""

    def __init__(self, env: Env, partitions: LedPartitions) -> None:
        """Look into `partitions`."""
        self._env = env
        self._partitions = partitions
        self._decoding = trio.Lock()

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsReply:
        """Answer every question on its own."""
        return ListOffsetsReply([await self._find(asked) for asked in request.partitions])

    async def _find(self, asked: PartitionOffsetAt) -> PartitionOffset:
        try:
            partition = self._partitions.find(asked.topic_id, asked.partition)
            if asked.at == OffsetAt.EARLIEST:
                return PartitionOffset(partition.log.log_start_offset)
            if asked.at == OffsetAt.LATEST:
                return PartitionOffset(_latest(partition))
            if asked.at == OffsetAt.TIMESTAMP:
                return await self.find_time(partition, asked.timestamp_ms)
            raise InvalidRequestError(
                f"{asked.at} is no place; 0 (earliest), 1 (latest) and 2 (timestamp) are"
            )
        except BrokerError as error:
            return PartitionOffset(None, None, error.to_wire())

    async def find_time(self, partition: Partition, timestamp_ms: int) -> PartitionOffset:
        """Return the first readable record at or after a time.

        Raises:
            CorruptRecordError: It is damaged.
            LogOfflineError: The disk failed.
        """
        log = partition.log
        try:
            part = log.find_time(timestamp_ms, high_watermark=partition.high_watermark)
        except CorruptRecordError as error:
            partition.damage_found(error)
            raise
        except LogOfflineError as error:
            partition.note_status(str(error))
            raise
        if part is None:
            return PartitionOffset(None)
        log_start_offset = log.log_start_offset
        return await self._look_into(
            partition, lambda: _load_and_find(part, timestamp_ms, log_start_offset)
        )

    async def time_at(self, partition: Partition, offset: int) -> int | None:
        """Return the timestamp of the first readable record at or after an offset, if any.

        Raises:
            CorruptRecordError: It is damaged.
            LogOfflineError: The disk failed.
        """
        log = partition.log
        first = max(offset, log.log_start_offset)
        if first >= partition.high_watermark:
            return None
        try:
            part = log.read(first, bytes_max=1, high_watermark=partition.high_watermark)
        except LogOfflineError as error:
            partition.note_status(str(error))
            raise
        if part is None:
            return None
        return await self._look_into(partition, lambda: _load_and_tell(part, first))

    async def _look_into(self, partition: Partition, look: Callable[[], Found]) -> Found:
        try:
            async with self._decoding:
                return await self._env.offload(look)
        except CorruptRecordError as error:
            partition.damage_found(error)
            raise
        except OSError as error:
            raise partition.reading_failed(error) from error


def _latest(partition: Partition) -> int:
    """Return the high watermark, when it is as high at least as at any leader before.

    Raises:
        LeaderNotAvailableError: It is not yet: a new leader hears from its followers first.
    """
    leader = partition.leader
    assert leader is not None, "it was found, so it is led here"
    if not leader.has_caught_up:
        raise LeaderNotAvailableError(
            "the partition has a new leader, which does not know yet how much is committed"
        )
    return leader.high_watermark


def find_first_at_or_after(
    header: BatchHeader, data: bytes, timestamp_ms: int, *, log_start_offset: int
) -> PartitionOffset:
    """Return the first record at or after a time in a batch whose header says that it has one."""
    if header.is_sparse:
        return _find_among_left(header, data, timestamp_ms, log_start_offset=log_start_offset)
    first = max(log_start_offset - header.base_offset, 0)
    deltas = _timestamp_deltas(header, data)
    if deltas is None:
        return PartitionOffset(header.base_offset + first, header.first_timestamp_ms)
    highest = list(accumulate(deltas[first:], max))
    number = first + bisect_left(highest, timestamp_ms - header.first_timestamp_ms)
    if number == len(deltas):
        # The header was wrong, or the record it speaks of was deleted: rather too early.
        number = first
    return PartitionOffset(header.base_offset + number, header.first_timestamp_ms + deltas[number])


def time_of(header: BatchHeader, data: bytes, offset: int) -> int:
    """Return the timestamp of the first record of a batch at or after an offset within it."""
    if header.is_sparse:
        return next(_left_from(header, data, offset), (offset, header.max_timestamp_ms))[1]
    deltas = _timestamp_deltas(header, data)
    if deltas is None:
        return header.first_timestamp_ms
    number = min(max(offset - header.base_offset, 0), len(deltas) - 1)
    return header.first_timestamp_ms + deltas[number]


def _find_among_left(
    header: BatchHeader, data: bytes, timestamp_ms: int, *, log_start_offset: int
) -> PartitionOffset:
    first = max(log_start_offset, header.base_offset)
    left = list(_left_from(header, data, first))
    # The header may speak of a record that was deleted: rather too early.
    earliest = left[0] if left else (first, header.first_timestamp_ms)
    return PartitionOffset(*next((each for each in left if each[1] >= timestamp_ms), earliest))


def _left_from(header: BatchHeader, data: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets and timestamps of what compaction left of a batch, from an offset on.

    Nothing of a payload that nobody can read.
    """
    try:
        columns = _TIMES.decode(header, data, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    except WireFormatError:
        return
    times = columns.timestamp_deltas
    for place, delta in enumerate(columns.offset_deltas or ()):
        if header.base_offset + delta >= offset:
            time_ms = header.first_timestamp_ms + (times[place] if times else 0)
            yield header.base_offset + delta, time_ms


def _load_and_tell(part: LogSlice, offset: int) -> int:
    data = part.load().read()
    header = parse_header(data)
    assert header is not None, "checked by load"
    return time_of(header, data[: header.size], offset)


def _load_and_find(part: LogSlice, timestamp_ms: int, log_start_offset: int) -> PartitionOffset:
    data = part.load().read()
    header = parse_header(data)
    assert header is not None, "checked by load"
    return find_first_at_or_after(header, data, timestamp_ms, log_start_offset=log_start_offset)


def _timestamp_deltas(header: BatchHeader, data: bytes) -> Sequence[int] | None:
    """Return the timestamps of the records, `None` when all are the same or cannot be read.

    The start of a payload that nobody can read, or that unpacks to too much, is still a place to
    begin: at most one batch too early.
    """
    if header.record_count > _RECORDS_MAX:
        return None
    try:
        return decode_timestamp_deltas(
            header, data, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX
        )
    except WireFormatError:
        return None
