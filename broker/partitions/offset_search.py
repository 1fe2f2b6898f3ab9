"""Search for records of partitions by offset or by time."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar, final

import trio

from tidelog.broker.encryption.partition_cipher import PartitionCipher
from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.batch.batch_columns import ColumnDecoder, decode_timestamp_deltas
from tidelog.wire.batch.record_batch import BatchHeader, parse_header
from tidelog.wire.env.env import BytesLike, Env
from tidelog.wire.errors import (
    CorruptRecordError,
    InvalidRequestError,
    LogOfflineError,
    WireFormatError,
)
from tidelog.wire.messages.offset_ranges import OffsetQuery, PartitionOffsets

Found = TypeVar("Found")

_UNCOMPRESSED_BYTES_MAX = 32 << 20
_TIMES = ColumnDecoder(["timestamp_deltas"])
_KEYS = ColumnDecoder(["keys"])
_RECORDS_MAX = 1 << 20
"""Maximum number of records in a batch that is decoded. Batches are decoded one at a time, as far
as that takes some ten megabytes of memory: a batch that is small on the wire may unpack to a
thousand times its size."""


class FoundRecord(NamedTuple):
    """The record that a search found."""

    offset: int | None
    timestamp_ms: int | None = None


_NOTHING: Final = FoundRecord(None)


def partition_offsets(partition: Partition, found: FoundRecord = _NOTHING) -> PartitionOffsets:
    """Return the offsets of a partition now, and the result of a search in it."""
    leader, log = partition.leader, partition.log
    return PartitionOffsets(
        log.log_start_offset,
        partition.high_watermark,
        log.log_end_offset,
        leader is not None and leader.has_caught_up,
        found.offset,
        found.timestamp_ms,
    )


@final
class OffsetSearch:
    """Finds records of partitions that this broker leads."""

    def __init__(self, env: Env) -> None:
        """Read in threads of `env`."""
        self._env = env
        self._decoding = trio.Lock()

    async def offsets_of(self, partition: Partition, query: OffsetQuery) -> PartitionOffsets:
        """Return the offsets of a partition, and the record of a search.

        Raises:
            InvalidRequestError: The query searches for two records.
            CorruptRecordError: The record at a time is damaged.
            KeyUnavailableError: The data key cannot be used here.
            LogOfflineError: The disk failed.
        """
        at_offset, at_timestamp_ms = query.at_offset, query.at_timestamp_ms
        found = _NOTHING
        if at_offset is not None:
            if at_timestamp_ms is not None:
                raise InvalidRequestError("at_offset and at_timestamp_ms exclude each other")
            # The partition records the damage, and its offsets are still returned.
            with suppress(CorruptRecordError):
                found = FoundRecord(None, await self.time_at(partition, at_offset))
        elif at_timestamp_ms is not None:
            found = await self.find_time(partition, at_timestamp_ms)
        return partition_offsets(partition, found)

    async def find_time(self, partition: Partition, timestamp_ms: int) -> FoundRecord:
        """Return the first readable record at or after a time.

        Raises:
            CorruptRecordError: The record is damaged.
            KeyUnavailableError: The data key cannot be used here.
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
            return _NOTHING
        log_start_offset = log.log_start_offset
        return await self._look_into(
            partition,
            lambda: _load_and_find(part, timestamp_ms, log_start_offset, cipher=partition.cipher),
        )

    async def time_at(self, partition: Partition, offset: int) -> int | None:
        """Return the timestamp of the first readable record at or after an offset, if any.

        Raises:
            CorruptRecordError: The record is damaged.
            KeyUnavailableError: The data key cannot be used here.
            LogOfflineError: The disk failed.
        """
        return await self._tell_of(partition, offset, time_of)

    async def key_at(self, partition: Partition, offset: int) -> bytes | None:
        """Return the key of a readable record; `None` if it has none, or there is no record.

        Raises:
            CorruptRecordError: The record is damaged.
            KeyUnavailableError: The data key cannot be used here.
            LogOfflineError: The disk failed.
        """
        if offset < partition.log.log_start_offset:
            return None
        return await self._tell_of(partition, offset, key_of)

    async def _tell_of(
        self,
        partition: Partition,
        offset: int,
        tell: Callable[[BatchHeader, BytesLike, int], Found],
    ) -> Found | None:
        """Return what `tell` finds in the batch with the first readable record at an offset."""
        log = partition.log
        first = max(offset, log.log_start_offset)
        if first >= partition.high_watermark:
            return None
        try:
            part = log.read(first, max_bytes=1, high_watermark=partition.high_watermark)
        except LogOfflineError as error:
            partition.note_status(str(error))
            raise
        if part is None:
            return None
        return await self._look_into(
            partition, lambda: _load_and_tell(part, first, tell, cipher=partition.cipher)
        )

    async def _look_into(self, partition: Partition, look: Callable[[], Found]) -> Found:
        try:
            async with self._decoding:
                return await self._env.run_in_thread(look)
        except CorruptRecordError as error:
            partition.damage_found(error)
            raise
        except OSError as error:
            raise partition.reading_failed(error) from error


def find_first_at_or_after(
    header: BatchHeader, data: BytesLike, timestamp_ms: int, *, log_start_offset: int
) -> FoundRecord:
    """Return the first record at or after a time in a batch whose header announces one."""
    if header.is_sparse:
        return _find_among_left(header, data, timestamp_ms, log_start_offset=log_start_offset)
    first = max(log_start_offset - header.base_offset, 0)
    deltas = _timestamp_deltas(header, data)
    if deltas is None:
        return FoundRecord(header.base_offset + first, header.first_timestamp_ms)
    highest = list(accumulate(deltas[first:], max))
    number = first + bisect_left(highest, timestamp_ms - header.first_timestamp_ms)
    if number == len(deltas):
        # The header is wrong, or the record was deleted: an earlier record is the safe result.
        number = first
    return FoundRecord(header.base_offset + number, header.first_timestamp_ms + deltas[number])


def time_of(header: BatchHeader, data: BytesLike, offset: int) -> int:
    """Return the timestamp of the first record of a batch at or after an offset within it."""
    if header.is_sparse:
        return next(_left_from(header, data, offset), (offset, header.max_timestamp_ms))[1]
    deltas = _timestamp_deltas(header, data)
    if deltas is None:
        return header.first_timestamp_ms
    number = min(max(offset - header.base_offset, 0), len(deltas) - 1)
    return header.first_timestamp_ms + deltas[number]


def key_of(header: BatchHeader, data: BytesLike, offset: int) -> bytes | None:
    """Return the key of the record at an offset; `None` if it has none or cannot be read."""
    try:
        columns = _KEYS.decode(header, data, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    except WireFormatError:
        return None
    deltas = columns.offset_deltas or range(columns.record_count)
    delta = offset - header.base_offset
    if columns.keys is None or delta not in deltas:
        return None
    return columns.keys[deltas.index(delta)]


def _find_among_left(
    header: BatchHeader, data: BytesLike, timestamp_ms: int, *, log_start_offset: int
) -> FoundRecord:
    first = max(log_start_offset, header.base_offset)
    left = list(_left_from(header, data, first))
    # The header may count a record that was deleted: an earlier record is the safe result.
    earliest = left[0] if left else (first, header.first_timestamp_ms)
    return FoundRecord(*next((each for each in left if each[1] >= timestamp_ms), earliest))


def _left_from(header: BatchHeader, data: BytesLike, offset: int) -> Iterator[tuple[int, int]]:
    """Yield offsets and timestamps of a compacted batch's records, from an offset on.

    An unreadable payload yields nothing.
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


def _load_and_tell(
    part: LogSlice,
    offset: int,
    tell: Callable[[BatchHeader, BytesLike, int], Found],
    *,
    cipher: PartitionCipher | None,
) -> Found:
    header, data = _first_batch(part, cipher)
    return tell(header, data, offset)


def _load_and_find(
    part: LogSlice, timestamp_ms: int, log_start_offset: int, *, cipher: PartitionCipher | None
) -> FoundRecord:
    header, data = _first_batch(part, cipher)
    return find_first_at_or_after(header, data, timestamp_ms, log_start_offset=log_start_offset)


def _first_batch(part: LogSlice, cipher: PartitionCipher | None) -> tuple[BatchHeader, BytesLike]:
    data = part.load().read()
    header = parse_header(data)
    assert header is not None, "`load` has checked it"
    batch = data[: header.size]
    return (header, batch) if cipher is None else cipher.open(header, batch)


def _timestamp_deltas(header: BatchHeader, data: BytesLike) -> Sequence[int] | None:
    """Return the timestamps of the records, `None` when all are equal or cannot be read.

    If the payload cannot be read, or unpacks to too much, a search still begins at its batch: at
    most one batch too early.
    """
    if header.record_count > _RECORDS_MAX:
        return None
    try:
        return decode_timestamp_deltas(
            header, data, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX
        )
    except WireFormatError:
        return None
