"""Finding offsets by place or by time."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import final

import trio

from broker.partition import Partition
from broker.partitions import Partitions
from logstore.slice import LogSlice
from wire.env import Env
from wire.errors import (
    BrokerError,
    CorruptRecordError,
    InvalidRequestError,
    LogOfflineError,
    WireFormatError,
)
from wire.fetch import (
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetAt,
    PartitionOffset,
    PartitionOffsetAt,
)
from wire.record_batch import BatchHeader, decode_timestamp_deltas, parse_header

_UNCOMPRESSED_BYTES_MAX = 32 << 20
_RECORDS_MAX = 1 << 20
"""Batches are looked into, one at a time, as far as that takes some ten megabytes of memory: what
is small on the wire may unpack to a thousand times as much."""


@final
class OffsetsHandler:
    """Answers where reading could begin."""

    def __init__(self, env: Env, partitions: Partitions) -> None:
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
                return PartitionOffset(partition.high_watermark)
            if asked.at == OffsetAt.TIMESTAMP:
                return await self._find_time(partition, asked.timestamp_ms)
            raise InvalidRequestError(
                f"{asked.at} is no place; 0 (earliest), 1 (latest) and 2 (timestamp) are"
            )
        except BrokerError as error:
            return PartitionOffset(None, None, error.to_wire())

    async def _find_time(self, partition: Partition, timestamp_ms: int) -> PartitionOffset:
        log = partition.log
        try:
            part = log.find_time(timestamp_ms, high_watermark=partition.high_watermark)
        except LogOfflineError as error:
            partition.note_status(str(error))
            raise
        if part is None:
            return PartitionOffset(None)
        log_start_offset = log.log_start_offset
        try:
            async with self._decoding:
                return await self._env.offload(
                    lambda: _load_and_find(part, timestamp_ms, log_start_offset)
                )
        except CorruptRecordError as error:
            partition.damage_found(error)
            raise
        except OSError as error:
            raise partition.reading_failed(error) from error


def find_first_at_or_after(
    header: BatchHeader, data: bytes, timestamp_ms: int, log_start_offset: int
) -> PartitionOffset:
    """Return the first record at or after a time in a batch whose header says that it has one."""
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


def _load_and_find(part: LogSlice, timestamp_ms: int, log_start_offset: int) -> PartitionOffset:
    data = part.load().read()
    header = parse_header(data)
    assert header is not None, "checked by load"
    return find_first_at_or_after(header, data, timestamp_ms, log_start_offset)


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
