"""Records of messages that are moved to another topic.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.queue_layer.state.pending_dead_letters import DeadLetters
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.large_messages import ChunkMap, chunks_of
from tidelog.wire.batch.message_id import MESSAGE_ID_HEADER, message_id_in, record_id
from tidelog.wire.batch.record_batch import BatchHeader, Columns, Headers, encode_batch
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.queues import (
    DEDUPLICATION_ID_HEADER,
    DELIVER_AT_HEADER,
    FIRST_RECEIVED_HEADER,
    FIRST_SENT_HEADER,
    LAST_RECEIVED_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_QUEUE_HEADER,
    ORIGIN_TOPIC_HEADER,
    REASON_HEADER,
    RECEIVE_COUNT_HEADER,
    SENT_TO_HEADER,
)

_MOVED_BYTES_MAX: Final = 256 << 10
_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
_OF_ORIGIN: Final = frozenset(
    {
        ORIGIN_QUEUE_HEADER,
        ORIGIN_TOPIC_HEADER,
        ORIGIN_PARTITION_HEADER,
        ORIGIN_OFFSET_HEADER,
        RECEIVE_COUNT_HEADER,
        FIRST_RECEIVED_HEADER,
        LAST_RECEIVED_HEADER,
        REASON_HEADER,
    }
)
_OF_ITS_TIME: Final = frozenset({DELIVER_AT_HEADER, DEDUPLICATION_ID_HEADER, SENT_TO_HEADER})
"""Headers about a past delivery."""
_TOO_OFTEN: Final = "max_receive_count"
_DIGITS_MAX: Final = 20


class DeadLetterRecord(NamedTuple):
    """A message that is being moved."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        of_headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + of_headers


class DeadLetterOrigin(NamedTuple):
    """Queue of moved messages, and the partition of their records."""

    queue: str
    topic: str
    partition: int
    topic_id: bytes


def records_in(
    data: BytesLike, header: BatchHeader, offsets: Iterable[int]
) -> Iterator[DeadLetterRecord]:
    """Yield the records of a batch at these offsets.

    Raises:
        WireFormatError: The batch cannot be decoded.
    """
    columns = decode_columns(header, data, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    deltas = columns.offset_deltas or range(columns.record_count)
    places = {header.base_offset + delta: place for place, delta in enumerate(deltas)}
    for offset in offsets:
        place = places.get(offset)
        if place is not None:
            times = columns.timestamp_deltas
            yield DeadLetterRecord(
                offset,
                header.first_timestamp_ms + (times[place] if times else 0),
                columns.keys[place] if columns.keys else None,
                columns.values[place] if columns.values else None,
                columns.headers[place] if columns.headers else (),
            )


def as_dead_letter(
    record: DeadLetterRecord, origin: DeadLetterOrigin, letters: DeadLetters
) -> DeadLetterRecord:
    """Return a record with headers for its origin and the reason of its move."""
    added = {
        ORIGIN_QUEUE_HEADER: origin.queue,
        ORIGIN_TOPIC_HEADER: origin.topic,
        ORIGIN_PARTITION_HEADER: origin.partition,
        ORIGIN_OFFSET_HEADER: record.offset,
        RECEIVE_COUNT_HEADER: letters.receive_count,
        FIRST_RECEIVED_HEADER: letters.first_received_ms,
        LAST_RECEIVED_HEADER: letters.last_received_ms,
        REASON_HEADER: letters.reason or _TOO_OFTEN,
    }
    headers = [(name, str(value).encode()) for name, value in added.items()]
    return record._replace(headers=(*_kept(record, origin), *headers))


def as_it_was(record: DeadLetterRecord, origin: DeadLetterOrigin) -> DeadLetterRecord:
    """Return a record without headers of an origin: it goes back there."""
    return record._replace(headers=_kept(record, origin))


def _kept(record: DeadLetterRecord, origin: DeadLetterOrigin) -> Headers:
    """Return the headers that every move keeps, the time of the first send, and the message id."""
    kept: list[tuple[str, bytes]] = []
    first_sent = str(record.timestamp_ms).encode()
    for name, value in record.headers:
        if name == FIRST_SENT_HEADER:
            if value.isdigit() and len(value) <= _DIGITS_MAX:
                first_sent = value
        elif name not in _OF_ORIGIN | _OF_ITS_TIME:
            kept.append((name, value))
    if message_id_in(kept) is None:
        own = record_id(origin.topic_id, origin.partition, record.offset)
        kept = [each for each in kept if each[0] != MESSAGE_ID_HEADER]
        kept.append((MESSAGE_ID_HEADER, own.encode()))
    return (*kept, (FIRST_SENT_HEADER, first_sent))


def large_message_in(record: DeadLetterRecord) -> ChunkMap | None:
    """Return the places of a message's chunks, `None` if none can be found."""
    try:
        return chunks_of(record.headers)
    except WireFormatError:
        return None


def fitting(records: Sequence[DeadLetterRecord]) -> int:
    """Return how many records go into one batch: a rule that depends on the records alone."""
    size = 0
    for count, record in enumerate(records):
        chunks = large_message_in(record)
        size += record.size + (0 if chunks is None else chunks.length)
        if count and size > _MOVED_BYTES_MAX:
            return count
    return len(records)


def batch_of(
    records: Sequence[DeadLetterRecord],
    *,
    now_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytearray:
    """Return a batch with the format of an idempotent producer, of records that are new now."""
    columns = Columns(
        len(records),
        keys=[record.key for record in records],
        values=[record.value for record in records],
        headers=[record.headers for record in records],
    )
    return encode_batch(
        columns,
        first_timestamp_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
