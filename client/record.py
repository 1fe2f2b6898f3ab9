"""Records as consumers get them.

Pure: no clock, no I/O.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TypeVar, final

import msgspec

from client.metadata import TopicPartition
from wire.batch_columns import ALL_COLUMNS, ColumnDecoder
from wire.env import BytesLike
from wire.errors import CorruptRecordError, WireFormatError
from wire.large_messages import is_chunk, is_large
from wire.record_batch import BatchHeader, Columns, Headers

_NO_HEADERS: Headers = ()
Item = TypeVar("Item")


@final
class Record(msgspec.Struct, frozen=True, gc=False):
    """One record and where it stands."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Unix time in milliseconds, as the producer gave it."""
    key: bytes | None
    value: bytes | None
    """`None` marks the key as deleted."""
    headers: Headers
    """Pairs of name and value, in the order in which they were given."""

    @property
    def is_chunk(self) -> bool:
        """Whether it is a part of a large message, which comes after it."""
        return is_chunk(self.headers)

    @property
    def is_large(self) -> bool:
        """Whether it is a large message, whose value is in chunks: see `Client.chunks`."""
        return is_large(self.headers)


@final
class RecordBatch:
    """Records of one partition that follow each other, column by column.

    All columns have `len(batch)` elements. They are decoded when the first of them is asked for,
    which raises `CorruptRecordError` if the payload is not what its header says; the checksums
    were right then, so its producer wrote it so.
    """

    __slots__ = (
        "_columns",
        "_decoder",
        "_header",
        "_payload",
        "_uncompressed_bytes_max",
        "base_offset",
        "high_watermark",
        "next_offset",
        "partition",
        "topic",
    )

    def __init__(
        self,
        at: TopicPartition,
        header: BatchHeader,
        batch: BytesLike,
        *,
        high_watermark: int,
        uncompressed_bytes_max: int,
        decoder: ColumnDecoder = ALL_COLUMNS,
    ) -> None:
        """Take over one whole batch whose checksums are right.

        `decoder` decodes the columns that are likely to be asked for; if another one is, all are.
        """
        self.topic = at.topic
        self.partition = at.partition
        self.base_offset = header.base_offset
        """No record here has a lower offset."""
        self.next_offset = header.next_offset
        """Where to go on (exclusive end). Not every offset below it need have a record."""
        self.high_watermark = high_watermark
        """Up to which offset the partition could be read then (exclusive end)."""
        self._header = header
        self._payload = batch
        self._uncompressed_bytes_max = uncompressed_bytes_max
        self._decoder = decoder
        self._columns: Columns | None = None

    def __len__(self) -> int:
        """Return how many records there are."""
        rows = self._rows()
        return rows.stop - rows.start

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records."""
        return iter(self.records())

    @property
    def has_append_time(self) -> bool:
        """Whether a broker gave all records the time at which it appended them."""
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
        deltas = self._decoded("offset_deltas").offset_deltas
        rows = self._rows()
        if deltas is None:
            return range(
                self._header.base_offset + rows.start, self._header.base_offset + rows.stop
            )
        return [self._header.base_offset + delta for delta in deltas[rows.start : rows.stop]]

    @property
    def first_timestamp_ms(self) -> int:
        """What the timestamps are counted from, Unix time in milliseconds."""
        header = self._header
        return header.max_timestamp_ms if header.has_append_time else header.first_timestamp_ms

    @property
    def timestamp_deltas(self) -> Sequence[int] | None:
        """Milliseconds from there to the timestamp of each record; `None` if they are all 0."""
        if self.has_append_time:
            return None
        deltas = self._decoded("timestamp_deltas").timestamp_deltas
        return None if deltas is None else self._cut(deltas)

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """The timestamp of each record, Unix time in milliseconds."""
        first, deltas = self.first_timestamp_ms, self.timestamp_deltas
        return [first] * len(self) if deltas is None else [first + delta for delta in deltas]

    @property
    def keys(self) -> Sequence[bytes | None]:
        """The key of each record."""
        keys = self._decoded("keys").keys
        return [None] * len(self) if keys is None else self._cut(keys)

    @property
    def values(self) -> Sequence[bytes | None]:
        """The value of each record."""
        values = self._decoded("values").values
        return [None] * len(self) if values is None else self._cut(values)

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers of each record."""
        headers = self._decoded("headers").headers
        return [_NO_HEADERS] * len(self) if headers is None else self._cut(headers)

    def records(self) -> list[Record]:
        """Return the records one by one."""
        return list(
            map(
                Record,
                repeat(self.topic),
                repeat(self.partition),
                self.offsets,
                self.timestamps_ms,
                self.keys,
                self.values,
                self.headers,
            )
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
        )
        part._columns = self._columns
        part.base_offset = base_offset
        part.next_offset = max(base_offset, next_offset)
        return part

    def _rows(self) -> range:
        """Return which rows of the columns belong to this part."""
        header = self._header
        first = self.base_offset - header.base_offset
        end = self.next_offset - header.base_offset
        if header.record_count == header.last_offset_delta + 1:
            return range(first, end)
        deltas = self._decoded("offset_deltas").offset_deltas or range(header.record_count)
        return range(bisect_left(deltas, first), bisect_left(deltas, end))

    def _cut(self, column: Sequence[Item]) -> Sequence[Item]:
        rows = self._rows()
        if len(rows) == len(column):
            return column
        return column[rows.start : rows.stop]

    def _decoded(self, wanted: str) -> Columns:
        """Return columns, `wanted` among them."""
        if wanted not in self._decoder.columns:
            self._decoder, self._columns = ALL_COLUMNS, None
        if self._columns is None:
            try:
                self._columns = self._decoder.decode(
                    self._header,
                    self._payload,
                    uncompressed_length_max=self._uncompressed_bytes_max,
                )
            except WireFormatError as error:
                corrupt = CorruptRecordError(
                    f"{self.topic}/{self.partition}: the batch at offset {self._header.base_offset}"
                    f" cannot be decoded: {error}; to skip it, seek to {self._header.next_offset}",
                    offset=self.base_offset,
                    next_offset=self._header.next_offset,
                )
                corrupt.at = (self.topic, self.partition)
                raise corrupt from error
        return self._columns
