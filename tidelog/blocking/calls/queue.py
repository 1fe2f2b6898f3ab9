"""The calls of `tidelog.Queue`, which wait; written by `tools.blocking_calls`."""

from collections.abc import Iterable
from functools import partial
from typing import Unpack

from tidelog.blocking.forwarding import Forwarding
from tidelog.blocking.message import Message, Received, unwrapped
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.cluster.list_offsets import OffsetSpec
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.inspect.history import HistoryEvent
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.client.queue.queue import Queue as AsyncQueue
from tidelog.client.queue.receive.message import VALUE_BYTES_MAX
from tidelog.client.queue.send.chunk_writer import Source
from tidelog.client.queue.send.message_fields import MessageFields, OutgoingMessage
from tidelog.wire.messages.queues import MessageState, QueueCounts


class QueueCalls(Forwarding[AsyncQueue]):
    """See `tidelog.Queue`."""

    __slots__ = ()

    def send(self, value: Source | None, **fields: Unpack[MessageFields]) -> Receipt:
        """Send one message and wait until it is acknowledged.

        Args:
            value: The message, of up to 1 GiB: bytes, a file that is open for reading them, or an
                asynchronous iterable of them. What is longer than a record may be goes in chunks.
            fields: `key` or `group`, which are the same: messages with the same one are in one
                partition, and in order in a FIFO queue, which needs it. `headers`: pairs of name
                and value. `delay`: nobody gets it for so many seconds, of any number, counted from
                now by the clock of this machine; by default, what the queue says. `priority`: 0
                is the most urgent; queues without `priority_weights` refuse it.
                `deduplication_id`: FIFO queues: within the window, one message with this id is
                kept.

        Raises:
            UnknownQueueError: There is no such queue.
            DeliveryTimeoutError: It was not acknowledged in time; it may be in the queue.
            RecordTooLargeError: It exceeds a limit of the broker, or is longer than 1 GiB.
            InvalidRequestError: The queue does not take such a message.
            ValueError: A number is out of range.
        """
        return self._thread.call(partial(self._inner.send, value, **fields))

    def send_batch(self, messages: Iterable[bytes | OutgoingMessage]) -> list[Receipt]:
        """Send messages and wait until all are acknowledged; much faster than one by one.

        What is longer than its topic takes goes in chunks; one among others of a FIFO queue fails
        instead, for it would come behind later ones of its group.

        Raises:
            BatchError: Some were not acknowledged; it says which, and why. The others are sent.
            UnknownQueueError: There is no such queue.
            ValueError: A number is out of range; nothing is sent.
        """
        return self._thread.call(partial(self._inner.send_batch, list(messages)))

    def receive(
        self,
        max_messages: int = 10,
        *,
        visibility_timeout: float | None = None,
        wait: float | None = None,
        max_value_bytes: int = VALUE_BYTES_MAX,
    ) -> list[Message]:
        """Return messages that nobody else has, leased for this caller.

        Waits until there is at least one, and returns what there is then. An empty list means that
        all partitions were asked and had nothing. If cancelled, nothing stays leased.

        Args:
            max_messages: How many at most, from 1 to 1,000.
            visibility_timeout: For how many seconds nobody else gets them, up to 12 hours; by
                default, what the queue says. With 0 they are only looked at, but that counts.
            wait: For how many seconds to wait for the first one; by default, what the queue says.
            max_value_bytes: Large messages up to this length are joined, and no more of them are
                returned at once; longer ones are read with `message.chunks()`.

        Raises:
            UnknownQueueError: There is no such queue.
            ValueError: A number is out of range.
            TidelogError: Some partition could not be asked, and the others had nothing.
        """
        return [
            Message(self._thread, each)
            for each in self._thread.call(
                partial(
                    self._inner.receive,
                    max_messages,
                    visibility_timeout=visibility_timeout,
                    wait=wait,
                    max_value_bytes=max_value_bytes,
                )
            )
        ]

    def delete(self, message: Received) -> None:
        """Be done with a message; see `Message.delete`."""
        self._thread.call(partial(self._inner.delete, unwrapped(message)))

    def extend(self, message: Received, seconds: float) -> None:
        """Keep a message for so long from now on; see `Message.extend`."""
        self._thread.call(partial(self._inner.extend, unwrapped(message), seconds))

    def release(self, message: Received, delay: float | None = None, *, reason: str = "") -> None:
        """Let others have a message; see `Message.release`."""
        self._thread.call(partial(self._inner.release, unwrapped(message), delay, reason=reason))

    def reject(self, message: Received, reason: str) -> None:
        """Make a message a dead letter; see `Message.reject`."""
        self._thread.call(partial(self._inner.reject, unwrapped(message), reason))

    def delete_batch(self, messages: Iterable[Received]) -> None:
        """Be done with messages: one request for each broker, however many there are.

        Raises:
            BatchError: Some could not be deleted; it says which, and why. The others are.
            BrokerError: There was only one, and it could not be deleted.
            InvalidReceiptError: One of them is no receipt handle; nothing is deleted.
        """
        self._thread.call(partial(self._inner.delete_batch, list(map(unwrapped, messages))))

    def extend_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Keep messages for so long from now on; errors as for `delete_batch`."""
        self._thread.call(
            partial(self._inner.extend_batch, list(map(unwrapped, messages)), seconds)
        )

    def release_batch(
        self, messages: Iterable[Received], delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Let others have messages; errors as for `delete_batch`."""
        self._thread.call(
            partial(self._inner.release_batch, list(map(unwrapped, messages)), delay, reason=reason)
        )

    def counts(self) -> list[QueueCounts]:
        """Return how many messages of each partition are in which state, exactly."""
        return self._thread.call(self._inner.counts)

    def peek(
        self, max_messages: int = 10, *, states: Iterable[MessageState] = ()
    ) -> list[PeekedMessage]:
        """Return messages by partition and offset without taking them; that does not count.

        Args:
            max_messages: How many at most.
            states: Only those in these states; all by default.
        """
        return self._thread.call(partial(self._inner.peek, max_messages, states=list(states)))

    def history(
        self, max_events: int = 1000, *, since_ms: int = 0, message_id: str | None = None
    ) -> list[HistoryEvent]:
        """Return what happened to messages, by time: the newest events.

        As long ago as the queue remembers (`history_retention_ms`); Spark reads all of it
        (`queueHistory`).

        Args:
            max_events: How many at most; what concerns many messages is one.
            since_ms: Nothing that was written down before this time; Unix milliseconds.
            message_id: Only what happened to this message, and what concerns many.

        Raises:
            UnknownQueueError: There is no such queue.
            ValueError: This is no message id.
        """
        return self._thread.call(
            partial(self._inner.history, max_events, since_ms=since_ms, message_id=message_id)
        )

    def in_flight(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages that somebody has: who, until when, and how often received."""
        return self._thread.call(partial(self._inner.in_flight, max_messages))

    def dead_letters(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages that this queue has given up, with their reasons.

        Those that are still here, and those in its dead-letter queue that come from here.
        """
        return self._thread.call(partial(self._inner.dead_letters, max_messages))

    def cancel(self, message_id: str) -> None:
        """Do not deliver a message that is delayed still; durable when it returns.

        Args:
            message_id: As the receipt of its send says it.

        Raises:
            InvalidRequestError: It can be received already, for it is not delayed (any more).
            ReceiptExpiredError: Somebody has it.
            MessageGoneError: There is no such message, any more.
            ValueError: That is no message id.
        """
        self._thread.call(partial(self._inner.cancel, message_id))

    def cancel_batch(self, message_ids: Iterable[str]) -> None:
        """Do not deliver messages that are delayed still.

        Raises:
            BatchError: Some of several could not be cancelled; it says which, and why.
            TidelogError: The only one could not be cancelled; see `cancel`.
            ValueError: One of them is no message id; nothing is cancelled.
        """
        self._thread.call(partial(self._inner.cancel_batch, list(message_ids)))

    def purge(self) -> int:
        """Do away with all messages there are now, in whatever state; return how many.

        The records stay in the topic.
        """
        return self._thread.call(self._inner.purge)

    def seek(self, to: OffsetSpec) -> int:
        """Hand out again everything from a place on; return how many messages there are then.

        What was received before cannot be settled any more. Other queues do not notice.

        Args:
            to: `"earliest"`, `"latest"`, or Unix milliseconds: the first record of this time or
                later.
        """
        return self._thread.call(partial(self._inner.seek, to))

    def redrive(
        self,
        *,
        to_topic: str | None = None,
        messages_per_s: int | None = None,
        only_from: str | None = None,
    ) -> int:
        """Begin to bring back the dead letters of this dead-letter queue; return how many.

        That goes on whatever happens to brokers; `redrive_status` says how far it is. The same
        again, while it runs, changes nothing. Every queue on a topic sees what comes back there.

        Args:
            to_topic: Where to; by default each goes where it came from.
            messages_per_s: How fast, from each partition; by default, as fast as it goes.
            only_from: Only those that this queue gave up.

        Raises:
            InvalidRequestError: Another one runs, or that makes no sense.
            UnknownTopicError: There is no such topic.
        """
        return self._thread.call(
            partial(
                self._inner.redrive,
                to_topic=to_topic,
                messages_per_s=messages_per_s,
                only_from=only_from,
            )
        )

    def redrive_status(self) -> RedriveReport:
        """Return how far the redrive of this dead-letter queue is that runs, or ran last."""
        return self._thread.call(self._inner.redrive_status)

    def cancel_redrive(self) -> None:
        """Bring back no more dead letters; those that are not taken out yet stay."""
        self._thread.call(self._inner.cancel_redrive)
