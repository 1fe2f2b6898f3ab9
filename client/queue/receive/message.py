"""Messages of a queue as applications receive them.

Pure, except for passing on settlements. The broker decides about each settlement: a message does
not know whether it is still leased.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import repeat
from typing import Final, NamedTuple, Protocol, final

import msgspec

from tidelog.client.cluster.durations import milliseconds_of
from tidelog.client.consumer.fetch.fetched_batches import FetchedBatches
from tidelog.client.consumer.fetch.record import unreadable
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace, handle_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.batch_columns import ALL_COLUMNS
from tidelog.wire.batch.large_messages import ChunkMap, chunks_of, is_large, length_of
from tidelog.wire.batch.record_batch import BatchHeader, Columns, Headers
from tidelog.wire.errors import RecordTooLargeError, TidelogError, WireFormatError
from tidelog.wire.messages.queues import (
    FIRST_RECEIVED_HEADER,
    FIRST_SENT_HEADER,
    LAST_RECEIVED_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_QUEUE_HEADER,
    ORIGIN_TOPIC_HEADER,
    REASON_HEADER,
    RECEIVE_COUNT_HEADER,
    PartitionReceived,
    ReceivedRun,
    SettleAction,
)

_DIGITS_MAX: Final = 20
VALUE_BYTES_MAX: Final = 64 << 20
"""Maximum bytes of messages that are joined by default."""


class BodyReader(Protocol):
    """Reads the chunks of large messages."""

    def chunks(self, tp: TopicPartition, chunks: ChunkMap) -> AsyncIterator[bytes]:
        """Yield the chunks one by one."""
        ...

    async def join(self, tp: TopicPartition, chunks: ChunkMap, *, max_bytes: int) -> bytes:
        """Return the joined value, unless it is longer than `max_bytes`."""
        ...


class Disposition(msgspec.Struct, frozen=True):
    """Settlement of messages."""

    action: SettleAction
    delay_ms: int | None = None
    reason: str = ""


DELETE = Disposition(SettleAction.DELETE)
RETURN = Disposition(SettleAction.RETURN)
REASON_LENGTH_MAX: Final = 8192
"""Maximum characters of a reason."""
Settle = Callable[[Sequence["Message"], Disposition], Awaitable[None]]


@final
class Lease:
    """Common part of the messages that one receive got from one partition."""

    __slots__ = ("expires_at", "failures", "is_fifo", "reader", "receipt", "settle", "topic_id")

    def __init__(
        self,
        receipt: bytes,
        expires_at: float,
        settle: Settle,
        *,
        reader: BodyReader | None = None,
        is_fifo: bool = False,
        topic_id: bytes = b"",
    ) -> None:
        """Settle messages through `settle`; `reader` reads the chunks of large messages."""
        self.topic_id = topic_id
        self.is_fifo = is_fifo
        """Whether messages with the same key are to be processed in order."""
        self.reader = reader
        self.receipt = receipt
        self.expires_at = expires_at
        """End of the visibility timeout in seconds of trio's clock, unless it is extended."""
        self.settle = settle
        self.failures: dict[int, TidelogError] = {}
        """Errors of large messages that could not be joined, by offset."""


class Origin(NamedTuple):
    """Source of a dead letter, and its reason."""

    queue: str
    topic: str
    partition: int
    offset: int
    receive_count: int
    """Deliveries by the queue whose dead letter it is."""
    first_received_ms: int
    last_received_ms: int
    reason: str
    """Reason given by the last consumer, or `max_receive_count`."""
    first_sent_ms: int
    """Time of the first send, before any move: Unix milliseconds; 0 if an old version moved it."""


@final
class Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Message in flight: hidden until it is settled or its visibility timeout is over.

    Settlements are durable when the call returns, and are retried for up to
    `ClientConfig.request_timeout` while that may help. A cancelled settlement may or may not
    happen.
    """

    topic: str
    """Topic of the record."""
    partition: int
    """Partition of the record."""
    offset: int
    """Offset in the partition."""
    timestamp_ms: int
    """Time of the send: Unix time in milliseconds, as set by the sender.

    For a dead letter, and a message that was redriven, the time of that move."""
    key: bytes | None
    """Key of the record; in FIFO queues its group."""
    content: bytes | None
    """Value of the record; empty for a large message that was not joined."""
    headers: Headers
    """Pairs of name and value."""
    receive_count: int
    """Deliveries up to and including this one."""
    first_received_ms: int
    """Time of the first delivery: Unix milliseconds by the clock of the broker."""
    lease: Lease

    @property
    def value(self) -> bytes | None:
        """Value of the message.

        Raises:
            RecordTooLargeError: It is longer than the limit for joining; see `chunks`.
            MessageBodyLostError: It is a large message, and the topic has deleted a part of it.
            WireFormatError: Its header of a large message is not valid.
        """
        if self.content or self.content is None or not is_large(self.headers):
            return self.content
        chunks = chunks_of(self.headers)
        assert chunks is not None, "it is large"
        failure = self.lease.failures.get(self.offset)
        raise too_large(chunks.length) if failure is None else copy(failure)

    @property
    def is_large(self) -> bool:
        """Whether it is in chunks, because it is longer than a record may be."""
        return is_large(self.headers)

    @property
    def length(self) -> int:
        """Length of the value in bytes."""
        return length_of(self.content, self.headers)

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the value, some 512 KiB at a time; chunks are not kept in memory.

        The message stays in flight meanwhile if it is extended in time, as workers do.

        Raises:
            MessageBodyLostError: The topic has deleted a part of the value.
            CorruptRecordError: A part of the value is corrupt.
            TidelogError: No broker answered within `ClientConfig.request_timeout`.
        """
        found = chunks_of(self.headers)
        if self.content or found is None:
            return _once(self.content or b"")
        assert self.lease.reader is not None, "received by a client"
        return self.lease.reader.chunks(TopicPartition(self.topic, self.partition), found)

    async def read(self, max_bytes: int = VALUE_BYTES_MAX) -> bytes:
        """Return the value, joined from its chunks if it is large.

        Raises:
            RecordTooLargeError: It is longer than `max_bytes`.
            TidelogError: As for `chunks`.
        """
        found = chunks_of(self.headers)
        if self.content or found is None:
            return self.content or b""
        assert self.lease.reader is not None, "received by a client"
        tp = TopicPartition(self.topic, self.partition)
        return await self.lease.reader.join(tp, found, max_bytes=max_bytes)

    @property
    def message_id(self) -> str:
        """Id of the message in its topic: partition and offset."""
        return f"{self.partition}-{self.offset}"

    @property
    def topic_id(self) -> bytes:
        """Id of the topic: a topic that is deleted and created again has another one."""
        return self.lease.topic_id

    @property
    def receipt_handle(self) -> str:
        """Handle that settles this message from any process, such as `queue.delete(handle)`."""
        return handle_of(self.place)

    @property
    def place(self) -> ReceivedPlace:
        """Partition, offset and receipt, as in the handle."""
        return ReceivedPlace(self.partition, self.offset, self.lease.receipt)

    @property
    def origin(self) -> Origin | None:
        """Source of a dead letter; `None` for other messages."""
        return origin_of(self.headers)

    async def delete(self) -> None:
        """Delete the message from the queue; it is not delivered again.

        Raises:
            ReceiptExpiredError: The queue is fenced, or FIFO, and another receiver may have it.
        """
        await self.lease.settle([self], DELETE)

    async def extend(self, seconds: float) -> None:
        """Set the visibility timeout to `seconds` from now.

        Raises:
            ReceiptExpiredError: Another receiver has it, or may have it.
            MessageGoneError: It is deleted, expired or a dead letter.
            InvalidRequestError: That would be more than 12 hours since it was received.
        """
        await self._settle(extension(seconds))

    async def change_visibility(self, seconds: float) -> None:
        """Make it visible after `seconds` from now (SQS: `ChangeMessageVisibility`).

        During the lease this extends or shortens the visibility timeout; 0 releases the message.
        After a release it sets the delay again, unless another receiver has the message.

        Raises:
            ReceiptExpiredError: Another receiver has it, or may have it.
            MessageGoneError: It is deleted, expired or a dead letter.
            InvalidRequestError: That would be more than 12 hours since it was received.
        """
        await self._settle(visibility(seconds))

    async def release(self, delay: float | None = None, *, reason: str = "") -> None:
        """Make it visible again after `delay` seconds; by default, after the queue's backoff.

        Raises:
            ReceiptExpiredError: Another receiver has it, or may have it.
            MessageGoneError: It is deleted, expired or a dead letter.
        """
        await self._settle(giving_up(delay, reason))

    async def reject(self, reason: str) -> None:
        """Make it a dead letter, regardless of its receive count.

        Args:
            reason: Reason for the operator: at most 8,192 characters.

        Raises:
            ReceiptExpiredError: Another receiver has it, or may have it.
            MessageGoneError: It is deleted or expired.
            ValueError: The reason is too long.
        """
        await self._settle(rejection(reason))

    async def _settle(self, verdict: Disposition) -> None:
        await self.lease.settle([self], verdict)


def extension(seconds: float) -> Disposition:
    """Return the settlement that extends messages."""
    return Disposition(SettleAction.EXTEND, milliseconds_of("the extension", seconds))


def visibility(seconds: float) -> Disposition:
    """Return the settlement that sets the time at which messages become visible."""
    delay_ms = milliseconds_of("the visibility timeout", seconds)
    action = SettleAction.CHANGE_VISIBILITY if delay_ms else SettleAction.RELEASE
    return Disposition(action, delay_ms)


def giving_up(delay: float | None, reason: str) -> Disposition:
    """Return the settlement that releases messages."""
    delay_ms = None if delay is None else milliseconds_of("delay", delay)
    return Disposition(SettleAction.RELEASE, delay_ms, _checked_reason(reason))


def rejection(reason: str) -> Disposition:
    """Return the settlement that makes messages dead letters."""
    return Disposition(SettleAction.REJECT, reason=_checked_reason(reason))


def _checked_reason(reason: object) -> str:
    """Return a reason that can be sent: an invalid one would fail its whole request.

    Raises:
        TypeError: It is not text.
        ValueError: It is too long.
    """
    if not isinstance(reason, str):
        raise TypeError(f"a reason is a str, not {type(reason).__name__}")
    text = in_unicode(reason)
    if len(text) > REASON_LENGTH_MAX:
        raise ValueError(f"a reason has at most {REASON_LENGTH_MAX} characters, not {len(text)}")
    return text


def in_unicode(text: str) -> str:
    """Return text without surrogates, which names of files, for instance, may contain."""
    return text.encode("utf-8", "backslashreplace").decode()


def too_large(length: int, limit: int | None = None) -> RecordTooLargeError:
    """Return the error for a large message that is not joined in memory."""
    of_limit = "" if limit is None else f"; the limit is {limit}"
    return RecordTooLargeError(
        f"the message has {length} bytes and is not joined in memory{of_limit}; read it with"
        " message.chunks(), or raise the limit",
        size_bytes=length,
    )


async def _once(content: bytes) -> AsyncIterator[bytes]:
    if content:
        yield content


def origin_of(headers: Iterable[tuple[str, bytes]]) -> Origin | None:
    """Return the source of a dead letter from its headers; `None` for other messages."""
    found = {name: value.decode("utf-8", "replace") for name, value in headers}
    if ORIGIN_QUEUE_HEADER not in found:
        return None

    def number(name: str) -> int:
        text = found.get(name, "")
        is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
        return int(text) if is_number else 0

    return Origin(
        found[ORIGIN_QUEUE_HEADER],
        found.get(ORIGIN_TOPIC_HEADER, ""),
        number(ORIGIN_PARTITION_HEADER),
        number(ORIGIN_OFFSET_HEADER),
        number(RECEIVE_COUNT_HEADER),
        number(FIRST_RECEIVED_HEADER),
        number(LAST_RECEIVED_HEADER),
        found.get(REASON_HEADER, ""),
        number(FIRST_SENT_HEADER),
    )


_UNCOMPRESSED_BYTES_MAX: Final = 256 << 20
"""Maximum bytes of an unpacked batch, so that a small batch cannot fill the memory."""


def messages_of(
    tp: TopicPartition, received: PartitionReceived, content: bytes, *, lease: Lease
) -> list[Message]:
    """Return the messages of one partition, in the order of their offsets.

    Args:
        tp: Topic and partition.
        received: Runs of received records.
        content: Batches with the records.
        lease: Lease of the receive.

    Raises:
        CorruptRecordError: A batch is corrupt, or cannot be decoded.
    """
    messages: list[Message] = []
    batches = FetchedBatches(tp, content, 0)
    runs = iter(received.runs)
    run = next(runs, None)
    while run is not None:
        found = batches.take_whole(run.first_offset)
        if found is None:
            break
        header, batch = found
        try:  # All columns, once for all runs in the batch.
            columns = ALL_COLUMNS.decode(
                header, batch, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX
            )
        except WireFormatError as error:
            raise unreadable(tp, header, error, offset=run.first_offset) from error
        next_offset = batches.passed_offset
        while run is not None and run.first_offset < next_offset:
            messages.extend(_messages(tp, header, columns, run=run, lease=lease))
            if run.first_offset + run.count > next_offset:
                break  # The next batch has the rest of it.
            run = next(runs, None)
    return messages


def count_of(runs: Sequence[ReceivedRun]) -> int:
    """Return the number of messages in runs."""
    count = 0
    for run in runs:
        count += run.count
    return count


def places_of(received: PartitionReceived) -> list[ReceivedPlace]:
    """Return the places of all received messages."""
    return [
        ReceivedPlace(received.partition, offset, received.receipt)
        for run in received.runs
        for offset in range(run.first_offset, run.first_offset + run.count)
    ]


def missing_places(received: PartitionReceived, messages: Sequence[Message]) -> list[ReceivedPlace]:
    """Return the places of received messages whose records are missing from the reply."""
    if sum(run.count for run in received.runs) == len(messages):
        return []
    found = {message.offset for message in messages}
    return [place for place in places_of(received) if place.offset not in found]


def _messages(
    tp: TopicPartition, header: BatchHeader, columns: Columns, *, run: ReceivedRun, lease: Lease
) -> Iterator[Message]:
    """Iterate over the messages of a run that a batch holds."""
    base_offset, count = header.base_offset, header.record_count
    first = max(run.first_offset - base_offset, 0)
    end = min(run.first_offset + run.count - base_offset, header.last_offset_delta + 1)
    offsets: Sequence[int]
    if count == header.last_offset_delta + 1:  # As many records as offsets.
        offsets = range(base_offset + first, base_offset + end)
    else:
        deltas = columns.offset_deltas or range(count)
        first, end = bisect_left(deltas, first), bisect_left(deltas, end)
        offsets = [base_offset + delta for delta in deltas[first:end]]
    rows = slice(first, end)
    timestamps: Iterable[int]
    if header.has_append_time:
        timestamps = repeat(header.max_timestamp_ms)
    elif columns.timestamp_deltas is None:
        timestamps = repeat(header.first_timestamp_ms)
    else:
        start_ms = header.first_timestamp_ms
        timestamps = [start_ms + delta for delta in columns.timestamp_deltas[rows]]
    return map(
        Message,
        repeat(tp.topic),
        repeat(tp.partition),
        offsets,
        timestamps,
        repeat(None) if columns.keys is None else columns.keys[rows],
        repeat(None) if columns.values is None else columns.values[rows],
        repeat(()) if columns.headers is None else columns.headers[rows],
        repeat(run.receive_count),
        repeat(run.first_received_ms),
        repeat(lease),
    )
