"""Long requests: other tasks run meanwhile, and requests that are too long are refused."""

from collections.abc import Callable
from typing import Any, final

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, fetch_all, submit
from tests.broker.longest_step import longest_step
from tests.broker.queues.queue_requests import create_queue, receive, states
from tests.broker.world import START_MS, World, settle
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import InvalidRequestError, RecordTooLargeError
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.messages.queues import (
    Run,
    SendRequest,
    SettleAction,
    Settled,
    Settlement,
    SettleRequest,
)
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import HEADER_BYTES_MAX, Api
from tidelog.wire.protocol.connection import HELLOS_MAX
from tidelog.wire.transport.rpc import RpcConnection

NO_TOPIC = bytes(16)
STEP_S = 0.25
"""CPU time of one step that no slow machine needs. Each of these requests held the loop for
longer when a broker carried it out in one step."""


@final
class OtherTask:
    """A task that counts its turns while a request is carried out."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1


def queries(count: int) -> ListOffsetsRequest:
    return ListOffsetsRequest([OffsetQuery(NO_TOPIC, number) for number in range(count)])


def fetch_of(count: int) -> FetchRequest:
    return FetchRequest(
        0, 1, 1 << 20, [PartitionFetch(NO_TOPIC, number, 0, 1 << 20) for number in range(count)]
    )


def metadata_of(count: int) -> MetadataRequest:
    return MetadataRequest([f"t{number}" for number in range(count)])


@pytest.mark.parametrize(
    ("method", "request_of", "at_once"),
    [
        (api.FETCH, fetch_of, 128),
        (api.METADATA, metadata_of, 100),
        (api.LIST_OFFSETS, queries, 250),
    ],
    ids=lambda each: each.key.name if isinstance(each, Api) else None,
)
async def test_other_tasks_run_while_a_long_request_is_carried_out(
    method: Api[Any, Any],
    request_of: Callable[[int], object],
    at_once: int,
    *,
    mock_clock: MockClock,
) -> None:
    count = 5_000
    world = World(mock_clock)
    async with world.broker(), world.client() as client, trio.open_nursery() as nursery:
        other = OtherTask()
        nursery.start_soon(other.run)
        await trio.lowlevel.checkpoint()
        before = other.turns

        await submit(client, method, request_of(count)).reply()

        assert other.turns - before >= count // at_once
        nursery.cancel_scope.cancel()


async def test_many_batches_are_appended_in_steps(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client, trio.open_nursery() as nursery:
        topic = await create_topic(client)
        batches = [batch_of(b"%d" % number) for number in range(1_000)]
        request = ProduceRequest(
            Acks.LEADER, 60_000, [PartitionBatch(topic, 0, len(each)) for each in batches]
        )
        other = OtherTask()
        nursery.start_soon(other.run)
        await trio.lowlevel.checkpoint()
        before = other.turns

        reply = await submit(client, api.PRODUCE, request, *batches).reply()

        assert other.turns - before >= len(batches) // 64
        assert [each.base_offset for each in reply.results] == list(range(1_000))
        values = [record.value for record in await fetch_all(client, topic)]
        assert values == [b"%d" % number for number in range(1_000)]
        nursery.cancel_scope.cancel()


async def test_requests_behind_a_long_one_are_carried_out_after_it(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        long = [batch_of(b"%d" % number) for number in range(200)]
        entries = [PartitionBatch(topic, 0, len(each)) for each in long]
        last = batch_of(b"last")

        submit(client, api.PRODUCE, ProduceRequest(Acks.LEADER, 60_000, entries), *long)
        end = ProduceRequest(Acks.LEADER, 60_000, [PartitionBatch(topic, 0, len(last))])
        reply = await submit(client, api.PRODUCE, end, last).reply()

        assert reply.results[0].base_offset == 200


async def test_a_fetch_of_many_partitions_waits_for_records(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client, world.client() as producer:
        topic = await create_topic(client, partitions=300)
        wanted = [PartitionFetch(topic, number, 0, 1 << 20) for number in range(300)]
        pending = submit(client, api.FETCH, FetchRequest(60_000, 1, 1 << 20, wanted))
        await settle()
        assert not pending.is_answered

        batch = batch_of(b"a")
        entry = PartitionBatch(topic, 7, len(batch))
        await submit(
            producer, api.PRODUCE, ProduceRequest(Acks.LEADER, 60_000, [entry]), batch
        ).reply()

        reply = await pending.reply()
        assert [at for at, each in enumerate(reply.results) if each.batch_bytes] == [7]


async def test_a_fetch_of_many_partitions_ends_with_its_time(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=300)
        wanted = [PartitionFetch(topic, number, 0, 1 << 20) for number in range(300)]
        pending = submit(client, api.FETCH, FetchRequest(500, 1, 1 << 20, wanted))
        await settle()

        await world.pass_time(0.5)

        reply = await pending.reply()
        assert [each.batch_bytes for each in reply.results] == [0] * 300


async def test_small_requests_of_one_connection_leave_room_for_others(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), trio.open_nursery() as nursery:
        client = await world.raw_client()
        await client.introduce()
        other = OtherTask()
        nursery.start_soon(other.run)
        await trio.lowlevel.checkpoint()
        before = other.turns

        await client.send(
            b"".join(client.request(api.METADATA, MetadataRequest([])) for _ in range(1_000))
        )
        await client.replies(1_000)

        assert other.turns - before >= 1_000 // 64
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("count", [10_001, 20_000])
async def test_a_request_with_too_many_items_is_refused(
    count: int, *, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        with longest_step() as longest:
            asked: list[tuple[Api[Any, Any], object]] = [
                (api.METADATA, MetadataRequest(["t"] * count)),
                (api.DESCRIBE_TOPICS, DescribeTopicsRequest(["t"] * count)),
            ]
            for method, request in asked:
                with pytest.raises(InvalidRequestError, match="Expected `array` of length <="):
                    await submit(client, method, request).reply()

        assert longest.seconds < STEP_S


async def test_a_topic_that_is_named_often_is_described_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client, partitions=100)

        reply = await submit(client, api.METADATA, MetadataRequest(["orders"] * 10_000)).reply()

        assert [topic.name for topic in reply.topics] == ["orders"]


async def test_a_client_sends_no_long_message_and_a_node_may(mock_clock: MockClock) -> None:
    name = "x" * HEADER_BYTES_MAX
    world = World(mock_clock)
    async with world.broker(), world.client() as client, world.node(2) as node:
        with pytest.raises(InvalidRequestError, match="divide it into requests with fewer items"):
            await submit(client, api.METADATA, MetadataRequest([name])).reply()

        reply = await submit(node, api.METADATA, MetadataRequest([name])).reply()

        assert reply.topics[0].name == name


async def test_a_long_message_of_a_stranger_is_not_decoded(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker():
        stranger = await world.raw_client()
        await stranger.introduce()
        method: Api[Any, Any] = api.PEER_STATUS
        frame = stranger.request(method, [None] * 1_000_000)

        with longest_step() as longest:
            await stranger.send(frame)
            (reply,) = await stranger.replies(1)

        assert isinstance(reply.message, InvalidRequestError)
        assert "the message has 1,000,005 bytes" in str(reply.message)
        assert longest.seconds < STEP_S


async def test_a_connection_ends_after_few_requests_without_a_valid_hello(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker():
        stranger = await world.raw_client()
        wrong = api.HELLO.encode_request(HelloRequest("x", "1"), version=99, correlation_id=0)

        with longest_step() as longest:
            stranger.send_nowait(wrong * ((1 << 20) // len(wrong)))
            await settle()

        refused = world.told("connection_refused")
        assert [event["reason"] for event in refused] == [
            f"no valid hello among {HELLOS_MAX} requests"
        ]
        assert longest.seconds < STEP_S


def bomb(count: int) -> bytearray:
    """Return a small batch that unpacks to many records without key and value."""
    return encode_batch(Columns(count), first_timestamp_ms=START_MS, codec=Codec.ZSTD)


async def produce(client: RpcConnection, topic: bytes, batch: bytearray) -> None:
    entry = PartitionBatch(topic, 0, len(batch))
    reply = await submit(
        client, api.PRODUCE, ProduceRequest(Acks.LEADER, 60_000, [entry]), batch
    ).reply()
    assert reply.results[0].error is None, reply.results[0].error


async def test_a_batch_with_too_many_records_is_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    batch = bomb(1 << 24)
    assert len(batch) < 2_000
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        entry = PartitionBatch(topic, 0, len(batch))

        reply = await submit(
            client, api.PRODUCE, ProduceRequest(Acks.LEADER, 60_000, [entry]), batch
        ).reply()

        error = reply.results[0].error
        assert error is not None
        assert error.code == RecordTooLargeError.code
        assert "16,777,216 records in 16,777,226 bytes, the limits are 65,536" in error.message
        assert await fetch_all(client, topic) == []


async def test_a_fifo_queue_takes_many_records_in_steps(mock_clock: MockClock) -> None:
    count = 1 << 16
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client, trio.open_nursery() as nursery:
        topic = await create_topic(client)
        queue = await create_queue(broker, is_fifo=True)
        await produce(client, topic, bomb(count))
        other = OtherTask()
        nursery.start_soon(other.run)
        await trio.lowlevel.checkpoint()
        before = other.turns

        with longest_step() as longest:
            messages = await receive(client, queue, max_wait_ms=60_000)

        assert [each.offset for each in messages][:1] == [0]
        assert other.turns - before >= count // 500
        assert longest.seconds < STEP_S
        nursery.cancel_scope.cancel()


async def test_many_messages_are_settled_in_steps(mock_clock: MockClock) -> None:
    count = 2_000
    keys = [b"%d" % number for number in range(count)]
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client, trio.open_nursery() as nursery:
        topic = await create_topic(client)
        queue = await create_queue(broker, is_fifo=True)
        records = Columns(count, keys=keys, values=[b""] * count)
        await produce(client, topic, encode_batch(records, first_timestamp_ms=START_MS))
        settlements: list[Settlement] = []
        while sum(len(each.runs) for each in settlements) < count:
            messages = await receive(client, queue, 1_000, max_wait_ms=60_000)
            runs = [(each.offset, 1) for each in messages]
            settlements.append(Settlement(0, messages[0].receipt, runs, SettleAction.DELETE))
        runs = settlements[-1].runs
        foreign = Settlement(0, settlements[0].receipt, runs, SettleAction.DELETE)
        other = OtherTask()
        nursery.start_soon(other.run)
        await trio.lowlevel.checkpoint()
        before = other.turns

        request = SettleRequest(queue, [*settlements, foreign])
        reply = await submit(client, api.SETTLE, request).reply()

        assert other.turns - before >= count // 100
        assert reply.results[:-1] == [Settled()] * len(settlements)
        assert [each.runs for each in reply.results[-1].refused] == [[(runs[0][0], len(runs))]]
        assert await states(client, queue) == (0, 0, 0, 0)
        nursery.cancel_scope.cancel()


async def test_a_settlement_of_many_runs_has_one_result(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        queue = await create_queue(broker)
        await produce(client, topic, bomb(1_000))
        (receipt,) = {
            each.receipt for each in await receive(client, queue, 1_000, max_wait_ms=60_000)
        }
        even = [(offset, 1) for offset in range(0, 1_000, 2)]
        later = [(offset, 1) for offset in range(2_000, 2_300, 2)]

        async def settled(*runs: Run) -> Settled:
            settlement = Settlement(0, receipt, list(runs), SettleAction.DELETE)
            return (
                await submit(client, api.SETTLE, SettleRequest(queue, [settlement])).reply()
            ).results[0]

        invalid = await settled(*even, (-1, 1))
        assert invalid.error is not None
        assert await states(client, queue) == (0, 1_000, 0, 0)

        result = await settled(*even, *later)

        assert result.error is None
        assert [each.runs for each in result.refused] == [later]
        assert await states(client, queue) == (0, 500, 0, 0)


async def test_a_send_of_too_many_messages_is_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        queue = await create_queue(broker)
        for batch in (
            bomb(1_001),
            encode_batch(
                Columns(1, values=[bytes(2 << 20)]), first_timestamp_ms=0, codec=Codec.LZ4
            ),
        ):
            with pytest.raises(RecordTooLargeError, match="divide it into smaller requests"):
                await submit(client, api.SEND, SendRequest(queue, 0, 60_000), batch).reply()


async def test_a_send_with_too_many_headers_is_refused(mock_clock: MockClock) -> None:
    many = encode_batch(Columns(1, headers=[(("", b""),) * 100_000]), first_timestamp_ms=0)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        queue = await create_queue(broker)

        with pytest.raises(InvalidRequestError, match="more than 6,000 keys and headers"):
            await submit(client, api.SEND, SendRequest(queue, 0, 60_000), many).reply()
