"""Queue client: sending, receiving and settling messages (SQS: `SendMessage`, `ReceiveMessage`).

Shell: combines its parts. No part has a task that lives longer than a call, except for the
producer that all queues of a client share.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Unpack, final

from msgspec.structs import replace

from tidelog.client.admin.queue_metadata import setting_of
from tidelog.client.admin.queues import describe_queues
from tidelog.client.admin.redrive_status import RedriveReport, report_of, reports_of
from tidelog.client.cluster.durations import milliseconds_of
from tidelog.client.cluster.list_offsets import OffsetSpec, list_offsets_at
from tidelog.client.config import configured
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.context import QueueContext
from tidelog.client.queue.inspect.cancel import QueueCanceller, parse_message_id
from tidelog.client.queue.inspect.history import HistoryEvent
from tidelog.client.queue.inspect.history_reader import HistoryQuery, HistoryReader
from tidelog.client.queue.inspect.message_story import MessageStory, intervals_of
from tidelog.client.queue.inspect.peek import PeekedMessage, PeekQuery, QueuePeeker
from tidelog.client.queue.inspect.record_search import messages_of_trace, record_at
from tidelog.client.queue.partition_calls import PartitionCalls
from tidelog.client.queue.receive.attempt_id import ATTEMPT_ID_BYTES, attempt_id_on_wire
from tidelog.client.queue.receive.message import (
    DELETE,
    RETURN,
    VALUE_BYTES_MAX,
    Disposition,
    Message,
    extension,
    giving_up,
    rejection,
    visibility,
)
from tidelog.client.queue.receive.message_window import WindowedQueue
from tidelog.client.queue.receive.queue_layout import QueueLayout
from tidelog.client.queue.receive.reassembler import Reassembler, may_be_large
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace, place_of
from tidelog.client.queue.receive.receive_coalescer import ReceiveCoalescer
from tidelog.client.queue.receive.receive_options import ReceiveOptions
from tidelog.client.queue.receive.receiver import QueueReceiver
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.client.queue.receive.subscription import QueueSubscription
from tidelog.client.queue.receive.worker import (
    QueueWorker,
    WorkerConfig,
    WorkerSettings,
)
from tidelog.client.queue.send.chunk_writer import Source
from tidelog.client.queue.send.message_fields import MessageFields, OutgoingMessage
from tidelog.client.queue.send.publisher import QueuePublisher
from tidelog.client.topic_partition import TopicPartition
from tidelog.client.tracing.trace_context import parse_trace_id
from tidelog.wire.errors import (
    BatchError,
    InvalidReceiptError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    TidelogError,
)
from tidelog.wire.messages.queues import (
    RECEIVE_COUNT_MAX,
    MessageState,
    QueueCounts,
    RedriveRequest,
)

Received = Message | str
"""A message, or the receipt handle of a message, perhaps received by another process."""

_RECEIVE_BYTES_MAX: Final = 8 << 20
"""Maximum bytes of records in one reply, unless a single message is larger."""
_NO_QUEUE: Final = "none"
_STORY_EVENTS_MAX: Final = 1_000_000


@final
class Queue:
    """Queue, by its name. The constructor sends no request; any number of tasks may use it.

    Messages are delivered at least once. A received message is in flight until its receiver settles
    it or its visibility timeout is over; then it is delivered again. While brokers fail over, calls
    wait and retry for up to `ClientConfig.request_timeout`; `send` for
    `ClientConfig.queue_delivery_timeout`.
    """

    def __init__(self, context: QueueContext, name: str, *, holder: str = "") -> None:
        """Use `client.queue(name)`."""
        self.name = name
        cluster, queue_metadata = context.cluster, context.queue_metadata
        self._queue_metadata = queue_metadata
        self._cluster = cluster
        self._counters = cluster.counters.queues.of(name)
        self._holder = holder or cluster.config.client_id
        self._settler = QueueSettler(cluster, queue_metadata, context.settled, name=name)
        self._receiver = QueueReceiver(cluster, queue_metadata, self._settler, name=name)
        self._coalescer = ReceiveCoalescer(
            self._receiver, self._settler, cluster.tasks, new_attempt_id=self._new_attempt_id
        )
        self._reassembler = Reassembler(self._settler)
        self._calls = PartitionCalls(cluster, queue_metadata, name)
        self._publisher = QueuePublisher(
            cluster,
            queue_metadata,
            self._calls,
            producer=context.producer,
            ordered_sender=partial(context.ordered_sender, name),
        )
        self._canceller = QueueCanceller(cluster, queue_metadata, self._calls)
        self._peeker = QueuePeeker(cluster, queue_metadata, self._calls)
        self._history_reader = HistoryReader(cluster, queue_metadata, self._calls)

    # -- sending ----------------------------------------------------------------------------------

    async def send(self, value: Source | None, **fields: Unpack[MessageFields]) -> Receipt:
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
        message: bytes | OutgoingMessage
        if type(value) is bytes and not fields:
            message = value
        else:
            message = OutgoingMessage(value=value, **fields)
        (result,) = await self._publisher.send([message])
        if isinstance(result, TidelogError):
            raise result
        self._counters.sent += 1
        return result

    async def send_batch(self, messages: Iterable[bytes | OutgoingMessage]) -> list[Receipt]:
        """Send messages and wait until all are acknowledged; much faster than one by one.

        Values above the limit of the topic are sent in chunks. In a batch for a FIFO queue they
        fail instead, because they would come behind later messages of their group.

        Raises:
            BatchError: Some were refused, or not acknowledged; it has their errors, and the
                receipts of the others, which are sent.
            UnknownQueueError: There is no such queue.
            ValueError: A number is out of range; nothing is sent.
        """
        given = list(messages)
        results = await self._publisher.send(given)
        receipts: dict[int, Receipt] = {}
        errors: dict[int, TidelogError] = {}
        for index, result in enumerate(results):
            if isinstance(result, TidelogError):
                errors[index] = result
            else:
                receipts[index] = result
        self._counters.sent += len(receipts)
        if errors:
            raise BatchError(
                f"{len(errors)} of {len(given)} messages were not acknowledged, the first one"
                f" because: {next(iter(errors.values()))}",
                errors,
                receipts,
            )
        return list(receipts.values())

    # -- receiving --------------------------------------------------------------------------------

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
        receiving = self._receive(
            max_messages,
            visibility_timeout=visibility_timeout,
            wait=wait,
            raise_at_limit=raise_at_limit,
            attempt_id=attempt_id,
        )
        tracing = self._cluster.tracing
        if tracing is None:
            messages = await receiving
            if may_be_large(messages):
                return await self._reassembler.joined(messages, max_value_bytes)
            return messages
        with tracing.receive(self.name) as span:
            messages = await self._reassembler.joined(await receiving, max_value_bytes)
            span.received(messages)
        return messages

    async def _receive(
        self,
        max_messages: int,
        *,
        visibility_timeout: float | None,
        wait: float | None,
        raise_at_limit: bool = False,
        attempt_id: bytes | str | None = None,
        wire_id: bytes | None = None,
    ) -> list[Message]:
        """Return messages; large messages are not joined.

        `wire_id` is the attempt id of an attempt that this client has made, and that has failed.
        """
        if not 1 <= max_messages <= RECEIVE_COUNT_MAX:
            raise ValueError(f"max_messages is from 1 to {RECEIVE_COUNT_MAX}, not {max_messages}")
        if wait is not None:
            milliseconds_of("wait", wait)
        if attempt_id is not None:
            wire_id = attempt_id_on_wire(attempt_id)
        layout = self._receiver.known_layout() or await self._receiver.layout()
        options = self._options(layout, max_messages, visibility_timeout=visibility_timeout)
        if attempt_id is not None and not layout.description.is_fifo:
            # Another receive would return other messages, which the caller does not expect.
            raise InvalidRequestError(
                f"queue {self.name!r} is not FIFO: only receives of FIFO queues have an attempt id;"
                " receive without it"
            )
        if raise_at_limit or wire_id is not None:
            options = replace(
                options,
                attempt_id=wire_id or options.attempt_id,
                raises_at_limit=raise_at_limit,
                is_repeatable=attempt_id is not None,
            )
        wait_s = layout.wait_s if wait is None else wait
        is_fifo = layout.description.is_fifo
        if self._coalescer.is_of_use(options, is_fifo=is_fifo):
            messages = await self._coalescer.receive(options, wait_s=wait_s, is_fifo=is_fifo)
        else:
            messages = await self._receiver.receive(options, wait_s=wait_s, layout=layout)
        self._counters.received += len(messages)
        self._counters.empty_receives += not messages
        return messages

    def _options(
        self, layout: QueueLayout, max_messages: int, *, visibility_timeout: float | None
    ) -> ReceiveOptions:
        timeout_ms = None
        if visibility_timeout is not None:
            timeout_ms = milliseconds_of("visibility_timeout", visibility_timeout)
        wire_id = self._new_attempt_id() if layout.description.is_fifo else None
        return ReceiveOptions(max_messages, _RECEIVE_BYTES_MAX, timeout_ms, self._holder, wire_id)

    def _new_attempt_id(self) -> bytes:
        return self._cluster.env.random.randbytes(ATTEMPT_ID_BYTES)

    def give_back(self, messages: Sequence[Message]) -> None:
        """Return received messages that no program has seen; their receive does not count."""
        places = [message.place for message in messages]
        self._settler.settle_soon(places, RETURN)

    async def delete(self, message: Received) -> None:
        """Delete a message; see `Message.delete`."""
        await self._settler.settle(_places([message]), DELETE)

    async def extend(self, message: Received, seconds: float) -> None:
        """Set the visibility timeout of a message to `seconds` from now; see `Message.extend`."""
        await self._settle([message], extension(seconds))

    async def change_visibility(self, message: Received, seconds: float) -> None:
        """Make a message visible after `seconds`; see `Message.change_visibility`."""
        await self._settle([message], visibility(seconds))

    async def release(
        self, message: Received, delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Make a message visible again; see `Message.release`."""
        await self._settle([message], giving_up(delay, reason))

    async def reject(self, message: Received, reason: str) -> None:
        """Make a message a dead letter; see `Message.reject`."""
        await self._settle([message], rejection(reason))

    async def delete_batch(self, messages: Iterable[Received]) -> None:
        """Delete messages: one request for each broker, for any number of messages.

        Raises:
            BatchError: Some could not be deleted, or a text is not a receipt handle; it has their
                errors. The others are deleted.
            BrokerError: The only message could not be deleted.
        """
        await self._settle(messages, DELETE)

    async def extend_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Set the visibility timeout of messages; errors as for `delete_batch`."""
        await self._settle(messages, extension(seconds))

    async def change_visibility_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Make messages visible after `seconds` from now; errors as for `delete_batch`."""
        await self._settle(messages, visibility(seconds))

    async def release_batch(
        self, messages: Iterable[Received], delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Make messages visible again; errors as for `delete_batch`."""
        await self._settle(messages, giving_up(delay, reason))

    async def _settle(self, messages: Iterable[Received], verdict: Disposition) -> None:
        if isinstance(messages, str):
            raise TypeError("a list of messages is expected, not a single receipt handle")
        given = list(messages)
        await self._settler.settle(_places(given), verdict)

    # -- working ----------------------------------------------------------------------------------

    def worker(
        self,
        handler: Callable[[Message], Awaitable[object]],
        config: WorkerConfig | None = None,
        **settings: Unpack[WorkerSettings],
    ) -> QueueWorker:
        """Return a worker; its `run` passes messages to `handler`.

        Raises:
            ConfigError: A setting is not legal.
        """
        config = configured(WorkerConfig, config, settings, of="worker")
        return QueueWorker(self._windowed(), self._cluster, handler, config=config)

    async def work(
        self, handler: Callable[[Message], Awaitable[object]], **settings: Unpack[WorkerSettings]
    ) -> None:
        """Pass messages to `handler` without an end; see `QueueWorker`.

        Raises:
            ConfigError: A setting is not valid.
            UnknownQueueError: The queue does not exist, or was deleted.
        """
        await self.worker(handler, **settings).run()

    def subscribe(
        self,
        max_messages: int = 100,
        *,
        visibility_timeout: float | None = None,
        wait: float = 20.0,
        max_value_bytes: int = VALUE_BYTES_MAX,
    ) -> QueueSubscription:
        """Return a stream of messages that are received ahead and kept in flight.

        Use it with `async with`, and iterate over it. The program settles the messages; each frees
        its place in the window then.

        Args:
            max_messages: Maximum number of messages that are held, from 1 to 1,000: handed out and
                not settled, or waiting.
            visibility_timeout: Seconds of the visibility timeout at the receive, and of its
                extensions; by default, the setting of the queue. After a crash of this program its
                messages become visible so much later.
            wait: Seconds that one receive waits for messages.
            max_value_bytes: Maximum length of a large message that is joined when it is handed out;
                longer ones are read with `message.chunks()`.

        Raises:
            ValueError: A number is out of range.
        """
        return QueueSubscription(
            self._windowed(),
            self._cluster,
            max_messages=max_messages,
            visibility_timeout=visibility_timeout,
            wait=wait,
            max_value_bytes=max_value_bytes,
        )

    def _windowed(self) -> WindowedQueue:
        return WindowedQueue(
            self._receive,
            self._options,
            self._receiver,
            self._settler,
            self._calls.visibility_timeout,
        )

    # -- inspecting and administering -------------------------------------------------------------

    async def counts(self) -> list[QueueCounts]:
        """Return the exact number of messages of each partition, by state."""
        return await self._calls.counts()

    async def peek(
        self, max_messages: int = 10, *, states: Iterable[MessageState] = ()
    ) -> list[PeekedMessage]:
        """Return messages by partition and offset without receiving them; that does not count.

        Args:
            max_messages: Maximum number of messages.
            states: States of messages; all by default.
        """
        return await self._peeker.peek(PeekQuery(list(states), max_messages))

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
        message = None if message_id is None else parse_message_id(message_id)
        if trace_id is None:
            return await self._history_reader.read(HistoryQuery(since_ms, max_events, message))
        if message is not None:
            raise ValueError("message_id and trace_id exclude each other; give one of them")
        wanted = parse_trace_id(trace_id)
        topic = (await self._calls.describe()).topic
        events: list[HistoryEvent] = []
        for each in await messages_of_trace(self._cluster, topic, wanted, since_ms=since_ms):
            query = HistoryQuery(since_ms, max_events, parse_message_id(each))
            events += await self._history_reader.read(query)
        events.sort(key=lambda event: event.time_ms)
        return events[-max_events:]

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
        partition, offset = parse_message_id(message_id)
        topic = (await self._calls.describe()).topic
        record = await record_at(self._cluster, TopicPartition(topic, partition), offset)
        events = await self._history_reader.read(
            HistoryQuery(0, _STORY_EVENTS_MAX, (partition, offset))
        )
        sent_ms = None if record is None else record.timestamp_ms
        now_ms = self._cluster.env.clock.now_ms()
        return MessageStory(
            self.name,
            message_id,
            () if record is None else record.headers,
            sent_ms,
            intervals_of(events, sent_ms=sent_ms, now_ms=now_ms),
            events,
        )

    async def in_flight(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages in flight, with holder, end of visibility timeout and receive count."""
        return await self.peek(max_messages, states=[MessageState.IN_FLIGHT])

    async def dead_letters(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return the dead letters of this queue, with their reasons.

        Those that are still in this queue, and those in its dead-letter queue that come from it.
        """
        found = await self.peek(max_messages, states=[MessageState.DEAD])
        # Described again, because `dead_letter_queue` may have changed a moment ago.
        (described,) = await describe_queues(self._cluster, [self.name])
        target = setting_of(described, "dead_letter_queue")
        room = max_messages - len(found)
        if target == _NO_QUEUE or not room:
            return found

        def is_ours(seen: PeekedMessage) -> bool:
            return seen.origin is not None and seen.origin.queue == self.name

        calls = PartitionCalls(self._cluster, self._queue_metadata, target)
        peeker = QueuePeeker(self._cluster, self._queue_metadata, calls)
        moved = await peeker.peek(PeekQuery([], room, is_ours))
        # A message that moved between the two peeks is in both.
        places = {(seen.origin.partition, seen.origin.offset) for seen in moved if seen.origin}
        here = [each for each in found if (each.record.partition, each.record.offset) not in places]
        return here + moved

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
        await self._canceller.cancel([message_id])

    async def cancel_batch(self, message_ids: Iterable[str]) -> None:
        """Cancel messages that are still delayed.

        Raises:
            BatchError: Some of several messages could not be cancelled; it has their errors.
            TidelogError: The only message could not be cancelled; see `cancel`.
            ValueError: A text is not a message id; nothing is cancelled.
        """
        await self._canceller.cancel(message_ids)

    async def purge(self) -> int:
        """Delete all current messages, in any state; return their number.

        The records stay in the topic.
        """
        return sum(done.count for done in await self._calls.purge())

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
        description = await self._calls.describe()
        numbers = range(len(description.partitions))
        places = [TopicPartition(description.topic, number) for number in numbers]
        if isinstance(to, Mapping):
            if set(to) != set(numbers):
                raise ValueError(f"offsets are given for {sorted(to)}, not for all of {numbers}")
            starts = await list_offsets_at(self._cluster, places, "earliest")
            ends = await list_offsets_at(self._cluster, places, "latest")
            offsets = {
                at: _checked(at, to[at.partition], start=starts[at], end=ends[at]) for at in places
            }
        else:
            offsets = await list_offsets_at(self._cluster, places, to)
        done = await self._calls.seek([offsets[place] for place in places])
        return sum(each.count for each in done)

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
        destination = None
        if to_topic is not None:
            destination = (await self._cluster.topic(to_topic)).topic_id
        wanted = RedriveRequest(
            b"",
            [],
            destination,
            messages_per_s,
            only_from,
            redrive_id=redrive_id,
            note=note,
            only_sources=only_sources,
        )
        return sum(done.count for done in await self._calls.redrive(wanted))

    def new_redrive_id(self) -> bytes:
        """Return a random id of 16 bytes for a redrive."""
        return self._cluster.env.random.randbytes(16)

    async def redrive_status(self) -> RedriveReport:
        """Return the progress of the current or last redrive of this dead-letter queue."""
        return report_of(*await self._calls.redrives())

    async def redrives(self) -> list[RedriveReport]:
        """Return the progress of up to ten redrives, the latest first."""
        return reports_of(*await self._calls.redrives(with_earlier=True))

    async def cancel_redrive(self, redrive_id: bytes = b"") -> None:
        """Stop the redrive; messages that were not taken out yet stay.

        Args:
            redrive_id: Stop the redrive of this id only; empty for any.
        """
        await self._calls.redrive(RedriveRequest(b"", [], is_cancelled=True, redrive_id=redrive_id))


def _places(messages: Sequence[Received]) -> list[ReceivedPlace | Message | InvalidReceiptError]:
    """Return the places in receipt handles, and the error of each text that is none.

    Raises:
        TypeError: A value is neither a message nor text.
    """
    places: list[ReceivedPlace | Message | InvalidReceiptError] = []
    for message in messages:
        if isinstance(message, Message):
            places.append(message)
            continue
        if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a message or a receipt handle is expected, not {type(message)!r}")
        try:
            places.append(place_of(message))
        except InvalidReceiptError as error:
            places.append(error)
    return places


def _checked(at: TopicPartition, offset: int, *, start: int, end: int) -> int:
    """Return an offset of a seek: messages below it would count as deleted, future ones too.

    Raises:
        OffsetOutOfRangeError: It is not in the log.
    """
    if start <= offset <= end:
        return offset
    raise OffsetOutOfRangeError(
        f"{at.topic}/{at.partition} has offsets from {start} to {end}, not {offset}",
        log_start_offset=start,
        log_end_offset=end,
    )
