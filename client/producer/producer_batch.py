"""Record batch of a producer, from the application to the broker.

Pure: no clock, no I/O. A batch is filled column by column, closed, encoded once, and sent as the
same bytes until it is settled: acknowledged or failed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar, cast, final

from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FORMAT_VERSION,
    Columns,
    Headers,
    encode_batch,
    parse_header,
)
from tidelog.wire.messages.produce import AckLevel

RECORD_OVERHEAD_BYTES = 40
"""Bytes that Python needs for a bytes object in a list, in addition to its contents."""

_NO_HEADERS: Headers = ()
_Item = TypeVar("_Item")


class Signal(Protocol):
    """Event that wakes the callers waiting for a batch, such as `trio.Event`."""

    def set(self) -> object:
        """Wake them."""
        ...


_Signal = TypeVar("_Signal", bound=Signal)


class Fate(NamedTuple):
    """Outcome of consecutive records of a batch."""

    start: int
    """Place of the first record in the batch."""
    end: int
    """Place after the last record."""
    failure: Exception | None
    offset: int | None
    """Offset of the first record, `None` when it is unknown."""
    ack_level: AckLevel | None
    topic_id: bytes = b""
    """Id of the topic to which the records were sent last; empty before."""


@final
class ProducerBatch:
    """Records of one partition, in columns, and their outcome.

    The columns of keys, headers and timestamps appear with the first record that needs them and
    are padded up to the values only when the next such record comes, or at encoding. So the
    fastest append, of a value alone, touches nothing but `append_value` and `room`.

    Invariant: `held_bytes` is the batch's reservation of the producer's buffer; `room` is the part
    of it that no record uses.
    """

    __slots__ = (
        "ack_level",
        "append_value",
        "attempt_count",
        "awaited_count",
        "base_offset",
        "base_sequence",
        "deadline",
        "encoded",
        "failure",
        "has_sequence",
        "headers",
        "held_bytes",
        "is_ambiguous",
        "is_settled",
        "key_lengths",
        "keys",
        "last_error",
        "linger_until",
        "order",
        "parent",
        "parts",
        "record_count",
        "room",
        "signals",
        "timestamp_ms",
        "timestamps",
        "topic_id",
        "value_lengths",
        "values",
        "waiting_count",
    )

    keys: list[bytes | None] | None
    headers: list[Headers] | None
    timestamps: list[int] | None

    def __init__(
        self, order: int, *, timestamp_ms: int, linger_until: float, deadline: float
    ) -> None:
        """Open an empty batch without room."""
        self.order = order
        """Rises with every batch of the producer, at least by the number of its records."""
        self.parent: ProducerBatch | None = None
        """Batch that this one was split from."""
        self.parts: list[ProducerBatch] = []
        """Parts of a batch that was split; it is settled when all of them are."""
        self.timestamp_ms = timestamp_ms
        """Timestamp of records without one; see `mark_time`."""
        self.linger_until = linger_until
        self.deadline = deadline
        self.held_bytes = 0
        self.room = 0
        self.values: list[bytes | None] = []
        self.append_value: Callable[[bytes | None], None] = self.values.append
        self.keys = self.headers = self.timestamps = None
        self.key_lengths = self.value_lengths = b""
        """Bytes of each key and value, if all records came with them."""
        self.record_count = 0
        """Set when the batch is encoded; until then the length of `values` counts."""
        self.encoded = bytearray()
        self.base_sequence = self.attempt_count = 0
        self.has_sequence = False
        """Whether the broker expects exactly this batch at `base_sequence`."""
        self.is_ambiguous = False
        """Whether an attempt with an unknown outcome may have appended the batch."""
        self.last_error: Exception | None = None
        """Error of the last attempt that is to be repeated."""
        self.signals: dict[type[Signal], Signal] = {}
        """Set when the batch is settled: one of each kind, if callers wait for it."""
        self.waiting_count = 0
        """Number of tasks that wait for the batch to be settled."""
        self.awaited_count = 0
        """Number of records with a waiting caller; failures of the rest go to `take_failure`."""
        self.is_settled = False
        self.failure: Exception | None = None
        """Error of a settled batch that was not acknowledged."""
        self.base_offset: int | None = None
        self.ack_level: AckLevel | None = None
        self.topic_id = b""

    @property
    def count(self) -> int:
        """Number of records in the batch."""
        return self.record_count or len(self.values)

    def append_keyed(self, key: bytes, value: bytes | None) -> None:
        """Append a record with a key, whose bytes were taken from `room` before."""
        keys = self.keys
        if keys is None:
            keys = self.keys = []
        missing = len(self.values) - len(keys)
        if missing:
            keys.extend([None] * missing)
        keys.append(key)
        self.append_value(value)

    def append_headers(self, headers: Headers) -> None:
        """Set the headers of the next record."""
        self.headers = _padded(self.headers, len(self.values), _NO_HEADERS)
        self.headers.append(headers)

    def append_timestamp(self, timestamp_ms: int) -> None:
        """Set the timestamp of the next record."""
        self.timestamps = _padded(self.timestamps, len(self.values), self.timestamp_ms)
        self.timestamps.append(timestamp_ms)

    def extend(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Headers = _NO_HEADERS,
        *,
        value_lengths: bytes = b"",
        key_lengths: bytes = b"",
    ) -> None:
        """Append records with values, perhaps keys, and the same headers.

        Args:
            values: Values.
            keys: Keys; `None` if no record has one.
            headers: Headers of each record.
            value_lengths: Bytes of each value, if they are known; at most 255.
            key_lengths: Bytes of each key, as for values.
        """
        if headers:
            self.headers = _padded(self.headers, len(self.values), _NO_HEADERS)
            self.headers.extend([headers] * len(values))
        if keys is not None:
            self.keys = _padded(self.keys, len(self.values), None)
            self.keys.extend(keys)
        self.values.extend(values)
        self.value_lengths += value_lengths
        self.key_lengths += key_lengths

    def mark_time(self, now_ms: int) -> None:
        """Set the timestamp of records appended from now on."""
        if now_ms != self.timestamp_ms:
            self.timestamps = _padded(self.timestamps, len(self.values), self.timestamp_ms)
            self.timestamp_ms = now_ms

    def encode(
        self,
        codec: Codec,
        *,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        format_version: int = FORMAT_VERSION,
    ) -> None:
        """Encode the columns into the bytes to send, and free the columns."""
        count = len(self.values)
        first_timestamp_ms, deltas = self.timestamp_ms, None
        if self.timestamps is not None:
            first_timestamp_ms, deltas = self._timestamp_deltas(self.timestamps, count)
        self.encoded = encode_batch(
            Columns(
                count,
                timestamp_deltas=deltas,
                keys=None if self.keys is None else _padded(self.keys, count, None),
                values=self.values,
                headers=None if self.headers is None else _padded(self.headers, count, _NO_HEADERS),
                key_lengths=self.key_lengths if len(self.key_lengths) == count else None,
                value_lengths=self.value_lengths if len(self.value_lengths) == count else None,
            ),
            first_timestamp_ms=first_timestamp_ms,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            format_version=format_version,
        )
        self.record_count = count
        self.base_sequence = base_sequence
        self.values = []
        self.keys = self.headers = self.timestamps = None
        self.key_lengths = self.value_lengths = b""

    def send_to(self, topic_id: bytes) -> None:
        """Note the topic of the next attempt; a recreated topic has nothing of earlier ones."""
        if self.topic_id and self.topic_id != topic_id:
            self.is_ambiguous = False
        self.topic_id = topic_id

    def split(self, codec: Codec) -> list["ProducerBatch"]:
        """Replace an encoded batch that is too large by two halves with the same sequences."""
        assert self.record_count > 1, "one record cannot be split"
        header = parse_header(self.encoded)
        assert header is not None, "our own batch has a header"
        limit = header.uncompressed_length
        columns = decode_columns(header, self.encoded, uncompressed_length_max=limit)
        deltas = columns.timestamp_deltas or [0] * self.record_count
        timestamps = [header.first_timestamp_ms + delta for delta in deltas]
        middle = self.record_count // 2
        for start, end in ((0, middle), (middle, self.record_count)):
            part = ProducerBatch(
                self.order + start,
                timestamp_ms=timestamps[start],
                linger_until=self.linger_until,
                deadline=self.deadline,
            )
            part.parent = self
            part.values = list((columns.values or [None] * self.record_count)[start:end])
            part.timestamps = timestamps[start:end]
            part.keys = None if columns.keys is None else list(columns.keys[start:end])
            part.headers = None if columns.headers is None else list(columns.headers[start:end])
            part.encode(
                codec,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence + start,
                format_version=header.format_version,
            )
            part.has_sequence = self.has_sequence
            self.parts.append(part)
        self.encoded = bytearray()
        return self.parts

    def settle(
        self, failure: Exception | None, base_offset: int | None, ack_level: AckLevel | None
    ) -> None:
        """Set the outcome of the batch, and wake the waiting callers."""
        assert not self.is_settled, "a batch has one fate"
        self.is_settled = True
        self.record_count = self.record_count or len(self.values)
        self.failure = failure
        self.base_offset = base_offset
        self.ack_level = ack_level
        # Receipts and unfinished sends may keep the batch; its bytes must be freed now.
        self.encoded = bytearray()
        self.values = []
        self.keys = self.headers = self.timestamps = None
        self.key_lengths = self.value_lengths = b""
        for signal in self.signals.values():
            signal.set()

    def signal_of(self, kind: type[_Signal]) -> _Signal:
        """Return the signal of this kind, which all callers of the kind share; make it first."""
        signal = self.signals.get(kind)
        if signal is None:
            signal = self.signals[kind] = kind()
        return cast("_Signal", signal)

    def failed_count(self, start: int, end: int) -> int:
        """Return how many of these records of a settled batch were not acknowledged."""
        if not self.parts:
            return 0 if self.failure is None else end - start
        fates = self.fates(start, end)
        return sum(fate.end - fate.start for fate in fates if fate.failure is not None)

    def fates(self, start: int, end: int) -> Iterator["Fate"]:
        """Yield the outcomes of the records from place `start` to `end` of a settled batch."""
        if not self.parts:
            base_offset = self.base_offset
            offset = None if base_offset is None else base_offset + start
            yield Fate(start, end, self.failure, offset, self.ack_level, self.topic_id)
            return
        first = 0
        for part in self.parts:
            low, high = max(start - first, 0), min(end - first, part.record_count)
            if low < high:
                for fate in part.fates(low, high):
                    yield fate._replace(start=fate.start + first, end=fate.end + first)
            first += part.record_count

    def _timestamp_deltas(self, timestamps: list[int], count: int) -> tuple[int, list[int] | None]:
        timestamps = _padded(timestamps, count, self.timestamp_ms)
        first = timestamps[0]
        deltas = [timestamp - first for timestamp in timestamps]
        return first, deltas if any(deltas) else None


def _padded(column: list[_Item] | None, length: int, filler: _Item) -> list[_Item]:
    """Return the column, made when there is none, filled up to `length`."""
    if column is None:
        return [filler] * length
    column.extend([filler] * (length - len(column)))
    return column
