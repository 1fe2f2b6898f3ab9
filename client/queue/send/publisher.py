"""Publisher of messages to a queue: by the producer or the ordered sender, large ones in chunks.

Shell: without tasks.
"""

from collections.abc import Callable, Sequence
from typing import Final, final

import trio
from msgspec.structs import replace

from tidelog.client.admin.queue_metadata import QueueMetadata
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.partition_calls import PartitionCalls
from tidelog.client.queue.send.chunk_writer import WHOLE_BYTES_MAX, ChunkWriter, is_to_be_cut
from tidelog.client.queue.send.message_fields import (
    OutgoingMessage,
    QueueKind,
    check_for_kind,
    plain_messages,
    record_of,
)
from tidelog.client.queue.send.ordered_sender import OrderedSender, looks_at_messages
from tidelog.client.tracing.trace_context import with_context
from tidelog.client.tracing.tracing import Tracing
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.config.queue_config import NO_PRIORITIES, parse_priority_weights
from tidelog.wire.errors import (
    InvalidRequestError,
    NotAuthorizedError,
    RecordTooLargeError,
    TidelogError,
)
from tidelog.wire.messages.queue_admin import QueueDescription

_BATCH_BYTES: Final = 64 << 10
"""Maximum bytes of a batch. Brokers deliver whole batches, so a receive of a few messages fetches
one."""


@final
class SharedProducer:
    """Opens one producer for any number of queues."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Create it without a producer."""
        self._cluster = cluster
        self.opened: Producer | None = None
        """The producer, once it is open."""
        self._opening = trio.Lock()

    async def get(self) -> Producer:
        """Return the producer; open it at the first call."""
        if self.opened is not None:  # Without the lock, which would pass one caller a turn.
            return self.opened
        async with self._opening:
            if self.opened is None:
                config = ProducerConfig(
                    batch_size=_BATCH_BYTES,
                    delivery_timeout=self._cluster.config.queue_delivery_timeout,
                )
                # The span of a send to a queue has the name of the queue, and chunks have none.
                producer = Producer(self._cluster, config, is_traced=False)
                self.opened = await producer.__aenter__()
        return self.opened


@final
class QueuePublisher:
    """Sends messages to one queue."""

    def __init__(
        self,
        cluster: ClusterClient,
        queue_metadata: QueueMetadata,
        calls: PartitionCalls,
        *,
        producer: SharedProducer,
        ordered_sender: Callable[[], OrderedSender],
    ) -> None:
        """Send to the queue of `calls`, by `ordered_sender` if brokers inspect its messages."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self._calls = calls
        self._producer = producer
        self._ordered_sender = ordered_sender
        self._described: QueueDescription | None = None
        """The description from which `_kind` was made."""
        self._kind = QueueKind()
        self._may_produce = True
        """Whether access rules may allow to produce to the topic."""

    async def send(
        self, given: Sequence[bytes | OutgoingMessage], *, context: Headers | None = None
    ) -> list[Receipt | TidelogError]:
        """Send messages and wait until the outcome of each is known.

        Args:
            given: Values and messages.
            context: Trace context of the span of this call; `None` if it has none yet.

        Raises:
            UnknownQueueError: There is no such queue.
            TypeError: A part has a wrong type; nothing is sent.
            ValueError: A number is out of range; nothing is sent.
        """
        tracing = self._cluster.tracing
        if tracing is not None and context is None:
            return await self._send_traced(tracing, given)
        context = context or ()
        results = None
        plain = plain_messages(given, context)
        if plain is not None:
            await trio.lowlevel.checkpoint_if_cancelled()
            description = self._queue_metadata.known(self._calls.name)
            if description is None:
                description = await self._calls.describe()
            if self._may_produce and not looks_at_messages(description):
                producer = self._producer.opened or await self._producer.get()
                results = await producer.send_values(description.topic, plain[0], headers=plain[1])
                self._may_produce = not _are_denied(results)
        if results is None or not self._may_produce:
            results = await self._send(_as_messages(given, context))
        too_large: list[int] = []
        for place, result in enumerate(results):
            if isinstance(result, RecordTooLargeError) and _is_at_hand(given[place]):
                too_large.append(place)
        if too_large and (len(given) == 1 or not (await self._calls.describe()).is_fifo):
            # The topic has a lower limit. In a FIFO group chunks would come behind later messages.
            again = _as_messages([given[place] for place in too_large], context)
            for place, result in zip(
                too_large, await self._send(again, whole_bytes_max=0), strict=True
            ):
                results[place] = result
        return results

    async def _send_traced(
        self, tracing: Tracing, given: Sequence[bytes | OutgoingMessage]
    ) -> list[Receipt | TidelogError]:
        messages = [_with_read_headers(each) for each in given]
        headers = [each.headers for each in messages if isinstance(each, OutgoingMessage)]
        with tracing.send(self._calls.name, headers, count=len(messages)) as span:
            results = await self.send(messages, context=span.context)
            span.sent(results)
        return results

    async def _send(
        self, messages: Sequence[OutgoingMessage], *, whole_bytes_max: int = WHOLE_BYTES_MAX
    ) -> list[Receipt | TidelogError]:
        await trio.lowlevel.checkpoint_if_cancelled()
        now_ms = self._cluster.env.clock.now_ms()
        description, results = await self._checked(messages)
        topic, is_fifo = description.topic, description.is_fifo
        records = [
            record_of(message, topic, now_ms=now_ms, is_fifo=is_fifo) for message in messages
        ]
        is_identified = description.config.get("content_based_deduplication") == "on"
        for place, message in enumerate(messages):
            source = message.value
            if place in results or source is None:
                continue
            if is_to_be_cut(records[place], source, whole_bytes_max):
                producer = await self._producer.get()
                sender = ChunkWriter(self._cluster, producer, records[place], source=source)
                try:
                    records[place] = await sender.send(
                        whole_bytes_max=whole_bytes_max, is_identified=is_identified
                    )
                except TidelogError as error:  # The others are sent nevertheless.
                    results[place] = error
        places = [place for place in range(len(records)) if place not in results]
        sent = await self._send_records(description, [records[place] for place in places])
        results.update(zip(places, sent, strict=True))
        return [results[place] for place in range(len(records))]

    async def _send_records(
        self, description: QueueDescription, records: list[ProducerRecord]
    ) -> list[Receipt | TidelogError]:
        if not records:
            await trio.lowlevel.checkpoint()
            return []
        if looks_at_messages(description):
            return await self._ordered_sender().send(description, records)
        if self._may_produce:
            producer = await self._producer.get()
            results = await producer.send_records(description.topic, records)
            if not _are_denied(results):
                return results
        # With a rule for the queue alone, its broker appends to the topic.
        results = await self._ordered_sender().send(description, records)
        self._may_produce = _are_denied(results)
        return results

    async def _checked(
        self, messages: Sequence[OutgoingMessage]
    ) -> tuple[QueueDescription, dict[int, Receipt | TidelogError]]:
        """Return the description of the queue, and the errors of messages that it refuses.

        It is fetched again before it refuses a message: the settings may have changed.
        """
        name = self._calls.name
        description = self._queue_metadata.known(name) or await self._calls.describe()
        refused = _refused(messages, self._kind_of(description))
        if refused:
            self._queue_metadata.invalidate(description)
            description = await self._calls.describe()
            refused = _refused(messages, self._kind_of(description))
        return description, refused

    def _kind_of(self, description: QueueDescription) -> QueueKind:
        if self._described is not description:
            weights = description.config.get("priority_weights", NO_PRIORITIES)
            self._kind = QueueKind(
                description.topic,
                description.is_fifo,
                len(parse_priority_weights("priority_weights", weights)),
                description.topic_retention_ms,
            )
            self._described = description
        return self._kind


def _refused(
    messages: Sequence[OutgoingMessage], kind: QueueKind
) -> dict[int, Receipt | TidelogError]:
    """Return the errors of messages that a queue does not accept, by place."""
    refused: dict[int, Receipt | TidelogError] = {}
    for place, message in enumerate(messages):
        try:
            check_for_kind(message, kind)
        except InvalidRequestError as error:
            refused[place] = error
    return refused


def _as_messages(
    given: Sequence[bytes | OutgoingMessage], context: Headers
) -> list[OutgoingMessage]:
    messages = [
        each if isinstance(each, OutgoingMessage) else OutgoingMessage(value=each) for each in given
    ]
    if not context:
        return messages
    return [replace(each, headers=with_context(each.headers, context)) for each in messages]


def _with_read_headers(message: bytes | OutgoingMessage) -> bytes | OutgoingMessage:
    """Return a message whose headers can be read more than once."""
    if isinstance(message, OutgoingMessage) and not isinstance(message.headers, tuple):
        return replace(message, headers=tuple(message.headers))
    return message


def _are_denied(results: Sequence[Receipt | TidelogError]) -> bool:
    """Return whether access rules deny all messages, so that none is in the log."""
    return bool(results) and all(isinstance(each, NotAuthorizedError) for each in results)


def _is_at_hand(message: bytes | OutgoingMessage) -> bool:
    """Return whether a value can be read a second time."""
    return isinstance(message, bytes) or isinstance(message.value, bytes)
