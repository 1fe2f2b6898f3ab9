"""Finding offsets by place or by time."""

from bisect import bisect_left
from itertools import accumulate
from typing import final

from broker.partition import Partition
from broker.partitions import Partitions
from logstore.slice import LogSlice
from wire.env import Env
from wire.errors import BrokerError, InvalidRequestError, LogOfflineError, WireFormatError
from wire.fetch import (
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetAt,
    PartitionOffset,
    PartitionOffsetAt,
)
from wire.record_batch import decode_columns, parse_header

_UNCOMPRESSED_MAX = 256 << 20


@final
class OffsetsHandler:
    """Answers where reading could begin."""

    def __init__(self, env: Env, partitions: Partitions) -> None:
        """Look into `partitions`."""
        self._env = env
        self._partitions = partitions

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
        part = partition.log.find_time(timestamp_ms, high_watermark=partition.high_watermark)
        if part is None:
            return PartitionOffset(None)
        log_start_offset = partition.log.log_start_offset
        try:
            return await self._env.offload(
                lambda: _first_at_or_after(part, timestamp_ms, log_start_offset)
            )
        except OSError as error:
            raise LogOfflineError(f"{partition.log.directory}: reading failed: {error}") from error


def _first_at_or_after(part: LogSlice, timestamp_ms: int, log_start_offset: int) -> PartitionOffset:
    """Return the first record of a batch at or after a time; the batch has one."""
    data = part.load().read()
    header = parse_header(data)
    assert header is not None, "checked by load"
    try:
        columns = decode_columns(header, data, uncompressed_length_max=_UNCOMPRESSED_MAX)
    except WireFormatError:
        # A payload that nobody can read is still a place to begin.
        return PartitionOffset(max(header.base_offset, log_start_offset), header.first_timestamp_ms)
    deltas = columns.timestamp_deltas
    if deltas is None:
        return PartitionOffset(max(header.base_offset, log_start_offset), header.first_timestamp_ms)
    highest = list(accumulate(deltas, max))
    number = bisect_left(highest, timestamp_ms - header.first_timestamp_ms)
    delta = columns.offset_deltas[number] if columns.offset_deltas is not None else number
    offset = header.base_offset + delta
    if offset < log_start_offset:
        return PartitionOffset(log_start_offset, header.first_timestamp_ms + deltas[number])
    return PartitionOffset(offset, header.first_timestamp_ms + deltas[number])
