"""When messages of queues go, by what a broker knows and says of them."""

from trio.testing import MockClock

from tests.broker.asking import batch_of, create_topic, produce
from tests.broker.queues.asking import count, create_queue, receive, settle, topic_of
from tests.broker.world import START_MS, World
from tidelog.wire.messages.queues import QueueCounts

DAY_MS = 24 * 3600 * 1000


def left(found: QueueCounts) -> tuple[int | None, int | None, int | None]:
    """Return the three figures of what is left."""
    return (found.oldest_goes_in_ms, found.oldest_goes_in_bytes, found.oldest_goes_in_disk_bytes)


async def test_counts_say_how_much_time_and_room_the_oldest_message_has(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, retention_ms="7d", retention_bytes="1MiB")
        queue = await create_queue(broker, retention_ms="4d")
        assert left(await count(client, queue)) == (None, None, None)
        now_ms = world.clock.now_ms()
        await produce(client, topic_of(broker), batch_of(b"one", at_ms=now_ms))
        await produce(client, topic_of(broker), batch_of(b"two", at_ms=now_ms + 1000))

        assert left(await count(client, queue)) == (4 * DAY_MS, 1 << 20, None)

        await settle(client, queue, await receive(client, queue, 1))
        assert left(await count(client, queue)) == (4 * DAY_MS + 1000, 1 << 20, None)

        await settle(client, queue, await receive(client, queue, 1))
        found = await count(client, queue)
        assert (left(found), found.oldest_goes_soon) == ((None, None, None), False)


async def test_a_queue_that_keeps_its_messages_for_ever_goes_by_its_topic(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, retention_ms="7d")
        await create_topic(client, "endless", retention_ms="unlimited")
        queue = await create_queue(broker, retention_ms="unlimited")
        endless = await create_queue(broker, "q", topic="endless", retention_ms="unlimited")
        for name in ("orders", "endless"):
            await produce(client, topic_of(broker, name), batch_of(b"one", at_ms=START_MS))

        await world.pass_time(6.5 * DAY_MS / 1000)

        found = await count(client, queue)
        assert found.oldest_goes_in_ms is not None
        assert 0.49 < found.oldest_goes_in_ms / DAY_MS <= 0.5
        assert found.oldest_goes_soon
        assert left(await count(client, endless)) == (None, None, None)
