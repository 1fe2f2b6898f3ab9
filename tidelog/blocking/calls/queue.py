"""The calls of `tidelog.Queue`, which wait; written by `tools.face_calls`."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Unpack

from tidelog.blocking.forwarding import Forwarding
from tidelog.blocking.message import Message, Received, unwrapped
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.cluster.list_offsets import OffsetSpec
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.inspect.history import HistoryEvent
from tidelog.client.queue.inspect.message_story import MessageStory
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.client.queue.queue import Queue as InnerQueue
from tidelog.client.queue.receive.message import VALUE_BYTES_MAX
from tidelog.client.queue.send.chunk_writer import Source
from tidelog.client.queue.send.message_fields import MessageFields, OutgoingMessage
from tidelog.wire.messages.queues import MessageState, QueueCounts


class QueueCalls(Forwarding[InnerQueue]):
    """See `tidelog.Queue`."""

    __slots__ = ()

    def send(self, value: Source | None, **fields: Unpack[MessageFields]) -> Receipt:
        """Send one message and wait until it is acknowledged.

        Args:
            value: The message, of up to 1 GiB: bytes, a file open for reading bytes, or an
                asynchronous iterable of bytes. A value too long for one record is sent in chunks.
            fields: `key` or `group`, which are the same: messages with the same one are in one
                partition, and in order in a FIFO queue, which requires it. `headers`: pairs of name
                and value. `delay`: seconds until it becomes visible, without a limit, counted from
                now by the clock of this machine; by default, the setting of the queue. `priority`:
                0, the most urgent, to the number of `priority_weights` less 1; by default, the
                `default_priority` of the queue. `deduplication_id`: in FIFO queues, one message
                with this id is kept within the window.

        Raises:
            UnknownQueueError: There is no such queue.
            DeliveryTimeoutError: It was not acknowledged in time; it may be in the queue.
            RecordTooLargeError: It exceeds a limit of the broker, or is longer than 1 GiB.
            InvalidRequestError: The queue does not accept such a message.
            ValueError: A number is out of range.
        """
        return self._thread.call(partial(self._inner.send, value, **fields))

    def send_batch(self, messages: Iterable[bytes | OutgoingMessage]) -> list[Receipt]:
        """Send messages and wait until all are acknowledged; much faster than one by one.

        Values above the limit of the topic are sent in chunks. In a batch for a FIFO queue they
        fail instead, because they would come behind later messages of their group.

        Raises:
            BatchError: Some were refused, or not acknowledged; it has their errors, and the
                receipts of the others, which are sent.
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
        raise_at_limit: bool = False,
        attempt_id: bytes | str | None = None,
    ) -> list[Message]:
        """Receive messages; they are in flight for this caller.

        Waits until there is at least one, and then returns those that are available, of each
        partition at most 100 runs of adjacent messages. An empty list means that all partitions
        were asked and had none. If cancelled, nothing stays in flight.

        Args:
            max_messages: Maximum number, from 1 to 1,000.
            visibility_timeout: Seconds until they become visible again, up to 12 hours; by default,
                the setting of the queue. With 0 they stay visible, but the receive counts.
            wait: Seconds to wait for the first message; by default, the setting of the queue.
            max_value_bytes: Maximum length of large messages that are joined, and maximum sum of
                them in one call; longer ones are read with `message.chunks()`.
            raise_at_limit: Whether to raise an error instead of returning an empty list when the
                queue has messages, and `max_in_flight` keeps it from delivering them.
            attempt_id: Receive attempt id of 1 to 128 bytes, only for FIFO queues. Within five
                minutes a call with the same id returns the same messages, all of them, and their
                visibility timeout begins again; unless it has ended, or one of them was settled,
                extended or returned. If such a call is cancelled, its messages stay in flight for
                the next call with its id.

        Raises:
            OverLimitError: As many messages are in flight as `max_in_flight` allows, also after
                `wait`; only with `raise_at_limit`.
            UnknownQueueError: There is no such queue.
            InvalidRequestError: The queue is not FIFO and there is an attempt id.
            ValueError: A number or the attempt id is out of range.
            TidelogError: A partition did not answer, and the others had no messages.
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
                    raise_at_limit=raise_at_limit,
                    attempt_id=attempt_id,
                )
            )
        ]

    def delete(self, message: Received) -> None:
        """Delete a message; see `Message.delete`."""
        self._thread.call(partial(self._inner.delete, unwrapped(message)))

    def extend(self, message: Received, seconds: float) -> None:
        """Set the visibility timeout of a message to `seconds` from now; see `Message.extend`."""
        self._thread.call(partial(self._inner.extend, unwrapped(message), seconds))

    def change_visibility(self, message: Received, seconds: float) -> None:
        """Make a message visible after `seconds`; see `Message.change_visibility`."""
        self._thread.call(partial(self._inner.change_visibility, unwrapped(message), seconds))

    def release(self, message: Received, delay: float | None = None, *, reason: str = "") -> None:
        """Make a message visible again; see `Message.release`."""
        self._thread.call(partial(self._inner.release, unwrapped(message), delay, reason=reason))

    def reject(self, message: Received, reason: str) -> None:
        """Make a message a dead letter; see `Message.reject`."""
        self._thread.call(partial(self._inner.reject, unwrapped(message), reason))

    def delete_batch(self, messages: Iterable[Received]) -> None:
        """Delete messages: one request for each broker, for any number of messages.

        Raises:
            BatchError: Some could not be deleted, or a text is not a receipt handle; it has their
                errors. The others are deleted.
            BrokerError: The only message could not be deleted.
        """
        self._thread.call(partial(self._inner.delete_batch, list(map(unwrapped, messages))))

    def extend_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Set the visibility timeout of messages; errors as for `delete_batch`."""
        self._thread.call(
            partial(self._inner.extend_batch, list(map(unwrapped, messages)), seconds)
        )

    def change_visibility_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Make messages visible after `seconds` from now; errors as for `delete_batch`."""
        self._thread.call(
            partial(self._inner.change_visibility_batch, list(map(unwrapped, messages)), seconds)
        )

    def release_batch(
        self, messages: Iterable[Received], delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Make messages visible again; errors as for `delete_batch`."""
        self._thread.call(
            partial(self._inner.release_batch, list(map(unwrapped, messages)), delay, reason=reason)
        )

    def counts(self) -> list[QueueCounts]:
        """Return the exact number of messages of each partition, by state."""
        return self._thread.call(self._inner.counts)

    def peek(
        self, max_messages: int = 10, *, states: Iterable[MessageState] = ()
    ) -> list[PeekedMessage]:
        """Return messages by partition and offset without receiving them; that does not count.

        Args:
            max_messages: Maximum number of messages.
            states: States of messages; all by default.
        """
        return self._thread.call(partial(self._inner.peek, max_messages, states=list(states)))

    def history(
        self,
        max_events: int = 1000,
        *,
        since_ms: int = 0,
        message_id: str | None = None,
        trace_id: str | None = None,
    ) -> list[HistoryEvent]:
        """Return events of messages, by time: the newest ones.

        Events go back as far as the queue keeps them (`history_retention_ms`); Spark reads all of
        them (`queueHistory`).

        Args:
            max_events: Maximum number; an event of many messages counts once.
            since_ms: Start in Unix milliseconds.
            message_id: Only events of this message. An event of many messages, such as a purge,
                is one of them if it changed this message; it has the offset of the message then.
            trace_id: Only events of messages with this trace id in their headers, also of deleted
                ones. The call reads all records of the topic that were sent since `since_ms`, and
                the history once for each message of the trace.

        Raises:
            UnknownQueueError: There is no such queue.
            ValueError: A text is not a message id or a trace id, or there are both.
        """
        return self._thread.call(
            partial(
                self._inner.history,
                max_events,
                since_ms=since_ms,
                message_id=message_id,
                trace_id=trace_id,
            )
        )

    def story(self, message_id: str) -> MessageStory:
        """Return the waits and leases of a message, each with start and end.

        They come from the history of the queue, so they go back as far as that.

        Args:
            message_id: Id from the receipt of its send, or of a received message.

        Raises:
            UnknownQueueError: There is no such queue.
            UnknownPartitionError: The queue has no such partition.
            ValueError: The text is not a message id.
        """
        return self._thread.call(partial(self._inner.story, message_id))

    def in_flight(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages in flight, with holder, end of visibility timeout and receive count."""
        return self._thread.call(partial(self._inner.in_flight, max_messages))

    def dead_letters(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return the dead letters of this queue, with their reasons.

        Those that are still in this queue, and those in its dead-letter queue that come from it.
        """
        return self._thread.call(partial(self._inner.dead_letters, max_messages))

    def cancel(self, message_id: str) -> None:
        """Cancel a message that is still delayed; durable when it returns.

        Args:
            message_id: Id from the receipt of its send.

        Raises:
            InvalidRequestError: It is not delayed (any more), so it can be received.
            ReceiptExpiredError: It is in flight.
            MessageGoneError: The message does not exist, or is done.
            ValueError: The text is not a message id.
        """
        self._thread.call(partial(self._inner.cancel, message_id))

    def cancel_batch(self, message_ids: Iterable[str]) -> None:
        """Cancel messages that are still delayed.

        Raises:
            BatchError: Some of several messages could not be cancelled; it has their errors.
            TidelogError: The only message could not be cancelled; see `cancel`.
            ValueError: A text is not a message id; nothing is cancelled.
        """
        self._thread.call(partial(self._inner.cancel_batch, list(message_ids)))

    def purge(self) -> int:
        """Delete all current messages, in any state; return their number.

        The records stay in the topic.
        """
        return self._thread.call(self._inner.purge)

    def seek(self, to: OffsetSpec | Mapping[int, int]) -> int:
        """Deliver everything from a place on again; return the number of messages after that.

        Receipts of earlier deliveries become invalid. Other queues on the topic do not change.

        Args:
            to: `"earliest"`, `"latest"`, or Unix milliseconds: the first record of this time or
                later. Or the offset of each partition, by its number.

        Raises:
            OffsetOutOfRangeError: An offset is not in the log; the error has both bounds.
            ValueError: A partition has no offset.
        """
        return self._thread.call(partial(self._inner.seek, to))

    def redrive(
        self,
        *,
        to_topic: str | None = None,
        messages_per_s: int | None = None,
        only_from: str | None = None,
        redrive_id: bytes = b"",
        note: str = "",
        only_sources: bool = False,
    ) -> int:
        """Start to move the dead letters of this dead-letter queue back; return their number.

        A redrive survives failures of brokers; `redrive_status` has its progress. The same call
        while it runs changes nothing. Every queue on a topic gets the messages that return there.

        Args:
            to_topic: Destination; by default the source of each message.
            messages_per_s: Maximum messages per second and partition; by default without a limit.
            only_from: Only dead letters of this queue.
            redrive_id: Up to 64 bytes that name the redrive: the call may be repeated with them,
                also after its end, and is an error while a redrive with another id runs. Empty for
                none; then a call with the same arguments is the same redrive.
            note: Text of up to 1,024 characters, which reports return.
            only_sources: Leave messages here whose sources have another dead-letter queue by now.
                Then a user needs no more rights than `send` of the sources. Without `to_topic`.

        Raises:
            InvalidRequestError: Another redrive runs, or the arguments contradict each other.
            UnsupportedVersionError: A broker is too old for an id or `only_sources`.
            UnknownTopicError: There is no such topic.
        """
        return self._thread.call(
            partial(
                self._inner.redrive,
                to_topic=to_topic,
                messages_per_s=messages_per_s,
                only_from=only_from,
                redrive_id=redrive_id,
                note=note,
                only_sources=only_sources,
            )
        )

    def new_redrive_id(self) -> bytes:
        """Return a random id of 16 bytes for a redrive."""
        return self._thread.call_sync(self._inner.new_redrive_id)

    def redrive_status(self) -> RedriveReport:
        """Return the progress of the current or last redrive of this dead-letter queue."""
        return self._thread.call(self._inner.redrive_status)

    def redrives(self) -> list[RedriveReport]:
        """Return the progress of up to ten redrives, the latest first."""
        return self._thread.call(self._inner.redrives)

    def cancel_redrive(self, redrive_id: bytes = b"") -> None:
        """Stop the redrive; messages that were not taken out yet stay.

        Args:
            redrive_id: Stop the redrive of this id only; empty for any.
        """
        self._thread.call(partial(self._inner.cancel_redrive, redrive_id))
