"""Queues: sending messages, receiving them, and what becomes of them.

Shell: puts the parts together. No part of it has a task that lives longer than a call, but for the
producer that all queues of a client share.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Unpack, final

from tidelog.client.admin.queues import describe_queues
from tidelog.client.admin.redrive_status import RedriveReport, report_of
from tidelog.client.cluster.durations import milliseconds_of, seconds_of
from tidelog.client.cluster.list_offsets import OffsetSpec, list_offsets_at
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.context import QueueContext
from tidelog.client.queue.inspect.cancel import QueueCanceller, parse_message_id
from tidelog.client.queue.inspect.history import HistoryEvent
from tidelog.client.queue.inspect.history_reader import HistoryQuery, HistoryReader
from tidelog.client.queue.inspect.peek import PeekedMessage, PeekQuery, QueuePeeker
from tidelog.client.queue.partition_calls import PartitionCalls
from tidelog.client.queue.receive.message import (
    DELETE,
    VALUE_BYTES_MAX,
    Disposition,
    Message,
    extension,
    giving_up,
    rejection,
)
from tidelog.client.queue.receive.reassembler import Reassembler
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace, place_of
from tidelog.client.queue.receive.receive_coalescer import ReceiveCoalescer
from tidelog.client.queue.receive.receiver import QueueReceiver, ReceiveOptions
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.client.queue.receive.worker import (
    QueueWorker,
    WorkedQueue,
    WorkerConfig,
    WorkerSettings,
)
from tidelog.client.queue.send.chunk_writer import Source
from tidelog.client.queue.send.message_fields import MessageFields, OutgoingMessage
from tidelog.client.queue.send.publisher import QueuePublisher
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import BatchError, InvalidReceiptError, TidelogError
from tidelog.wire.messages.queues import (
    RECEIVE_COUNT_MAX,
    MessageState,
    QueueCounts,
    RedriveRequest,
)

Received = Message | str
"""A message, or the receipt handle of one that may have been received elsewhere."""

_RECEIVE_BYTES_MAX: Final = 8 << 20
"""Of records in one answer, unless a single message is larger."""
_NO_QUEUE: Final = "none"
_ATTEMPT_ID_BITS: Final = 128


@final
class Queue:
    """One queue, by its name. Making it asks nobody; any number of tasks may use it.

    Messages are handed out at least once: whoever received one has it until it is settled or its
    time is over, and then somebody else gets it. While brokers come and go, calls wait and try
    again, for up to `ClientConfig.request_timeout`; `send` for `ProducerConfig.delivery_timeout`.
    """

    def __init__(self, context: QueueContext, name: str, *, holder: str = "") -> None:
        """Use `client.queue(name)`."""
        self.name = name
        cluster, queue_metadata = context.cluster, context.queue_metadata
        self._queue_metadata = queue_metadata
        self._cluster = cluster
        self._holder = holder or cluster.config.client_id
        self._settler = QueueSettler(cluster, queue_metadata, context.settled, name=name)
        self._receiver = QueueReceiver(cluster, queue_metadata, self._settler, name=name)
        self._coalescer = ReceiveCoalescer(self._receiver, self._settler)
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
        (result,) = await self._publisher.send([OutgoingMessage(value=value, **fields)])
        if isinstance(result, TidelogError):
            raise result
        return result

    async def send_batch(self, messages: Iterable[bytes | OutgoingMessage]) -> list[Receipt]:
        """Send messages and wait until all are acknowledged; much faster than one by one.

        What is longer than its topic takes goes in chunks; one among others of a FIFO queue fails
        instead, for it would come behind later ones of its group.

        Raises:
            BatchError: Some were not acknowledged; it says which, and why. The others are sent.
            UnknownQueueError: There is no such queue.
            ValueError: A number is out of range; nothing is sent.
        """
        given = list(messages)
        results = await self._publisher.send(given)
        receipts: list[Receipt] = []
        errors: dict[int, TidelogError] = {}
        for index, result in enumerate(results):
            if isinstance(result, TidelogError):
                errors[index] = result
            else:
                receipts.append(result)
        if errors:
            raise BatchError(
                f"{len(errors)} of {len(given)} messages were not acknowledged, the first one"
                f" because: {next(iter(errors.values()))}",
                errors,
            )
        return receipts

    # -- receiving --------------------------------------------------------------------------------

    async def receive(
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
        messages = await self._receive(
            max_messages, visibility_timeout=visibility_timeout, wait=wait
        )
        return await self._reassembler.joined(messages, max_value_bytes)

    async def _receive(
        self, max_messages: int, *, visibility_timeout: float | None, wait: float | None
    ) -> list[Message]:
        """Return messages, large ones as they are."""
        if not 1 <= max_messages <= RECEIVE_COUNT_MAX:
            raise ValueError(f"max_messages is from 1 to {RECEIVE_COUNT_MAX}, not {max_messages}")
        timeout_ms = None
        if visibility_timeout is not None:
            timeout_ms = milliseconds_of("visibility_timeout", visibility_timeout)
        if wait is not None:
            milliseconds_of("wait", wait)
        description = await self._calls.describe()
        if wait is None:
            wait = seconds_of(description.config["receive_message_wait_time_ms"])
        attempt_id = None
        if description.is_fifo:
            attempt_id = self._cluster.env.random.getrandbits(_ATTEMPT_ID_BITS).to_bytes(16, "big")
        options = ReceiveOptions(
            max_messages, _RECEIVE_BYTES_MAX, timeout_ms, self._holder, attempt_id
        )
        return await self._coalescer.receive(options, wait_s=wait)

    async def delete(self, message: Received) -> None:
        """Be done with a message; see `Message.delete`."""
        await self._settle([message], DELETE)

    async def extend(self, message: Received, seconds: float) -> None:
        """Keep a message for so long from now on; see `Message.extend`."""
        await self._settle([message], extension(seconds))

    async def release(
        self, message: Received, delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Let others have a message; see `Message.release`."""
        await self._settle([message], giving_up(delay, reason))

    async def reject(self, message: Received, reason: str) -> None:
        """Make a message a dead letter; see `Message.reject`."""
        await self._settle([message], rejection(reason))

    async def delete_batch(self, messages: Iterable[Received]) -> None:
        """Be done with messages: one request for each broker, however many there are.

        Raises:
            BatchError: Some could not be deleted; it says which, and why. The others are.
            BrokerError: There was only one, and it could not be deleted.
            InvalidReceiptError: One of them is no receipt handle; nothing is deleted.
        """
        await self._settle(messages, DELETE)

    async def extend_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Keep messages for so long from now on; errors as for `delete_batch`."""
        await self._settle(messages, extension(seconds))

    async def release_batch(
        self, messages: Iterable[Received], delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Let others have messages; errors as for `delete_batch`."""
        await self._settle(messages, giving_up(delay, reason))

    async def _settle(self, messages: Iterable[Received], verdict: Disposition) -> None:
        if isinstance(messages, str):
            raise TypeError("several messages are wanted, not one handle")
        given = list(messages)
        await self._settler.settle(_places(given), verdict)

    # -- working ----------------------------------------------------------------------------------

    def worker(
        self,
        handler: Callable[[Message], Awaitable[object]],
        config: WorkerConfig | None = None,
        **settings: Unpack[WorkerSettings],
    ) -> QueueWorker:
        """Return a worker, whose `run` hands messages to `handler`.

        Raises:
            ConfigError: A setting is not legal.
        """
        config = config or WorkerConfig(**settings)
        queue = WorkedQueue(self._receive, self._settler, self._calls.visibility_timeout)
        return QueueWorker(queue, self._cluster, handler, config=config)

    async def work(
        self, handler: Callable[[Message], Awaitable[object]], **settings: Unpack[WorkerSettings]
    ) -> None:
        """Hand messages to `handler`, for ever; see `QueueWorker`.

        Raises:
            ConfigError: A setting is not legal.
            UnknownQueueError: There is no such queue, any more.
        """
        await self.worker(handler, **settings).run()

    # -- looking after it -------------------------------------------------------------------------

    async def counts(self) -> list[QueueCounts]:
        """Return how many messages of each partition are in which state, exactly."""
        return await self._calls.counts()

    async def peek(
        self, max_messages: int = 10, *, states: Iterable[MessageState] = ()
    ) -> list[PeekedMessage]:
        """Return messages by partition and offset without taking them; that does not count.

        Args:
            max_messages: How many at most.
            states: Only those in these states; all by default.
        """
        return await self._peeker.peek(PeekQuery(list(states), max_messages))

    async def history(
        self,
        max_events: int = 1000,
        *,
        since_ms: int = 0,
        message_id: str | None = None,
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
        if message_id is None:
            return await self._history_reader.read(HistoryQuery(since_ms, max_events))
        partition, offset = parse_message_id(message_id)

        def is_wanted(event: HistoryEvent) -> bool:
            return event.offset is None or event.offset == offset

        return await self._history_reader.read(
            HistoryQuery(since_ms, max_events, [partition], is_wanted)
        )

    async def in_flight(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages that somebody has: who, until when, and how often received."""
        return await self.peek(max_messages, states=[MessageState.IN_FLIGHT])

    async def dead_letters(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages that this queue has given up, with their reasons.

        Those that are still here, and those in its dead-letter queue that come from here.
        """
        found = await self.peek(max_messages, states=[MessageState.DEAD])
        # Asked anew: who has just named another dead-letter queue looks for letters there.
        (described,) = await describe_queues(self._cluster, [self.name])
        target = described.config["dead_letter_queue"]
        room = max_messages - len(found)
        if target == _NO_QUEUE or not room:
            return found

        def is_ours(seen: PeekedMessage) -> bool:
            return seen.origin is not None and seen.origin.queue == self.name

        calls = PartitionCalls(self._cluster, self._queue_metadata, target)
        peeker = QueuePeeker(self._cluster, self._queue_metadata, calls)
        moved = await peeker.peek(PeekQuery([], room, is_ours))
        # What moved between the two looks was seen at both places.
        places = {(seen.origin.partition, seen.origin.offset) for seen in moved if seen.origin}
        here = [each for each in found if (each.record.partition, each.record.offset) not in places]
        return here + moved

    async def cancel(self, message_id: str) -> None:
        """Do not deliver a message that is delayed still; durable when it returns.

        Args:
            message_id: As the receipt of its send says it.

        Raises:
            InvalidRequestError: It can be received already, for it is not delayed (any more).
            ReceiptExpiredError: Somebody has it.
            MessageGoneError: There is no such message, any more.
            ValueError: That is no message id.
        """
        await self._canceller.cancel([message_id])

    async def cancel_batch(self, message_ids: Iterable[str]) -> None:
        """Do not deliver messages that are delayed still.

        Raises:
            BatchError: Some of several could not be cancelled; it says which, and why.
            TidelogError: The only one could not be cancelled; see `cancel`.
            ValueError: One of them is no message id; nothing is cancelled.
        """
        await self._canceller.cancel(message_ids)

    async def purge(self) -> int:
        """Do away with all messages there are now, in whatever state; return how many.

        The records stay in the topic.
        """
        return sum(done.count for done in await self._calls.purge())

    async def seek(self, to: OffsetSpec) -> int:
        """Hand out again everything from a place on; return how many messages there are then.

        What was received before cannot be settled any more. Other queues do not notice.

        Args:
            to: `"earliest"`, `"latest"`, or Unix milliseconds: the first record of this time or
                later.
        """
        description = await self._calls.describe()
        count = len(description.partitions)
        places = [TopicPartition(description.topic, number) for number in range(count)]
        offsets = await list_offsets_at(self._cluster, places, to)
        done = await self._calls.seek([offsets[place] for place in places])
        return sum(each.count for each in done)

    async def redrive(
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
        destination = None
        if to_topic is not None:
            destination = (await self._cluster.topic(to_topic)).topic_id
        wanted = RedriveRequest(b"", [], destination, messages_per_s, only_from)
        return sum(done.count for done in await self._calls.redrive(wanted))

    async def redrive_status(self) -> RedriveReport:
        """Return how far the redrive of this dead-letter queue is that runs, or ran last."""
        return report_of(*await self._calls.redrives())

    async def cancel_redrive(self) -> None:
        """Bring back no more dead letters; those that are not taken out yet stay."""
        await self._calls.redrive(RedriveRequest(b"", [], is_cancelled=True))


def _places(messages: Sequence[Received]) -> list[ReceivedPlace | Message]:
    """Return what handles say.

    Raises:
        InvalidReceiptError: One of them is no handle; it says which.
        TypeError: Something is neither a message nor text.
    """
    places: list[ReceivedPlace | Message] = []
    for number, message in enumerate(messages, 1):
        if isinstance(message, Message):
            places.append(message)
            continue
        if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a message or a receipt handle is wanted, not {type(message)!r}")
        try:
            places.append(place_of(message))
        except InvalidReceiptError as error:
            if len(messages) == 1:
                raise
            text = f"{error} (it is number {number} of {len(messages)}; nothing was done)"
            raise InvalidReceiptError(text) from None
    return places
