"""Tests of warnings before messages of a queue expire, and of reports of lost messages."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, produce
from tests.broker.queues.chunks import chunk
from tests.broker.queues.queue_requests import count, create_queue, receive, seek, settle, topic_of
from tests.broker.world import START_MS, World
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.server import Broker
from tidelog.wire.messages.queues import SettleAction
from tidelog.wire.transport.rpc import RpcConnection

DAY_S = 24 * 3600
ROUND_S = 61.0


async def fill(client: RpcConnection, topic: bytes, *, batches: int, first: int = 0) -> None:
    """Send messages, each of which takes a segment of 4 KiB for itself, and half of it."""
    for number in range(first, first + batches):
        await produce(client, topic, batch_of(b"%d" % (number % 10) * 2000))


async def pass_rounds(world: World, count: int = 3) -> None:
    """Let the broker check twice."""
    for _ in range(count):
        await world.pass_time(ROUND_S)


def is_loaded(broker: Broker, queue: bytes) -> bool:
    """Return whether a queue is in memory."""
    assert broker._partitions is not None
    journal = broker._partitions.replica(queue, 0)
    assert journal is not None
    return any(isinstance(watcher, HostedPartition) for watcher in journal.watchers)


async def test_an_unloaded_queue_is_reported_before_its_messages_expire(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, retention_ms="10d")
        await create_queue(broker, retention_ms="unlimited")
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=START_MS))

        await world.pass_time(9 * DAY_S - 600)
        await pass_rounds(world)
        assert world.told("messages_expire_soon") == []

        await world.pass_time(600)
        await pass_rounds(world)

        (told,) = world.told("messages_expire_soon")
        assert (told["severity"], told["queue"], told["partition"]) == ("warning", "orders", 0)
        assert told["retention_ms"] == 10 * DAY_S * 1000
        assert 9 < int(str(told["oldest_age_ms"])) / (DAY_S * 1000) < 9.01


async def test_a_retention_warning_is_repeated_after_an_hour(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, retention_ms="100d")
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=START_MS))
        await world.pass_time(95 * DAY_S)
        await pass_rounds(world)
        assert len(world.told("messages_expire_soon")) == 1

        for _ in range(55):
            await world.pass_time(60)
        assert len(world.told("messages_expire_soon")) == 1
        for _ in range(5):
            await world.pass_time(60)

        assert len(world.told("messages_expire_soon")) == 2


async def test_a_queue_whose_messages_are_deleted_gets_no_retention_warning(
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

        assert [told["queue"] for told in world.told("messages_expire_soon")] == ["others"]


async def test_chunks_of_a_failed_send_cause_no_retention_warning(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, retention_ms="10d")
        await produce(client, topic_of(broker), chunk(0))
        await produce(client, topic_of(broker), chunk(1))
        await world.pass_time(9.5 * DAY_S)
        at_ms = world.clock.now_ms()
        await produce(client, topic_of(broker), batch_of(b"young", at_ms=at_ms))
        await pass_rounds(world)
        assert world.told("messages_expire_soon") == []

        await world.pass_time(9.5 * DAY_S)
        await pass_rounds(world)

        (told,) = world.told("messages_expire_soon")
        assert 9.5 < int(str(told["oldest_age_ms"])) / (DAY_S * 1000) < 9.51


async def test_lost_messages_are_reported_for_an_unused_queue(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, segment_bytes="4KiB", retention_bytes="40KiB")
        queue = await create_queue(broker)
        topic = topic_of(broker)
        await fill(client, topic, batches=19)
        await pass_rounds(world)
        assert world.told("messages_gone") == []

        await fill(client, topic, batches=10, first=19)
        await pass_rounds(world)

        gone = world.told("messages_gone")
        assert gone
        start = (await count(client, queue)).oldest_offset
        assert sum(int(str(each["count"])) + int(str(each["unseen"])) for each in gone) == start > 0


async def test_counts_have_the_oldest_message_age(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        assert (await count(client, queue)).oldest_age_ms is None
        now_ms = world.clock.now_ms()
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=now_ms - 1000))
        await produce(client, topic_of(broker), batch_of(b"two", at_ms=now_ms + 1000))

        assert (await count(client, queue)).oldest_age_ms == 1000

        await settle(client, queue, await receive(client, queue, 1))
        assert (await count(client, queue)).oldest_age_ms == 0, "the timestamp is in the future"


async def test_a_queue_without_retention_uses_that_of_its_topic(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, retention_ms="7d")
        await create_topic(client, "endless", retention_ms="unlimited")
        await create_queue(broker, retention_ms="unlimited")
        await create_queue(broker, "q", topic="endless", retention_ms="unlimited")
        for name in ("orders", "endless"):
            await produce(client, topic_of(broker, name), batch_of(b"one", at_ms=START_MS))

        await world.pass_time(6.5 * DAY_S)
        await pass_rounds(world)

        assert [told["queue"] for told in world.told("messages_expire_soon")] == ["orders"]


async def test_a_queue_is_loaded_once_and_only_near_the_retention_limit(
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
        assert len(world.told("messages_expire_soon")) == 3


async def test_a_queue_after_a_seek_gets_a_retention_warning(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="10d")
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=START_MS))
        await settle(client, queue, await receive(client, queue))
        await world.pass_time(9.5 * DAY_S)
        await pass_rounds(world)
        assert world.told("messages_expire_soon") == []

        await seek(client, queue, 0)
        await world.pass_time(300)
        await pass_rounds(world)

        assert len(world.told("messages_expire_soon")) == 1


async def test_a_queue_with_an_old_dead_letter_is_not_loaded_again_and_again(
    mock_clock: MockClock,
) -> None:
    """A rejected message without a dead-letter queue stays; it does not expire."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, retention_ms="unlimited")
        queue = await create_queue(broker, retention_ms="1d")
        await produce(client, topic_of(broker), batch_of(b"bad", at_ms=START_MS))
        messages = await receive(client, queue)
        await settle(client, queue, messages, action=SettleAction.REJECT)
        await world.pass_time(1.1 * DAY_S)
        for _ in range(20):
            await world.pass_time(60)
        warnings = len(world.told("messages_expire_soon"))

        loads = 0
        for _ in range(60):
            await world.pass_time(60)
            loads += is_loaded(broker, queue)

        assert loads == 0
        assert len(world.told("messages_expire_soon")) == warnings
        assert (await count(client, queue)).dead == 1
