"""The calls of `tidelog.Message`, for asyncio; written by `tools.face_calls`."""

from collections.abc import AsyncIterator
from functools import partial

from tidelog.aio.forwarding import Forwarding, in_turn
from tidelog.client.queue.receive.message import VALUE_BYTES_MAX, Origin
from tidelog.client.queue.receive.message import Message as InnerMessage
from tidelog.wire.batch.record_batch import Headers


class MessageCalls(Forwarding[InnerMessage]):
    """See `tidelog.Message`."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """Topic of the record."""
        return self._inner.topic

    @property
    def partition(self) -> int:
        """Partition of the record."""
        return self._inner.partition

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        return self._inner.offset

    @property
    def timestamp_ms(self) -> int:
        """Time of the send: Unix time in milliseconds, as set by the sender.

        For a dead letter, and a message that was redriven, the time of that move.
        """
        return self._inner.timestamp_ms

    @property
    def key(self) -> bytes | None:
        """Key of the record; in FIFO queues its group."""
        return self._inner.key

    @property
    def headers(self) -> Headers:
        """Pairs of name and value."""
        return self._inner.headers

    @property
    def receive_count(self) -> int:
        """Deliveries up to and including this one."""
        return self._inner.receive_count

    @property
    def first_received_ms(self) -> int:
        """Time of the first delivery: Unix milliseconds by the clock of the broker."""
        return self._inner.first_received_ms

    @property
    def value(self) -> bytes | None:
        """Value of the message.

        Raises:
            RecordTooLargeError: It is longer than the limit for joining; see `chunks`.
            MessageBodyLostError: It is a large message, and the topic has deleted a part of it.
            WireFormatError: Its header of a large message is not valid.
        """
        return self._inner.value

    @property
    def is_large(self) -> bool:
        """Whether it is in chunks, because it is longer than a record may be."""
        return self._inner.is_large

    @property
    def length(self) -> int:
        """Length of the value in bytes."""
        return self._inner.length

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the value, some 512 KiB at a time; chunks are not kept in memory.

        The message stays in flight meanwhile if it is extended in time, as workers do.

        Raises:
            MessageBodyLostError: The topic has deleted a part of the value.
            CorruptRecordError: A part of the value is corrupt.
            TidelogError: No broker answered within `ClientConfig.request_timeout`.
        """
        return in_turn(self._guest, self._inner.chunks())

    async def read(self, max_bytes: int = VALUE_BYTES_MAX) -> bytes:
        """Return the value, joined from its chunks if it is large.

        Raises:
            RecordTooLargeError: It is longer than `max_bytes`.
            TidelogError: As for `chunks`.
        """
        return await self._guest.call(partial(self._inner.read, max_bytes))

    @property
    def message_id(self) -> str:
        """Id of the message in its topic: partition and offset."""
        return self._inner.message_id

    @property
    def topic_id(self) -> bytes:
        """Id of the topic: a topic that is deleted and created again has another one."""
        return self._inner.topic_id

    @property
    def receipt_handle(self) -> str:
        """Handle that settles this message from any process, such as `queue.delete(handle)`."""
        return self._inner.receipt_handle

    @property
    def origin(self) -> Origin | None:
        """Source of a dead letter; `None` for other messages."""
        return self._inner.origin

    async def delete(self) -> None:
        """Delete the message from the queue; it is not delivered again.

        Raises:
            ReceiptExpiredError: The queue is fenced, or FIFO, and another receiver may have it.
        """
        await self._guest.call(self._inner.delete)

    async def extend(self, seconds: float) -> None:
        """Set the visibility timeout to `seconds` from now.

        Raises:
            ReceiptExpiredError: Another receiver has it, or may have it.
            MessageGoneError: It is deleted, expired or a dead letter.
            InvalidRequestError: That would be more than 12 hours since it was received.
        """
        await self._guest.call(partial(self._inner.extend, seconds))

    async def change_visibility(self, seconds: float) -> None:
        """Make it visible after `seconds` from now (SQS: `ChangeMessageVisibility`).

        During the lease this extends or shortens the visibility timeout; 0 releases the message.
        After a release it sets the delay again, unless another receiver has the message.

        Raises:
            ReceiptExpiredError: Another receiver has it, or may have it.
            MessageGoneError: It is deleted, expired or a dead letter.
            InvalidRequestError: That would be more than 12 hours since it was received.
        """
        await self._guest.call(partial(self._inner.change_visibility, seconds))

    async def release(self, delay: float | None = None, *, reason: str = "") -> None:
        """Make it visible again after `delay` seconds; by default, after the queue's backoff.

        Raises:
            ReceiptExpiredError: Another receiver has it, or may have it.
            MessageGoneError: It is deleted, expired or a dead letter.
        """
        await self._guest.call(partial(self._inner.release, delay, reason=reason))

    async def reject(self, reason: str) -> None:
        """Make it a dead letter, regardless of its receive count.

        Args:
            reason: Reason for the operator: at most 8,192 characters.

        Raises:
            ReceiptExpiredError: Another receiver has it, or may have it.
            MessageGoneError: It is deleted or expired.
            ValueError: The reason is too long.
        """
        await self._guest.call(partial(self._inner.reject, reason))
