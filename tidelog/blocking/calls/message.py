"""The calls of `tidelog.Message`, which wait; written by `tools.blocking_calls`."""

from collections.abc import Iterator
from functools import partial

from tidelog.blocking.forwarding import Forwarding, in_turn
from tidelog.client.queue.receive.message import VALUE_BYTES_MAX, Origin
from tidelog.client.queue.receive.message import Message as AsyncMessage
from tidelog.wire.batch.record_batch import Headers


class MessageCalls(Forwarding[AsyncMessage]):
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
        """When it was sent: Unix time in milliseconds, as the sender gave it.

        Of a dead letter, and of one that was redriven, the time of that move.
        """
        return self._inner.timestamp_ms

    @property
    def key(self) -> bytes | None:
        """FIFO queues: its group."""
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
        """Time of the first of them, by the clock of the broker."""
        return self._inner.first_received_ms

    @property
    def value(self) -> bytes | None:
        """What was sent.

        Raises:
            RecordTooLargeError: It is longer than what is joined by itself; see `chunks`.
            MessageBodyLostError: It was large, and the topic has deleted some of it.
            WireFormatError: It says of itself that it is large, and not how.
        """
        return self._inner.value

    @property
    def is_large(self) -> bool:
        """Whether it is in chunks: longer than one record may be."""
        return self._inner.is_large

    @property
    def length(self) -> int:
        """How many bytes the value has."""
        return self._inner.length

    def chunks(self) -> Iterator[bytes]:
        """Iterate over the value, some 512 KiB at a time; what was read is not kept.

        Nobody else gets the message meanwhile if it is extended in time, as workers do.

        Raises:
            MessageBodyLostError: The topic has deleted some of it.
            CorruptRecordError: Some of it is damaged.
            TidelogError: Nobody could be asked for `ClientConfig.request_timeout`.
        """
        return in_turn(self._thread, self._inner.chunks())

    def read(self, max_bytes: int = VALUE_BYTES_MAX) -> bytes:
        """Return the value, however it was sent.

        Raises:
            RecordTooLargeError: It has more bytes than that.
            TidelogError: As for `chunks`.
        """
        return self._thread.call(partial(self._inner.read, max_bytes))

    @property
    def message_id(self) -> str:
        """The name of the message in its topic: partition and offset."""
        return self._inner.message_id

    @property
    def receipt_handle(self) -> str:
        """What settles this message from anywhere, such as `queue.delete(handle)`."""
        return self._inner.receipt_handle

    @property
    def origin(self) -> Origin | None:
        """Where it comes from, if it is a dead letter."""
        return self._inner.origin

    def delete(self) -> None:
        """Be done with it: nobody gets it any more.

        Raises:
            ReceiptExpiredError: The queue is fenced, or FIFO, and somebody else may have it.
        """
        self._thread.call(self._inner.delete)

    def extend(self, seconds: float) -> None:
        """Keep it for so long from now on.

        Raises:
            ReceiptExpiredError: Somebody else has it, or may have it.
            MessageGoneError: It is deleted, expired or a dead letter.
            InvalidRequestError: That would be more than 12 hours since it was received.
        """
        self._thread.call(partial(self._inner.extend, seconds))

    def release(self, delay: float | None = None, *, reason: str = "") -> None:
        """Let others have it after `delay` seconds; by default, as the queue's backoff says.

        Raises:
            ReceiptExpiredError: Somebody else has it, or may have it.
            MessageGoneError: It is deleted, expired or a dead letter.
        """
        self._thread.call(partial(self._inner.release, delay, reason=reason))

    def reject(self, reason: str) -> None:
        """Make it a dead letter, whatever its receive count.

        Args:
            reason: Why, for people: at most 8,192 characters.

        Raises:
            ReceiptExpiredError: Somebody else has it, or may have it.
            MessageGoneError: It is deleted or expired.
            ValueError: The reason is too long.
        """
        self._thread.call(partial(self._inner.reject, reason))
