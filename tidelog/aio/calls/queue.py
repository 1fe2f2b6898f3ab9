"""The calls of `tidelog.Queue`, for asyncio; written by `tools.face_calls`."""

from collections.abc import Iterable, Mapping
from functools import partial

from tidelog.aio.forwarding import Forwarding
from tidelog.aio.message import Message, Received, unwrapped
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.cluster.list_offsets import OffsetSpec
from tidelog.client.queue.inspect.history import HistoryEvent
from tidelog.client.queue.inspect.message_story import MessageStory
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.client.queue.queue import Queue as InnerQueue
from tidelog.client.queue.receive.message import VALUE_BYTES_MAX
from tidelog.wire.messages.queues import MessageState, QueueCounts


class QueueCalls(Forwarding[InnerQueue]):
    """See `tidelog.Queue`."""

    __slots__ = ()

    async def receive(
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
            Message(self._guest, each)
            for each in await self._guest.call(
                partial(
                    self._inner.receive,
                    max_messages,
                    visibility_timeout=visibility_timeout,
                    wait=wait,
                    max_value_bytes=max_value_bytes,
                    raise_at_limit=raise_at_limit,
                    attempt_id=attempt_id,
                ),
                undo=None if attempt_id else self._inner.give_back,
            )
        ]

    async def delete(self, message: Received) -> None:
        """Delete a message; see `Message.delete`."""
        await self._guest.call(partial(self._inner.delete, unwrapped(message)))

    async def extend(self, message: Received, seconds: float) -> None:
        """Set the visibility timeout of a message to `seconds` from now; see `Message.extend`."""
        await self._guest.call(partial(self._inner.extend, unwrapped(message), seconds))

    async def change_visibility(self, message: Received, seconds: float) -> None:
        """Make a message visible after `seconds`; see `Message.change_visibility`."""
        await self._guest.call(partial(self._inner.change_visibility, unwrapped(message), seconds))

    async def release(
        self, message: Received, delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Make a message visible again; see `Message.release`."""
        await self._guest.call(
            partial(self._inner.release, unwrapped(message), delay, reason=reason)
        )

    async def reject(self, message: Received, reason: str) -> None:
        """Make a message a dead letter; see `Message.reject`."""
        await self._guest.call(partial(self._inner.reject, unwrapped(message), reason))

    async def delete_batch(self, messages: Iterable[Received]) -> None:
        """Delete messages: one request for each broker, for any number of messages.

        Raises:
            BatchError: Some could not be deleted, or a text is not a receipt handle; it has their
                errors. The others are deleted.
            BrokerError: The only message could not be deleted.
        """
        await self._guest.call(partial(self._inner.delete_batch, list(map(unwrapped, messages))))

    async def extend_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Set the visibility timeout of messages; errors as for `delete_batch`."""
        await self._guest.call(
            partial(self._inner.extend_batch, list(map(unwrapped, messages)), seconds)
        )

    async def change_visibility_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Make messages visible after `seconds` from now; errors as for `delete_batch`."""
        await self._guest.call(
            partial(self._inner.change_visibility_batch, list(map(unwrapped, messages)), seconds)
        )

    async def release_batch(
        self, messages: Iterable[Received], delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Make messages visible again; errors as for `delete_batch`."""
        await self._guest.call(
            partial(self._inner.release_batch, list(map(unwrapped, messages)), delay, reason=reason)
        )

    async def counts(self) -> list[QueueCounts]:
        """Return the exact number of messages of each partition, by state."""
        return await self._guest.call(self._inner.counts)

    async def peek(
        self, max_messages: int = 10, *, states: Iterable[MessageState] = ()
    ) -> list[PeekedMessage]:
        """Return messages by partition and offset without receiving them; that does not count.

        Args:
            max_messages: Maximum number of messages.
            states: States of messages; all by default.
        """
        return await self._guest.call(partial(self._inner.peek, max_messages, states=list(states)))

    async def history(
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
        return await self._guest.call(
            partial(
                self._inner.history,
                max_events,
                since_ms=since_ms,
                message_id=message_id,
                trace_id=trace_id,
            )
        )

    async def story(self, message_id: str) -> MessageStory:
        """Return the waits and leases of a message, each with start and end.

        They come from the history of the queue, so they go back as far as that.

        Args:
            message_id: Id from the receipt of its send, or of a received message.

        Raises:
            UnknownQueueError: There is no such queue.
            UnknownPartitionError: The queue has no such partition.
            ValueError: The text is not a message id.
        """
        return await self._guest.call(partial(self._inner.story, message_id))

    async def in_flight(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages in flight, with holder, end of visibility timeout and receive count."""
        return await self._guest.call(partial(self._inner.in_flight, max_messages))

    async def dead_letters(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return the dead letters of this queue, with their reasons.

        Those that are still in this queue, and those in its dead-letter queue that come from it.
        """
        return await self._guest.call(partial(self._inner.dead_letters, max_messages))

    async def cancel(self, message_id: str) -> None:
        """Cancel a message that is still delayed; durable when it returns.

        Args:
            message_id: Id from the receipt of its send.

        Raises:
            InvalidRequestError: It is not delayed (any more), so it can be received.
            ReceiptExpiredError: It is in flight.
            MessageGoneError: The message does not exist, or is done.
            ValueError: The text is not a message id.
        """
        await self._guest.call(partial(self._inner.cancel, message_id))

    async def cancel_batch(self, message_ids: Iterable[str]) -> None:
        """Cancel messages that are still delayed.

        Raises:
            BatchError: Some of several messages could not be cancelled; it has their errors.
            TidelogError: The only message could not be cancelled; see `cancel`.
            ValueError: A text is not a message id; nothing is cancelled.
        """
        await self._guest.call(partial(self._inner.cancel_batch, list(message_ids)))

    async def purge(self) -> int:
        """Delete all current messages, in any state; return their number.

        The records stay in the topic.
        """
        return await self._guest.call(self._inner.purge)

    async def seek(self, to: OffsetSpec | Mapping[int, int]) -> int:
        """Deliver everything from a place on again; return the number of messages after that.

        Receipts of earlier deliveries become invalid. Other queues on the topic do not change.

        Args:
            to: `"earliest"`, `"latest"`, or Unix milliseconds: the first record of this time or
                later. Or the offset of each partition, by its number.

        Raises:
            OffsetOutOfRangeError: An offset is not in the log; the error has both bounds.
            ValueError: A partition has no offset.
        """
        return await self._guest.call(partial(self._inner.seek, to))

    async def redrive(
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
        return await self._guest.call(
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
        return self._here.new_redrive_id()

    async def redrive_status(self) -> RedriveReport:
        """Return the progress of the current or last redrive of this dead-letter queue."""
        return await self._guest.call(self._inner.redrive_status)

    async def redrives(self) -> list[RedriveReport]:
        """Return the progress of up to ten redrives, the latest first."""
        return await self._guest.call(self._inner.redrives)

    async def cancel_redrive(self, redrive_id: bytes = b"") -> None:
        """Stop the redrive; messages that were not taken out yet stay.

        Args:
            redrive_id: Stop the redrive of this id only; empty for any.
        """
        await self._guest.call(partial(self._inner.cancel_redrive, redrive_id))
