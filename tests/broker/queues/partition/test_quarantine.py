"""Tests of quarantine: in a FIFO queue only the groups of damaged messages wait."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, delete_records, produce
from tests.broker.queues.queue_requests import create_queue, receive, settle, states, topic_of
from tests.broker.world import START_MS, World
from tidelog.broker.server import Broker
from tidelog.wire.batch.record_batch import SYNC_MARKER, Columns, encode_batch, parse_header
from tidelog.wire.errors import CorruptRecordError
from tidelog.wire.transport.rpc import RpcConnection


def restore(broker: Broker, good: bytes, end: int) -> None:
    """Restore the first batch of a segment."""
    assert broker._partitions is not None
    partition = broker._partitions.replica(topic_of(broker), 0)
    assert partition is not None
    start = good.index(SYNC_MARKER.to_bytes(4, "little"))
    header = parse_header(good, start)
    assert header is not None
    batch = memoryview(bytearray(good[start : start + header.size]))
    partition.log.repair_range(0, end, batch, now_ms=START_MS)


async def send(client: RpcConnection, topic: bytes, *messages: bytes) -> None:
    """Send messages, each in a batch of its own and to the group of its first letter."""
    for value in messages:
        columns = Columns(1, keys=[value[:1]], values=[value])
        await produce(client, topic, encode_batch(columns, first_timestamp_ms=START_MS))


def damage(world: World, value: bytes) -> None:
    """Corrupt a value on the disk; later reads come from the disk."""
    (path,) = (path for path, data in world.segments() if value in data)
    at = world.disk.visible_bytes(path).index(value)
    world.disk.damage(path, at, bytes(reversed(value)))
    world.disk.cold_paths.add(path)


async def taken(client: RpcConnection, queue: bytes) -> list[bytes | None]:
    """Receive and delete messages until there is none, or an error."""
    values: list[bytes | None] = []
    try:
        while messages := await receive(client, queue, 1):
            values += [each.value for each in messages]
            await settle(client, queue, messages)
    except CorruptRecordError:
        values.append(None)
    return values


async def test_only_the_message_group_of_a_damaged_message_waits(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        topic = topic_of(broker)
        await send(client, topic, b"a-one", b"b-one", b"a-two", b"c-one", b"b-two")

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, queue) == (5, 0, 0, 0)
        damage(world, b"a-one")

        assert await taken(client, queue) == [b"b-one", b"c-one", b"b-two", None]
        assert await states(client, queue) == (2, 0, 0, 0)
        (event,) = world.told("messages_unreadable")
        assert event["queue"] == "orders"
        await send(client, topic, b"a-three", b"b-three")
        assert await taken(client, queue) == [b"b-three", None]


async def test_a_message_group_continues_when_the_loss_is_accepted(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        topic = topic_of(broker)
        await send(client, topic, b"a-one", b"b-one", b"a-two")

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, queue) == (3, 0, 0, 0)
        damage(world, b"a-one")
        assert await taken(client, queue) == [b"b-one", None]

        await delete_records(client, topic, 1)

        assert await taken(client, queue) == [b"a-two"]
        assert await states(client, queue) == (0, 0, 0, 0)
        assert world.told("messages_gone") == [
            {
                "severity": "warning",
                "queue": "orders",
                "partition": 0,
                "count": 1,
                "delayed": 0,
                "unseen": 0,
            }
        ]


async def test_a_message_group_continues_in_order_after_a_repair(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, topic_of(broker), b"a-one", b"b-one", b"a-two")

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        assert await states(client, queue) == (3, 0, 0, 0)
        (good,) = (data for _, data in world.segments() if b"a-one" in data)
        damage(world, b"a-one")
        assert await taken(client, queue) == [b"b-one", None]

        restore(broker, good, 1)

        assert await taken(client, queue) == [b"a-one", b"a-two"]


async def test_no_message_is_delivered_behind_damage_of_an_unknown_group(
    mock_clock: MockClock,
) -> None:
    """Order is never broken silently: the damaged message may be of any group."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        topic = topic_of(broker)
        await send(client, topic, b"a-one", b"b-one", b"c-one", b"b-two")
    damage(world, b"b-one")

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await taken(client, queue) == [b"a-one", None]
        with pytest.raises(CorruptRecordError, match="reading can continue at 2"):
            await receive(client, queue)

        await delete_records(client, topic, 2)

        assert await taken(client, queue) == [b"c-one", b"b-two"]


async def test_a_standard_queue_delivers_messages_past_a_damaged_batch_of_any_size(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        topic = topic_of(broker)
        values = [b"a-%d" % number for number in range(50)]
        await produce(client, topic, batch_of(*values))
        await produce(client, topic, batch_of(b"b-one", b"b-two"))

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        held = await receive(client, queue, 1, visibility_timeout_ms=1000)
        (good,) = (data for _, data in world.segments() if b"a-7" in data)
        damage(world, b"a-7")

        assert [each.value for each in await receive(client, queue)] == [b"b-one", b"b-two"]
        with pytest.raises(CorruptRecordError):
            await receive(client, queue)
        await world.pass_time(2)
        with pytest.raises(CorruptRecordError):
            await receive(client, queue)
        await settle(client, queue, held)
        assert await states(client, queue) == (49, 2, 0, 0)
        assert len(world.told("messages_unreadable")) == 1
        await produce(client, topic_of(broker), batch_of(b"c"))
        assert [each.value for each in await receive(client, queue)] == [b"c"]

        restore(broker, good, 50)

        messages = await receive(client, queue, 100)
        assert sorted(each.offset for each in messages) == list(range(1, 50))
        assert await receive(client, queue) == []


async def test_damage_that_was_deleted_blocks_no_receive(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        topic = topic_of(broker)
        await send(client, topic, b"a-one", b"b-one")

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        damage(world, b"b-one")
        assert await taken(client, queue) == [b"a-one", None]

        await delete_records(client, topic, 2)

        assert await taken(client, queue) == []
