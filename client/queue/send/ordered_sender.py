"""Sender for queues whose brokers inspect each message: FIFO queues, and those with a send rate.

Shell. One request is in flight for a partition at a time, and messages that arrive meanwhile share
the next one. So requests grow by themselves under load, and order needs no more than that. A
request whose reply was lost is repeated unchanged, under the same sequence, until its outcome is
known.

A call that is alone sends its messages in its own task. A task of the client takes over what is
left when that call has its results or is cancelled. Where calls share requests, it sends from the
start.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, final

import trio

from tidelog.client.admin.queue_metadata import QueueMetadata
from tidelog.client.cluster.background_tasks import ParkedTask
from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.cluster.metadata import PASSING_ERRORS
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
    InvalidRequestError,
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
"""Maximum bytes of a batch: brokers deliver whole batches, so a receive of a few messages fetches
all of it."""
_PATIENCE: Final = 1.25
"""Factor on the timeout of a request after which its connection counts as dead."""
_HEADER_BYTES_MAX: Final = 64 << 10
_LEVELS: Final = {int(level): level for level in AckLevel}
_LOST_PLACE: Final = (OutOfOrderSequenceError, DuplicateSequenceError, FencedProducerError)
"""Errors of a broker that lacks the state of this producer."""
_IN_DOUBT: Final = (ConnectionLostError, RequestTimedOutError, NotEnoughReplicasAfterAppendError)
"""Errors after which the messages may be appended. A deposed broker also answers `NotLeaderError`
for such messages."""
_HINTS_MAX: Final = 3
"""Throttled attempts in a row whose next one is made when the broker says; later ones back off."""
_UNLIMITED: Final = "unlimited"


def looks_at_messages(queue: QueueDescription) -> bool:
    """Return whether a queue needs this sender; messages of others are produced to the topic."""
    return queue.is_fifo or queue.config.get("send_rate", _UNLIMITED) != _UNLIMITED


@final
@dataclass(eq=False, slots=True)
class _Call:
    """Call of `send`, which waits for its results."""

    results: list[Receipt | TidelogError | None]
    open_count: int
    waiter: ParkedTask | None = None
    """Woken when all results are there, if another task sends."""

    def settle(self, place: int, result: Receipt | TidelogError) -> None:
        self.results[place] = result
        self.open_count -= 1
        if not self.open_count and self.waiter is not None:
            self.waiter.wake()


@final
@dataclass(eq=False, slots=True)
class _PendingMessage:
    """Message on its way."""

    record: ProducerRecord
    call: _Call
    place: int
    deadline: float


@final
@dataclass(eq=False, slots=True)
class _Request:
    """Messages of one batch, and their outcome so far."""

    messages: list[_PendingMessage]
    queue: QueueDescription
    batch: bytearray
    is_ambiguous: bool = False
    """Whether the messages may be appended."""


@final
@dataclass(eq=False, slots=True)
class _PartitionStream:
    """Messages for one partition, in order."""

    partition: int
    waiting: deque[_PendingMessage] = field(default_factory=deque[_PendingMessage])
    batches: deque[list[_PendingMessage]] = field(default_factory=deque[list[_PendingMessage]])
    """Messages of the next requests; those of the first one may be on their way."""
    request: _Request | None = None
    """Request of the first of these, as soon as it was made."""
    is_running: bool = False
    was_shared: bool = False
    """Whether several calls had messages in the last batch: then others probably come in this turn
    of the loop."""
    resumes_at: float = -math.inf
    """Time in trio's seconds before which no request is sent, because the broker throttles."""
    identity: InitProducerReply | None = None
    next_sequence: int = 0

    def next_batch(self) -> list[_PendingMessage] | None:
        """Return the messages of the next request, `None` if there are none."""
        if self.batches:
            return self.batches[0]
        if not self.waiting:
            return None
        messages, size = [self.waiting.popleft()], 0
        while self.waiting:
            size += messages[-1].record.size
            if size + self.waiting[0].record.size > _BATCH_BYTES:
                break
            messages.append(self.waiting.popleft())
        self.batches.append(messages)
        return messages

    def end_batch(self) -> None:
        """Drop the first batch, whose outcome is known."""
        self.request = None
        self.batches.popleft()

    def is_forgotten(self, error: TidelogError) -> bool:
        """Return whether an error means that the broker has lost the state of this stream."""
        is_unknown = (
            isinstance(error, OutOfOrderSequenceError) and error.detail("expected_sequence") == 0
        )
        return is_unknown and self.next_sequence > 0


@final
class OrderedSender:
    """Sends to one queue; all senders of a client share it, so that their messages are in order."""

    def __init__(self, cluster: ClusterClient, queue_metadata: QueueMetadata, name: str) -> None:
        """Send to the queue `name`."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self._name = name
        self._counters = cluster.counters.queues.of(name)
        self._streams: dict[int, _PartitionStream] = {}
        self._sticky = 0
        self._delivery_timeout = cluster.config.queue_delivery_timeout

    async def send(
        self, queue: QueueDescription, records: Sequence[ProducerRecord]
    ) -> list[Receipt | TidelogError]:
        """Send records; return the receipt or the error of each.

        If cancelled, any part of the records may be sent.
        """
        call = _Call([None] * len(records), len(records))
        if not records:
            return []
        tasks = self._cluster.tasks
        tasks.require_open()
        streams = self._put(queue, records, call)
        idle = [stream for stream in streams if not stream.is_running]
        for stream in idle:
            stream.is_running = True
        if len(streams) == len(idle) == 1 and not idle[0].was_shared:
            await tasks.until_closed(partial(self._run_until_done, idle[0], call))
        else:
            for stream in idle:
                tasks.start_soon(self._run, stream)
        if call.open_count:
            call.waiter = ParkedTask()
            await tasks.park(call.waiter)
        return [result for result in call.results if result is not None]

    def _put(
        self, queue: QueueDescription, records: Sequence[ProducerRecord], call: _Call
    ) -> Collection[_PartitionStream]:
        """Enqueue the records of a call; return the streams of their partitions."""
        deadline = self._cluster.counters.now() + self._delivery_timeout
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
        return streams.values()

    async def _run_until_done(self, stream: _PartitionStream, call: _Call) -> None:
        """Send messages in the task of a call, until it has its results."""
        try:
            while call.open_count and (messages := stream.next_batch()):
                await self._send(stream, messages)
        finally:
            is_idle = not (stream.batches or stream.waiting)
            stream.is_running = not is_idle and self._cluster.tasks.start_soon(self._run, stream)

    async def _run(self, stream: _PartitionStream) -> None:
        """Send all messages in a task."""
        try:
            while messages := stream.next_batch():
                await self._send(stream, messages)
        finally:
            stream.is_running = False

    async def _send(self, stream: _PartitionStream, messages: list[_PendingMessage]) -> None:
        """Send the messages of the first batch, until their outcome is known.

        If cancelled, another call goes on.
        """
        if stream.resumes_at > self._cluster.counters.now():
            await trio.sleep_until(stream.resumes_at)
        try:
            request, reply = await self._deliver(stream, messages)
        except InvalidRequestError as error:
            stream.end_batch()
            if len(messages) == 1:
                _fail(messages, error)
                return
            # The leader refuses a batch for one of its messages; the others are not at fault.
            middle = len(messages) // 2
            stream.batches.extendleft([messages[middle:], messages[:middle]])
        except TidelogError as error:
            stream.end_batch()
            _fail(messages, error)
            await trio.lowlevel.checkpoint()  # No request may have been sent.
        else:
            stream.end_batch()
            stream.was_shared = messages[0].call is not messages[-1].call
            stream.next_sequence += len(messages) - len(reply.duplicates)
            _settle(stream.partition, request, reply)
            if reply.throttle_ms:
                throttled_s = min(reply.throttle_ms / 1000, self._cluster.config.request_timeout)
                self._counters.throttled_s += throttled_s
                stream.resumes_at = self._cluster.counters.now() + throttled_s

    async def _deliver(
        self, stream: _PartitionStream, messages: list[_PendingMessage]
    ) -> tuple[_Request, SendReply]:
        """Return the request with messages that are committed, and the leader's reply.

        Raises:
            TidelogError: They were refused, or their outcome is not known in time.
        """
        failure_count = 0
        while True:
            request = stream.request
            try:
                queue = await self._queue_metadata.find(self._name)
                if request is None or request.queue.queue_id != queue.queue_id:
                    _require_known(request)
                    request = stream.request = None
                    batch = await self._encoded(stream, messages, queue)
                    request = stream.request = _Request(messages, queue, batch)
                return request, await self._ask(stream.partition, request)
            except TidelogError as error:
                failure_count += 1
                is_ambiguous = request is not None and request.is_ambiguous
                if stream.is_forgotten(error) and not is_ambiguous:
                    stream.identity = stream.request = None
                    continue
                delay = self._delay(error, failure_count)
                is_late = trio.current_time() + (delay or 0) >= messages[0].deadline
                if delay is None or is_late:
                    if is_ambiguous or isinstance(error, _LOST_PLACE):
                        stream.identity = None  # The next sequence is unknown.
                    if delay is None:
                        raise
                    raise _timed_out(messages, error, is_ambiguous=is_ambiguous) from error
                self._invalidate(request, error)
                if isinstance(error, ThrottledError):
                    self._counters.throttled_s += delay
            await trio.sleep(delay)

    def _delay(self, error: TidelogError, failure_count: int) -> float | None:
        """Return the seconds before the next attempt, `None` if a retry is useless."""
        if isinstance(error, ThrottledError) and failure_count <= _HINTS_MAX:
            hint_ms = error.retry_after_ms
            if hint_ms is not None and hint_ms > 0:
                return hint_ms / 1000
        if isinstance(error, PASSING_ERRORS):
            return self._cluster.backoff.delay(failure_count)
        return None

    def _invalidate(self, request: _Request | None, error: TidelogError) -> None:
        if request is None:
            return
        if isinstance(error, STALE_METADATA_ERRORS):
            self._queue_metadata.invalidate(request.queue)
            self._cluster.request_refresh([request.queue.topic], because=error)

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
        """Send a request to the leader once.

        Raises:
            TidelogError: The leader refused, cannot be reached, or does not answer.
        """
        topic = request.queue.topic
        node_id = self._cluster.metadata.leader_of(topic, partition)
        if node_id is None:
            self._cluster.request_refresh([topic])
            raise NotLeaderError(f"partition {partition} of {topic!r} has no leader now")
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
            raise ConnectionLostError(str(error)) from error
        except UnknownQueueError as error:
            request.is_ambiguous = was_ambiguous
            # The queue may have been created again: the next attempt describes it.
            raise LeaderNotAvailableError(str(error)) from error
        except TidelogError as error:
            is_in_doubt = isinstance(error, (*_IN_DOUBT, NotLeaderError))
            request.is_ambiguous = was_ambiguous or (
                is_in_doubt and not isinstance(error, ConnectError)
            )
            raise
        if len(reply.offsets) != len(request.messages):
            problem = f"{len(reply.offsets)} offsets for {len(request.messages)} messages"
            raise ConnectionLostError(str(connection.reject(api.SEND, problem)))
        return reply


def _require_known(request: _Request | None) -> None:
    """Check that a request can be dropped.

    Raises:
        UnknownQueueError: Its queue was deleted, and its outcome cannot be known.
    """
    if request is not None and request.is_ambiguous:
        raise UnknownQueueError(
            f"queue {request.queue.name!r} was deleted; the messages may be in its topic or not"
        )


def _settle(partition: int, request: _Request, reply: SendReply) -> None:
    topic_id, level = request.queue.topic_id, _LEVELS.get(reply.ack_level)
    duplicates = set(reply.duplicates)
    for place, (message, offset) in enumerate(zip(request.messages, reply.offsets, strict=True)):
        message.call.settle(
            message.place,
            Receipt(
                message.record.topic,
                partition,
                offset,
                reply.timestamp_ms,
                level,
                place in duplicates,
                topic_id,
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
