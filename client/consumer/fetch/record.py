"""Records and batches as consumers receive them.

Pure: no clock, no I/O.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, TypeVar, cast, final

import msgspec

from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.batch_columns import (
    ALL_COLUMNS,
    DECODED_COUNT_MAX,
    ColumnDecoder,
    PackedColumns,
    check_limits,
)
from tidelog.wire.batch.byte_column import ByteColumn
from tidelog.wire.batch.large_messages import is_chunk, is_large
from tidelog.wire.batch.record_batch import FORMAT_COLUMNAR, BatchHeader, Headers
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import CorruptRecordError, WireFormatError

_NO_HEADERS: Headers = ()
_NOTHING = repeat(None)
Item = TypeVar("Item")


@final
class Record(msgspec.Struct, frozen=True, gc=False):
    """Record with its topic, partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Unix time in milliseconds, as set by the producer."""
    key: bytes | None
    value: bytes | None
    """`None` marks the key as deleted."""
    headers: Headers
    """Pairs of name and value, in the order of the producer."""
    topic_id: bytes = b""
    """Id of the topic: a topic that is deleted and created again has another one."""

    @property
    def is_chunk(self) -> bool:
        """Whether the record is a part of a large message, which comes after it."""
        return is_chunk(self.headers)

    @property
    def is_large(self) -> bool:
        """Whether the record is a large message with its value in chunks: see `Client.chunks`."""
        return is_large(self.headers)


@final
class RecordBatch:
    """Consecutive records of one partition, column by column.

    All columns have `len(batch)` elements. The first access to a column decodes it, and raises
    `CorruptRecordError` if the payload does not match its header; the checksums were right then,
    so its producer wrote it so.
    """

    __slots__ = (
        "_columns",
        "_decoder",
        "_header",
        "_own_rows",
        "_packed",
        "_payload",
        "_uncompressed_bytes_max",
        "base_offset",
        "high_watermark",
        "next_offset",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        tp: TopicPartition,
        header: BatchHeader,
        batch: BytesLike,
        *,
        high_watermark: int,
        uncompressed_bytes_max: int,
        decoder: ColumnDecoder = ALL_COLUMNS,
        topic_id: bytes = b"",
    ) -> None:
        """Wrap one complete batch with valid checksums.

        `decoder` decodes the columns that are likely to be requested, all at once; the first
        access to another column decodes it.

        Raises:
            CorruptRecordError: The batch has more records than any correct one.
        """
        self.topic = tp.topic
        self.partition = tp.partition
        self.topic_id = topic_id
        """Id of the topic: a topic that is deleted and created again has another one."""
        self.base_offset = header.base_offset
        """Lower bound of the offsets of the records."""
        self.next_offset = header.next_offset
        """Next position (exclusive end). Offsets below it may be without a record."""
        self.high_watermark = high_watermark
        """High watermark of the partition at the time of the fetch (exclusive end)."""
        self._header = header
        self._payload = batch
        self._uncompressed_bytes_max = uncompressed_bytes_max
        self._decoder = decoder
        self._columns: dict[str, Sequence[Any] | None] = {}
        self._packed: PackedColumns | None = None
        self._own_rows: range | None = None
        if header.record_count > DECODED_COUNT_MAX:
            try:
                check_limits(header, uncompressed_bytes_max)
            except WireFormatError as error:
                raise self._unreadable(error) from error

    def __len__(self) -> int:
        """Return the number of records."""
        rows = self._rows()
        return rows.stop - rows.start

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records, each made when it is asked for."""
        return self.records_at(self.offsets)

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamps of all records are the broker's append time."""
        return self._header.has_append_time

    @property
    def has_queue_fields(self) -> bool:
        """Whether a record may be a chunk, or a large message; no record is if this is false."""
        return self._header.has_queue_fields

    @property
    def has_only_chunks(self) -> bool:
        """Whether every record is known to be a chunk; there may be some if this is false."""
        return self._header.has_only_chunks

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each record."""
        rows, base_offset = self._rows(), self._header.base_offset
        deltas = self._offset_deltas()
        if deltas is None:
            return range(base_offset + rows.start, base_offset + rows.stop)
        return [base_offset + delta for delta in deltas[rows.start : rows.stop]]

    @property
    def first_timestamp_ms(self) -> int:
        """Base of the timestamps in Unix milliseconds."""
        header = self._header
        return header.max_timestamp_ms if header.has_append_time else header.first_timestamp_ms

    @property
    def timestamp_deltas(self) -> Sequence[int] | None:
        """Milliseconds from `first_timestamp_ms` to each record; `None` if they are all 0."""
        if self.has_append_time:
            return None
        deltas = self._column("timestamp_deltas")
        return None if deltas is None else self._cut(deltas)

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """The timestamp of each record, Unix time in milliseconds."""
        first, deltas = self.first_timestamp_ms, self.timestamp_deltas
        return [first] * len(self) if deltas is None else [first + delta for delta in deltas]

    @property
    def keys(self) -> Sequence[bytes | None]:
        """The key of each record."""
        keys = self._column("keys")
        return [None] * len(self) if keys is None else self._cut(keys)

    @property
    def values(self) -> Sequence[bytes | None]:
        """The value of each record."""
        values = self._column("values")
        return [None] * len(self) if values is None else self._cut(values)

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers of each record."""
        headers = self._column("headers")
        return [_NO_HEADERS] * len(self) if headers is None else self._cut(headers)

    def size_of(self, column: str) -> int | None:
        """Return the approximate bytes of all keys (`"keys"`) or values (`"values"`).

        `None` if no record has one.
        """
        return self._packed_columns().size_of(column)

    def byte_column(self, column: str) -> ByteColumn | None:
        """Return all keys (`"keys"`) or values (`"values"`) as they are stored in the batch.

        `None` if no record has one, or if the batch is of format 1, which stores them one by one.
        For code that builds something else than objects from them; valid as long as the bytes of
        the batch.
        """
        try:
            found = self._packed_columns().byte_column(column)
        except WireFormatError as error:
            raise self._unreadable(error) from error
        return None if found is None else found.part(self._rows())

    def records(self) -> list[Record]:
        """Return the records one by one."""
        return list(self.records_at(self.offsets))

    def records_at(self, offsets: Iterable[int]) -> Iterator[Record]:
        """Iterate over the records; `offsets` is `offsets`, or an iterator over it.

        Columns are decoded by this call, so the iteration does not fail.
        """
        has_one_time = self.timestamp_deltas is None
        keys, values = self._column("keys"), self._column("values")
        headers = self._column("headers")
        return map(
            Record,
            repeat(self.topic),
            repeat(self.partition),
            offsets,
            repeat(self.first_timestamp_ms) if has_one_time else self.timestamps_ms,
            _NOTHING if keys is None else self._cut(keys),
            _NOTHING if values is None else self._cut(values),
            repeat(_NO_HEADERS) if headers is None else self._cut(headers),
            repeat(self.topic_id),
        )

    def between(self, first_offset: int, end_offset: int | None) -> "RecordBatch":
        """Return the part from `first_offset` up to, not including, `end_offset`."""
        base_offset = max(self.base_offset, first_offset)
        next_offset = self.next_offset if end_offset is None else min(self.next_offset, end_offset)
        if (base_offset, next_offset) == (self.base_offset, self.next_offset):
            return self
        part = RecordBatch(
            TopicPartition(self.topic, self.partition),
            self._header,
            self._payload,
            high_watermark=self.high_watermark,
            uncompressed_bytes_max=self._uncompressed_bytes_max,
            decoder=self._decoder,
            topic_id=self.topic_id,
        )
        part._columns, part._packed = self._columns, self._packed
        part.base_offset = base_offset
        part.next_offset = max(base_offset, next_offset)
        return part

    def first(self, count: int) -> "RecordBatch":
        """Return the part with the first `count` records, at least 1; all if there are fewer.

        Raises:
            CorruptRecordError: The batch has more records, and its offsets cannot be decoded.
        """
        if self._header.record_count <= count or len(self) <= count:
            return self
        row, deltas = self._rows()[count], self._offset_deltas()
        delta = row if deltas is None else deltas[row]
        return self.between(self.base_offset, self._header.base_offset + delta)

    def _rows(self) -> range:
        """Return the rows of the columns that belong to this part."""
        if self._own_rows is None:
            self._own_rows = self._find_rows()
        return self._own_rows

    def _find_rows(self) -> range:
        first = self.base_offset - self._header.base_offset
        end = self.next_offset - self._header.base_offset
        deltas = self._offset_deltas()
        if deltas is None:
            return range(first, end)
        return range(bisect_left(deltas, first), bisect_left(deltas, end))

    def _offset_deltas(self) -> Sequence[int] | None:
        """Return the offset of each row, less that of the batch; `None` if it is the row itself."""
        count = self._header.record_count
        if count == self._header.last_offset_delta + 1:
            return None  # As many records as offsets: there is nothing to look up.
        return self._column("offset_deltas") or range(count)

    def _cut(self, column: Sequence[Item]) -> Sequence[Item]:
        rows = self._rows()
        if len(rows) == len(column):
            return column
        if isinstance(column, ByteColumn):
            return cast("Sequence[Item]", column.part(rows))
        return column[rows.start : rows.stop]

    def _column(self, name: str) -> Sequence[Any] | None:
        """Return a column of the whole batch."""
        columns = self._columns
        if name not in columns:
            try:
                if self._header.format_version == FORMAT_COLUMNAR:
                    columns[name] = self._stored_column(name)
                elif name in self._decoder.columns:
                    found = self._decoder.decode(
                        self._header,
                        self._payload,
                        uncompressed_length_max=self._uncompressed_bytes_max,
                    )
                    for each in self._decoder.columns:
                        columns[each] = getattr(found, each)
                else:
                    columns[name] = self._packed_columns().column(name)
            except WireFormatError as error:
                raise self._unreadable(error) from error
        return columns[name]

    def _stored_column(self, name: str) -> Sequence[Any] | None:
        """Return a column of a batch of format 2, which needs no objects for keys and values."""
        column = self._packed_columns().column(name)
        if isinstance(column, array) and name in self._decoder.columns:
            return cast("list[int]", column.tolist())
        return column

    def _packed_columns(self) -> PackedColumns:
        if self._packed is None:
            try:
                limit = self._uncompressed_bytes_max
                self._packed = PackedColumns(
                    self._header, self._payload, uncompressed_length_max=limit
                )
            except WireFormatError as error:
                raise self._unreadable(error) from error
        return self._packed

    def _unreadable(self, error: WireFormatError) -> CorruptRecordError:
        """Return the error of a payload that does not match its header."""
        at = TopicPartition(self.topic, self.partition)
        return unreadable(at, self._header, error, offset=self.base_offset)


def unreadable(
    tp: TopicPartition, header: BatchHeader, error: WireFormatError, *, offset: int
) -> CorruptRecordError:
    """Return the error of a batch whose payload does not match its header.

    Args:
        tp: Topic and partition.
        header: Header of the batch.
        error: Error of the decoder.
        offset: First wanted offset.
    """
    corrupt = CorruptRecordError(
        f"{tp.topic}/{tp.partition}: the batch at offset {header.base_offset}"
        f" cannot be decoded: {error}; to skip it, seek to {header.next_offset}",
        offset=offset,
        next_offset=header.next_offset,
    )
    corrupt.at = (tp.topic, tp.partition)
    return corrupt
