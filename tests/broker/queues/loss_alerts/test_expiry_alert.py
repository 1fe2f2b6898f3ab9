"""The log of the broker says that a queue is about to lose messages, and that it has lost some."""

# Looks into brokers, which nobody else has to.
# pyright: reportPrivateUsage=false

from trio.testing import MockClock

from tests.broker.asking import batch_of, create_topic, produce, submit
from tests.broker.queues.asking import count, create_queue, receive, seek, settle, topic_of
from tests.broker.world import START_MS, World
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.server import Broker
from tidelog.wire.messages.cluster_admin import AlterClusterRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.rpc import RpcConnection

DAY_S = 24 * 3600
ROUND_S = 6.0


async def fill(client: RpcConnection, topic: bytes, *, batches: int, first: int = 0) -> None:
    """Send messages, each of which takes a segment of 4 KiB for itself, and half of it."""
    for number in range(first, first + batches):
        await produce(client, topic, batch_of(b"%d" % (number % 10) * 2000))


async def pass_rounds(world: World, count: int = 3) -> None:
    """Let maintenance look, and look again."""
    for _ in range(count):
        await world.pass_time(ROUND_S)


def is_loaded(broker: Broker, queue: bytes) -> bool:
    """Return whether a queue is in memory."""
    assert broker._partitions is not None
    journal = broker._partitions.replica(queue, 0)
    assert journal is not None
    return any(isinstance(watcher, HostedPartition) for watcher in journal.watchers)


async def test_a_queue_that_nobody_has_loaded_is_named_when_its_messages_come_near_to_going(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, retention_ms="10d")
        await create_queue(broker, retention_ms="20d")
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=START_MS))

        await world.pass_time(9 * DAY_S - 60)
        await pass_rounds(world)
        assert world.told("messages_go_soon") == []

        await world.pass_time(5 * 60)
        await pass_rounds(world)

        (told,) = world.told("messages_go_soon")
        assert (told["severity"], told["queue"], told["partition"]) == ("warning", "orders", 0)
        assert 0.99 < int(str(told["in_ms"])) / (DAY_S * 1000) < 1
        assert (told["in_bytes"], told["in_disk_bytes"]) == (None, None)


async def test_it_is_said_again_only_after_an_hour(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, retention_ms="100d")
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=START_MS))
        await world.pass_time(95 * DAY_S)
        await pass_rounds(world)
        assert len(world.told("messages_go_soon")) == 1

        for _ in range(58):
            await world.pass_time(60)
        assert len(world.told("messages_go_soon")) == 1
        for _ in range(3):
            await world.pass_time(60)

        assert len(world.told("messages_go_soon")) == 2


async def test_nothing_is_said_of_a_queue_whose_messages_were_deleted(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="10d")
        await create_queue(broker, "others", retention_ms="10d")
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=START_MS))
        await settle(client, queue, await receive(client, queue))

        await world.pass_time(9.5 * DAY_S)
        await pass_rounds(world)

        assert [told["queue"] for told in world.told("messages_go_soon")] == ["others"]


async def test_it_is_said_before_a_topic_is_too_large_and_after_that_what_was_lost(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, segment_bytes="4KiB", retention_bytes="40KiB")
        queue = await create_queue(broker)
        topic = topic_of(broker)
        await fill(client, topic, batches=8)
        await pass_rounds(world)
        found = await count(client, queue)
        assert (found.oldest_goes_soon, found.oldest_goes_in_disk_bytes) == (False, None)
        assert found.oldest_goes_in_bytes is not None
        assert 24 << 10 < found.oldest_goes_in_bytes < 36 << 10

        await fill(client, topic, batches=11, first=8)
        await pass_rounds(world)

        (told,) = world.told("messages_go_soon")
        assert int(str(told["in_bytes"])) < 4096
        assert world.told("messages_gone") == []

        await fill(client, topic, batches=10, first=19)
        await pass_rounds(world, 14)

        gone = world.told("messages_gone")
        assert gone
        start = (await count(client, queue)).oldest_offset
        assert sum(int(str(each["count"])) + int(str(each["unseen"])) for each in gone) == start > 0


async def test_it_is_said_before_all_topics_take_too_much(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, "orders", segment_bytes="4KiB")
        await create_topic(client, "others", segment_bytes="4KiB")
        queue = await create_queue(broker)
        topic = topic_of(broker)
        await fill(client, topic, batches=8)
        limit = AlterClusterRequest({"log_retention_disk_bytes": "48KiB"}, [])
        await submit(client, api.ALTER_CLUSTER, limit).reply()
        await pass_rounds(world)
        assert world.told("messages_go_soon") == []
        before = (await count(client, queue)).oldest_goes_in_disk_bytes

        await fill(client, topic_of(broker, "others"), batches=14)
        await pass_rounds(world)

        found = await count(client, queue)
        (told,) = world.told("messages_go_soon")
        assert told["in_disk_bytes"] == found.oldest_goes_in_disk_bytes
        assert before is not None
        assert found.oldest_goes_in_disk_bytes is not None
        assert found.oldest_goes_in_disk_bytes < 4800 < before


async def test_no_queue_is_loaded_for_it_while_there_is_time_and_then_only_once(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, retention_ms="unlimited")
        queue = await create_queue(broker, retention_ms="10d")
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=START_MS))
        for _ in range(8):
            await world.pass_time(DAY_S)
            assert not is_loaded(broker, queue)

        await world.pass_time(1.5 * DAY_S)
        assert is_loaded(broker, queue)
        await pass_rounds(world, 1)

        for _ in range(30):
            await world.pass_time(300)
            assert not is_loaded(broker, queue)
        assert len(world.told("messages_go_soon")) == 3


async def test_who_goes_back_in_time_is_warned_as_well(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="10d")
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=START_MS))
        await settle(client, queue, await receive(client, queue))
        await world.pass_time(9.5 * DAY_S)
        await pass_rounds(world)
        assert world.told("messages_go_soon") == []

        await seek(client, queue, 0)
        await world.pass_time(300)
        await pass_rounds(world)

        assert len(world.told("messages_go_soon")) == 1
