"""Tests of which messages a receive takes."""

import pytest
from trio.testing import MockClock

from broker.queues import taking
from tests.broker.asking import batch_of, produce
from tests.broker.queues.asking import (
    create_queue,
    receive,
    received,
    submit_receive,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen


async def test_messages_are_found_behind_any_number_that_nobody_may_have(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "_MORE_RECORDS", 2)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="1h")
        for number in range(9):
            await produce(client, topic_of(broker), batch_of(b"%d" % number, at_ms=START_MS))
        await produce(client, topic_of(broker), batch_of(b"due", at_ms=START_MS - 3_600_000))

        assert [each.value for each in await receive(client, queue)] == [b"due"]


async def test_who_looked_in_vain_hears_of_the_next_record_and_of_the_next_time(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        for value in (b"first", b"second"):
            pending = submit_receive(
                client, queue, max_wait_ms=60_000, visibility_timeout_ms=10_000
            )
            await let_happen()
            assert not pending.is_answered
            await produce(client, topic_of(broker), batch_of(value))
            assert [each.value for each in await received(pending)] == [value]
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        await world.pass_time(10.1)

        assert [each.value for each in await received(pending)] == [b"first", b"second"]
