"""Requests that tests send to queues, in few words."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import math
from typing import Any, NamedTuple, TypeVar

import trio
from trio.testing import MockClock

from tests.broker.broker_requests import Pending, raise_if, submit
from tests.broker.world import START_MS
from tests.broker.world import settle as let_happen
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.server import Broker
from tidelog.coordinator.metadata.commands import CreateQueue, QueueAnswer
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns, encode_batch, has_valid_payload, parse_header
from tidelog.wire.errors import from_wire
from tidelog.wire.messages.queues import (
    DEDUPLICATION_ID_HEADER,
    SENT_TO_HEADER,
    CountMessagesRequest,
    MessageState,
    PartitionReceived,
    PeekReply,
    PeekRequest,
    PurgeRequest,
    QueueCounts,
    QueueSeekRequest,
    ReceiveReply,
    ReceiveRequest,
    Run,
    SendReply,
    SendRequest,
    SettleAction,
    Settled,
    Settlement,
    SettleReply,
    SettleRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

Reply_co = TypeVar("Reply_co", covariant=True)


class Message(NamedTuple):
    """One received message."""

    partition: int
    offset: int
    value: bytes | None
    receive_count: int
    receipt: bytes


async def create_queue(
    broker: Broker,
    name: str = "orders",
    *,
    topic: str = "orders",
    partitions: int | None = None,
    is_fifo: bool = False,
    **settings: str,
) -> bytes:
    """Create a queue, and its topic if there is none; return its id."""
    assert broker._cluster is not None
    catalog = broker._cluster.metadata.state.catalog
    source = catalog.topic(topic) if catalog.has_topic(topic) else None
    command = CreateQueue(
        name,
        (b"queue " + name.encode()).ljust(16, b".")[:16],
        b"k" * 32,
        (b"topic " + topic.encode()).ljust(16, b".")[:16],
        START_MS,
        topic,
        None if source is None else source.topic_id,
        [] if source is None else [0] * source.partition_count,
        is_fifo,
        settings,
        partitions,
    )
    answer = await broker._cluster.command_client.submit(command, timeout_s=5)
    assert isinstance(answer, QueueAnswer)
    await let_happen()
    return answer.queue_id


def topic_of(broker: Broker, name: str = "orders") -> bytes:
    """Return the id of a topic."""
    assert broker._cluster is not None
    return broker._cluster.metadata.state.catalog.topic(name).topic_id


def hosted_of(broker: Broker, queue: bytes) -> HostedPartition:
    """Return the partition 0 of a loaded queue."""
    assert broker._partitions is not None
    journal = broker._partitions.replica(queue, 0)
    assert journal is not None
    (hosted,) = (each for each in journal.watchers if isinstance(each, HostedPartition))
    return hosted


async def _answered(pending: Pending[Reply_co]) -> tuple[Reply_co, bytes]:
    """Return an answer, which may wait for a second for the move of dead letters."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_pass_a_second)
        await pending.answered()
        nursery.cancel_scope.cancel()
    return await pending.reply_and_attachment()


async def _pass_a_second() -> None:
    """Let a second pass when nothing else can happen, unless time passes by itself."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, MockClock) and clock.autojump_threshold == math.inf:
        await let_happen()
        clock.jump(1)


class PendingMessages(NamedTuple):
    """A receive whose reply may not have arrived yet."""

    reply: Pending[ReceiveReply]

    @property
    def is_answered(self) -> bool:
        return self.reply.is_answered


def submit_receive(
    client: RpcConnection,
    queue_id: bytes,
    max_messages: int = 10,
    *,
    partitions: tuple[int, ...] = (0,),
    max_wait_ms: int = 0,
    **more: Any,  # noqa: ANN401 (fields of various types)
) -> PendingMessages:
    """Receive messages; `more` are fields of the request."""
    how: dict[str, Any] = {"max_bytes": 1 << 20, "holder": "a test", **more}
    request = ReceiveRequest(
        queue_id, list(partitions), max_messages, max_wait_ms=max_wait_ms, **how
    )
    return PendingMessages(submit(client, api.RECEIVE, request))


async def received(pending: PendingMessages) -> list[Message]:
    """Wait for messages; raise the error of any partition."""
    return (await settled_and_received(pending))[1]


async def settled_and_received(pending: PendingMessages) -> tuple[list[Settled], list[Message]]:
    """Wait for results of settlements, and for messages; raise the error of any partition."""
    reply, attachment = await _answered(pending.reply)
    messages: list[Message] = []
    position = 0
    for result in reply.results:
        end = position + result.batch_bytes
        messages += _decode(result, attachment[position:end])
        position = end
    assert position == len(attachment)
    return reply.settled, messages


async def receive(
    client: RpcConnection,
    queue_id: bytes,
    *args: int,
    **how: Any,  # noqa: ANN401 (fields of various types)
) -> list[Message]:
    """Receive messages; see `submit_receive`."""
    return await received(submit_receive(client, queue_id, *args, **how))


def _decode(result: PartitionReceived, data: bytes) -> list[Message]:
    raise_if(result.error)
    values: dict[int, bytes | None] = {}
    while data:
        header = parse_header(data)
        assert header is not None
        batch, data = data[: header.size], data[header.size :]
        assert has_valid_payload(header, batch)
        columns = decode_columns(header, batch, uncompressed_length_max=1 << 24)
        of_batch = columns.values or [None] * columns.record_count
        deltas = columns.offset_deltas or range(columns.record_count)
        values |= {header.base_offset + at: of_batch[place] for place, at in enumerate(deltas)}
    return [
        Message(result.partition, offset, values[offset], run.receive_count, result.receipt)
        for run in result.runs
        for offset in range(run.first_offset, run.first_offset + run.count)
    ]


def settlements_of(
    messages: list[Message],
    *,
    action: SettleAction = SettleAction.DELETE,
    delay_ms: int | None = None,
) -> list[Settlement]:
    """Return settlements of messages, one for all of one receipt and partition."""
    by_receipt: dict[tuple[int, bytes], list[Run]] = {}
    for message in messages:
        runs = by_receipt.setdefault((message.partition, message.receipt), [])
        runs.append((message.offset, 1))
    return [
        Settlement(partition, receipt, runs, action, delay_ms)
        for (partition, receipt), runs in by_receipt.items()
    ]


def submit_settle(
    client: RpcConnection,
    queue_id: bytes,
    messages: list[Message],
    *,
    action: SettleAction = SettleAction.DELETE,
    delay_ms: int | None = None,
) -> Pending[SettleReply]:
    """Settle messages, all of one receipt and partition in one settlement."""
    settlements = settlements_of(messages, action=action, delay_ms=delay_ms)
    return submit(client, api.SETTLE, SettleRequest(queue_id, settlements))


async def settle(
    client: RpcConnection,
    queue_id: bytes,
    messages: list[Message],
    *,
    action: SettleAction = SettleAction.DELETE,
    delay_ms: int | None = None,
) -> None:
    """Settle messages; raise the error of any message."""
    pending = submit_settle(client, queue_id, messages, action=action, delay_ms=delay_ms)
    reply, _ = await _answered(pending)
    for result in reply.results:
        raise_if(result.error)
        for refused in result.refused:
            raise from_wire(refused.error)


def refused(results: list[Settled]) -> list[Run]:
    """Return the refused runs."""
    return [run for result in results for each in result.refused for run in each.runs]


async def count(client: RpcConnection, queue_id: bytes, partition: int = 0) -> QueueCounts:
    pending = submit(client, api.COUNT_MESSAGES, CountMessagesRequest(queue_id, [partition]))
    reply, _ = await _answered(pending)
    raise_if(reply.counts[0].error)
    return reply.counts[0]


async def states(client: RpcConnection, queue_id: bytes) -> tuple[int, int, int, int]:
    """Return the numbers of visible, leased, delayed and dead messages."""
    counts = await count(client, queue_id)
    return counts.visible, counts.in_flight, counts.delayed, counts.dead


async def purge(client: RpcConnection, queue_id: bytes, partition: int = 0) -> int:
    reply = await submit(client, api.PURGE, PurgeRequest(queue_id, [partition])).reply()
    raise_if(reply.results[0].error)
    return reply.results[0].count


async def seek(client: RpcConnection, queue_id: bytes, offset: int, *, partition: int = 0) -> int:
    reply = await submit(
        client, api.QUEUE_SEEK, QueueSeekRequest(queue_id, partition, offset)
    ).reply()
    raise_if(reply.results[0].error)
    return reply.results[0].count


async def peek(
    client: RpcConnection, queue_id: bytes, *states: MessageState, max_bytes: int = 0
) -> PeekReply:
    """Peek at the messages of partition 0."""
    request = PeekRequest(queue_id, 0, list(map(int, states)), 0, 1000, max_bytes)
    return (await _answered(submit(client, api.PEEK, request)))[0]


def outgoing(
    queue_id: bytes,
    *messages: tuple[bytes, str | None],
    group: bytes | None = b"g",
    producer_id: int = 0,
    sequence: int = 0,
) -> bytearray:
    """Return a batch of values with deduplication ids, as a client sends it to a FIFO queue."""
    headers = [
        (
            (SENT_TO_HEADER, queue_id),
            *([] if sent_id is None else [(DEDUPLICATION_ID_HEADER, sent_id.encode())]),
        )
        for _, sent_id in messages
    ]
    columns = Columns(
        len(messages),
        keys=[group] * len(messages),
        values=[value for value, _ in messages],
        headers=headers,
    )
    return encode_batch(
        columns,
        first_timestamp_ms=1,
        producer_id=producer_id,
        base_sequence=sequence,
        codec=Codec.LZ4,
    )


def submit_send(
    client: RpcConnection,
    queue_id: bytes,
    batch: bytes | bytearray,
    *,
    partition: int = 0,
    timeout_ms: int = 60_000,
) -> Pending[SendReply]:
    """Send a batch."""
    return submit(client, api.SEND, SendRequest(queue_id, partition, timeout_ms), batch)


async def send(
    client: RpcConnection, queue_id: bytes, *messages: tuple[bytes, str | None]
) -> SendReply:
    """Send values with deduplication ids, and wait until they are committed."""
    return await submit_send(client, queue_id, outgoing(queue_id, *messages)).reply()
