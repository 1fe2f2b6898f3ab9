"""Tests of which messages a receive takes."""

import pytest
from trio.testing import MockClock

from tests.broker.asking import batch_of, produce
from tests.broker.queues.asking import (
    create_queue,
    receive,
    received,
    settle,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.broker.queues.partition import message_selector as taking
from tidelog.queue_layer.state import time_advance as passing_time


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


@pytest.mark.statement("b86")
async def test_very_many_leases_that_have_ended_are_taken_note_of_in_parts(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing_time, "ENDED_AT_ONCE", 1)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"0", b"1", b"2", b"3", b"4"))
        first = await receive(client, queue, 1, visibility_timeout_ms=1000)
        for number in range(1, 5):
            await receive(client, queue, 1, visibility_timeout_ms=6000 - number * 1000)
        await world.pass_time(10)

        await settle(client, queue, first)

        assert await states(client, queue) == (4, 0, 0, 0)
        again = [(await receive(client, queue, 1))[0].value for _ in range(4)]
        assert again == [b"4", b"3", b"2", b"1"]
