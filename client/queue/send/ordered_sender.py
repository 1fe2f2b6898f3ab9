"""Sending in order, to queues whose brokers look at each message: FIFO ones, and those with a rate.

Shell: owns a task for each partition while something is to be sent there. One request is under way
for a partition at a time, and what comes meanwhile goes together in the next one: so requests grow
by themselves under load, and order needs no more than that. A request whose answer was lost is
repeated as it was, under the same sequence, until it is known what became of it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

import trio

from tidelog.client.admin.queue_metadata import QueueMetadata
from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.cluster.metadata import PASSING_ERRORS
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.partitioner import partition_for_key
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.producer.receipt import AckLevel, Receipt
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import (
    ConnectError,
    ConnectionLostError,
    DeliveryTimeoutError,
    DuplicateSequenceError,
    FencedProducerError,
    LeaderNotAvailableError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RequestTimedOutError,
    ThrottledError,
    TidelogError,
    UnknownQueueError,
    WireFormatError,
)
from tidelog.wire.messages.produce import InitProducerReply, InitProducerRequest
from tidelog.wire.messages.queue_admin import QueueDescription
from tidelog.wire.messages.queues import SENT_TO_HEADER, SendReply, SendRequest
from tidelog.wire.protocol import api

_BATCH_BYTES: Final = 32 << 10
"""Of a batch: brokers hand out whole ones, so whoever receives a few messages is sent all of it."""
_PATIENCE: Final = 1.25
"""A connection counts as dead when a reply is so many times later than the broker was told."""
_HEADER_BYTES_MAX: Final = 64 << 10
_LEVELS: Final = {int(level): level for level in AckLevel}
_LOST_PLACE: Final = (OutOfOrderSequenceError, DuplicateSequenceError, FencedProducerError)
"""What a broker says that knows nothing of what it should know of this producer."""
_IN_DOUBT: Final = (ConnectionLostError, RequestTimedOutError, NotEnoughReplicasAfterAppendError)
"""What is said when the messages may be appended. A broker that is deposed says `NotLeaderError`
of those as well."""
_UNLIMITED: Final = "unlimited"


def looks_at_messages(queue: QueueDescription) -> bool:
    """Return whether messages are to be sent so to a queue; others are produced to its topic."""
    return queue.is_fifo or queue.config.get("send_rate", _UNLIMITED) != _UNLIMITED


@final
@dataclass(eq=False, slots=True)
class _Call:
    """What one caller waits for."""

    results: list[Receipt | TidelogError | None]
    open_count: int
    is_done: trio.Event = field(default_factory=trio.Event)

    def settle(self, place: int, result: Receipt | TidelogError) -> None:
        self.results[place] = result
        self.open_count -= 1
        if not self.open_count:
            self.is_done.set()


@final
@dataclass(eq=False, slots=True)
class _PendingMessage:
    """A message on its way."""

    record: ProducerRecord
    call: _Call
    place: int
    deadline: float


@final
@dataclass(eq=False, slots=True)
class _PartitionStream:
    """What goes to one partition, in order."""

    partition: int
    waiting: deque[_PendingMessage] = field(default_factory=deque[_PendingMessage])
    is_running: bool = False
    identity: InitProducerReply | None = None
    next_sequence: int = 0

    def is_forgotten(self, error: TidelogError) -> bool:
        """Return whether it says that nothing is known any more of what went this way."""
        is_unknown = (
            isinstance(error, OutOfOrderSequenceError) and error.detail("expected_sequence") == 0
        )
        return is_unknown and self.next_sequence > 0


@final
@dataclass(eq=False, slots=True)
class _Request:
    """Some messages that go together, and what has become of them so far."""

    messages: list[_PendingMessage]
    queue: QueueDescription
    batch: bytearray
    is_ambiguous: bool = False
    """Whether they may be appended."""


@final
class OrderedSender:
    """Sends to one queue; all who send to it by one client share it, so that they are in order."""

    def __init__(self, cluster: ClusterClient, queue_metadata: QueueMetadata, name: str) -> None:
        """Send to the queue `name`."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self._name = name
        self._streams: dict[int, _PartitionStream] = {}
        self._sticky = 0
        self._delivery_timeout = ProducerConfig().delivery_timeout

    async def send(
        self, queue: QueueDescription, records: Sequence[ProducerRecord]
    ) -> list[Receipt | TidelogError]:
        """Send records; return where each is, or why it was not acknowledged.

        If cancelled, any part of them may be sent.
        """
        call = _Call([None] * len(records), len(records))
        if not records:
            return []
        deadline = trio.current_time() + self._delivery_timeout
        self._sticky = (self._sticky + 1) % len(queue.partitions)
        streams: dict[int, _PartitionStream] = {}
        for place, record in enumerate(records):
            partition = record.partition
            if partition is None:
                partition = self._sticky
                if record.key is not None:
                    partition = partition_for_key(record.key, len(queue.partitions))
            stream = streams[partition] = self._streams.setdefault(
                partition, _PartitionStream(partition)
            )
            stream.waiting.append(_PendingMessage(record, call, place, deadline))
        for stream in streams.values():
            if not stream.is_running:
                stream.is_running = True
                self._cluster.tasks.start_soon(self._run, stream)
        await self._cluster.tasks.wait(call.is_done)
        return [result for result in call.results if result is not None]

    async def _run(self, stream: _PartitionStream) -> None:
        try:
            while stream.waiting:
                messages, size = [stream.waiting.popleft()], 0
                while stream.waiting:
                    size += messages[-1].record.size
                    if size + stream.waiting[0].record.size > _BATCH_BYTES:
                        break
                    messages.append(stream.waiting.popleft())
                await self._send(stream, messages)
        finally:
            stream.is_running = False

    async def _send(self, stream: _PartitionStream, messages: list[_PendingMessage]) -> None:
        """Send messages that go together, until it is known what became of them."""
        try:
            reply = await self._deliver(stream, messages)
        except RecordTooLargeError as error:
            if len(messages) == 1:
                _fail(messages, error)
                return
            middle = len(messages) // 2
            await self._send(stream, messages[:middle])
            await self._send(stream, messages[middle:])
        except TidelogError as error:
            _fail(messages, error)
        else:
            stream.next_sequence += len(messages) - len(reply.duplicates)
            _settle(stream.partition, messages, reply)
            await trio.sleep(reply.throttle_ms / 1000)

    async def _deliver(
        self, stream: _PartitionStream, messages: list[_PendingMessage]
    ) -> SendReply:
        """Return what the leader said of messages that are committed.

        Raises:
            TidelogError: They were refused, or it is not known in time what became of them.
        """
        request: _Request | None = None
        failure_count = 0
        while True:
            try:
                queue = await self._queue_metadata.find(self._name)
                if request is None or request.queue.queue_id != queue.queue_id:
                    _require_known(request)
                    request = _Request(
                        messages, queue, await self._encoded(stream, messages, queue)
                    )
                return await self._ask(stream.partition, request)
            except TidelogError as error:
                failure_count += 1
                is_ambiguous = request is not None and request.is_ambiguous
                if stream.is_forgotten(error) and not is_ambiguous:
                    stream.identity = request = None
                    continue
                delay = self._delay(error, failure_count)
                is_late = trio.current_time() + (delay or 0) >= messages[0].deadline
                if delay is None or is_late:
                    if is_ambiguous or isinstance(error, _LOST_PLACE):
                        stream.identity = None  # Nobody knows which sequence is the next one.
                    if delay is None:
                        raise
                    raise _timed_out(messages, error, is_ambiguous=is_ambiguous) from error
                self._invalidate(request, error)
            await trio.sleep(delay)

    def _delay(self, error: TidelogError, failure_count: int) -> float | None:
        """Return how long to wait before the same is tried again, `None` if that is of no use."""
        if isinstance(error, ThrottledError):
            return (error.retry_after_ms or 0) / 1000
        if isinstance(error, PASSING_ERRORS):
            return self._cluster.backoff.delay(failure_count)
        return None

    def _invalidate(self, request: _Request | None, error: TidelogError) -> None:
        if request is None:
            return
        if isinstance(error, STALE_METADATA_ERRORS):
            self._queue_metadata.invalidate(request.queue)
            self._cluster.request_refresh([request.queue.topic])

    async def _encoded(
        self, stream: _PartitionStream, messages: list[_PendingMessage], queue: QueueDescription
    ) -> bytearray:
        """Return a batch under the next sequence of the stream."""
        if stream.identity is None:
            stream.identity = await self._cluster.call_any(
                api.INIT_PRODUCER, InitProducerRequest(), is_repeatable=True
            )
            stream.next_sequence = 0
        records = [message.record for message in messages]
        sent_to = ((SENT_TO_HEADER, queue.queue_id),) if queue.is_fifo else ()
        headers = [(*record.headers, *sent_to) for record in records]
        columns = Columns(
            len(records),
            keys=[record.key for record in records],
            values=[record.value for record in records],
            headers=headers if any(headers) else None,
        )
        return encode_batch(
            columns,
            first_timestamp_ms=self._cluster.env.clock.now_ms(),
            producer_id=stream.identity.producer_id,
            producer_epoch=stream.identity.producer_epoch,
            base_sequence=stream.next_sequence,
        )

    async def _ask(self, partition: int, request: _Request) -> SendReply:
        """Ask the leader once.

        Raises:
            TidelogError: It refused, or cannot be reached, or does not answer.
        """
        topic = request.queue.topic
        node_id = self._cluster.metadata.leader_of(topic, partition)
        if node_id is None:
            self._cluster.request_refresh([topic])
            raise NotLeaderError(f"nobody leads partition {partition} of {topic!r} now")
        connection = await self._cluster.connection_to(node_id)
        if connection.hello is not None:
            limit = connection.hello.max_frame_bytes - _HEADER_BYTES_MAX
            if len(request.batch) > limit:
                raise RecordTooLargeError(
                    f"a batch of {len(request.batch)} bytes does not fit into a request of the"
                    " broker",
                    size_bytes=len(request.batch),
                    limit_bytes=limit,
                )
        timeout = self._cluster.config.request_timeout
        asked = SendRequest(request.queue.queue_id, partition, int(timeout * 1000))
        was_ambiguous, request.is_ambiguous = request.is_ambiguous, True
        try:
            reply = await self._cluster.call_once(
                connection,
                api.SEND,
                asked,
                patience=timeout * _PATIENCE,
                attachment=[request.batch],
            )
        except WireFormatError as error:
            connection.close()
            raise ConnectionLostError(f"a broker's reply cannot be understood: {error}") from error
        except UnknownQueueError as error:
            request.is_ambiguous = was_ambiguous
            # Another one of its name may be there, or none: that is asked next.
            raise LeaderNotAvailableError(str(error)) from error
        except TidelogError as error:
            is_in_doubt = isinstance(error, (*_IN_DOUBT, NotLeaderError))
            request.is_ambiguous = was_ambiguous or (
                is_in_doubt and not isinstance(error, ConnectError)
            )
            raise
        if len(reply.offsets) != len(request.messages):
            connection.close()
            raise ConnectionLostError(f"a broker replied of {len(reply.offsets)} other messages")
        return reply


def _require_known(request: _Request | None) -> None:
    """Check that a request can be forgotten.

    Raises:
        UnknownQueueError: Its queue is not there any more, and nobody can say what became of it.
    """
    if request is not None and request.is_ambiguous:
        raise UnknownQueueError(
            f"queue {request.queue.name!r} was deleted; the messages may be in its topic or not"
        )


def _settle(partition: int, messages: list[_PendingMessage], reply: SendReply) -> None:
    level = _LEVELS.get(reply.ack_level)
    duplicates = set(reply.duplicates)
    for place, (message, offset) in enumerate(zip(messages, reply.offsets, strict=True)):
        message.call.settle(
            message.place,
            Receipt(
                message.record.topic,
                partition,
                offset,
                reply.timestamp_ms,
                level,
                place in duplicates,
            ),
        )


def _fail(messages: list[_PendingMessage], error: TidelogError) -> None:
    for message in messages:
        message.call.settle(message.place, error)


def _timed_out(
    messages: list[_PendingMessage], error: TidelogError, *, is_ambiguous: bool
) -> DeliveryTimeoutError:
    count = len(messages)
    what = f"{count} message{'s' if count > 1 else ''}"
    fate = (
        "were not acknowledged in time and may or may not be in the queue"
        if is_ambiguous
        else "could not be delivered in time and are not in the queue"
    )
    return DeliveryTimeoutError(f"{what} {fate}; the last attempt failed: {error}")
