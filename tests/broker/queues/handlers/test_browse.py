"""Tests of looking at messages."""

from trio.testing import MockClock

from tests.broker.asking import batch_of, produce
from tests.broker.queues.asking import (
    create_queue,
    look,
    receive,
    topic_of,
)
from tests.broker.world import World
from tidelog.wire.messages.queues import MessageState

TIMEOUT_S = 30


async def test_people_see_who_has_what(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await receive(client, queue, 1)

        seen = (await look(client, queue)).runs

        assert [(run.first_offset, run.state, run.holder) for run in seen] == [
            (0, MessageState.IN_FLIGHT, "a test"),
            (1, MessageState.VISIBLE, ""),
        ]


async def test_the_records_come_with_what_is_seen_as_far_as_there_is_room(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        for value in (b"a", b"b", b"c"):
            await produce(client, topic_of(broker), batch_of(value))

        one = await look(client, queue, bytes_max=1)
        all_of_them = await look(client, queue, bytes_max=1 << 20)

        assert ([run.count for run in one.runs], one.next_offset) == ([1], 1)
        assert ([run.count for run in all_of_them.runs], all_of_them.next_offset) == ([3], None)
