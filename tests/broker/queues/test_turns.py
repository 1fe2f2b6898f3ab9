"""Tests of ticks: at the end of the turn of a lonely connection, or in the task for many."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import Generator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, produce
from tests.broker.queues.queue_requests import (
    create_queue,
    receive,
    received,
    settle,
    submit_receive,
    topic_of,
)
from tests.broker.world import World
from tests.broker.world import settle as let_happen
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.queues.turns import Turns

FEW = 40


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Generator[dict[str, int]]:
    """Count the turns of all connections, and the ticks of the task."""
    counts = {"turns": 0, "ticks": 0, "alone": 0}
    end_turn, tick = QueueServer.end_turn, QueueServer._tick

    def counted_end(server: QueueServer) -> None:
        if not server._is_busy:
            return
        counts["turns"] += 1
        before = counts["ticks"]
        end_turn(server)
        if counts["ticks"] > before:
            counts["ticks"] -= 1
            counts["alone"] += 1

    def counted_tick(server: QueueServer) -> None:
        counts["ticks"] += bool(server._new_receives or server._new_decisions)
        tick(server)

    monkeypatch.setattr(QueueServer, "end_turn", counted_end)
    monkeypatch.setattr(QueueServer, "_tick", counted_tick)
    yield counts


async def test_a_lonely_connection_is_served_at_the_end_of_its_turns(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting(monkeypatch) as counts:
        world = World(mock_clock)
        async with world.broker() as broker, world.client() as client:
            queue = await create_queue(broker)
            await produce(client, topic_of(broker), batch_of(*[b"v"] * FEW))
            for _ in range(FEW):
                await settle(client, queue, await receive(client, queue, 1))

        assert counts["turns"] == 2 * FEW
        assert counts["alone"] > 2 * FEW * 0.8
        assert counts["ticks"] > 2 * FEW / 20, "the task counts turns now and then"


async def test_the_turns_of_many_connections_share_ticks(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting(monkeypatch) as counts:
        world = World(mock_clock)
        async with world.broker() as broker, world.client() as client:
            queue = await create_queue(broker)
            await produce(client, topic_of(broker), batch_of(*[b"v"] * 7 * FEW))
            await work(world, queue, FEW)
            assert counts["alone"] > 0
            before = dict(counts)
            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(work, world, queue, FEW)

        turns = counts["turns"] - before["turns"]
        alone, ticks = counts["alone"] - before["alone"], counts["ticks"] - before["ticks"]
        assert turns == 12 * FEW
        assert alone + ticks < 0.8 * turns, "it is random how many connections are busy together"


async def test_a_record_is_received_at_the_end_of_its_turn(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks_of_the_task, ticked = 0, Turns.ticked

    def counted(turns: Turns) -> None:
        nonlocal ticks_of_the_task
        ticks_of_the_task += 1
        ticked(turns)

    monkeypatch.setattr(Turns, "ticked", counted)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, durability="replicated")
        queue = await create_queue(broker)
        for _ in range(FEW):
            waiting = submit_receive(client, queue, 1, max_wait_ms=60_000)
            await let_happen()
            await produce(client, topic_of(broker), batch_of(b"v"))
            await settle(client, queue, await received(waiting))

    assert ticks_of_the_task < FEW / 2, "of three turns for each record"


async def work(world: World, queue: bytes, count: int) -> None:
    async with world.client() as client:
        for _ in range(count):
            await settle(client, queue, await receive(client, queue, 1))


async def test_a_receive_is_parked_only_when_it_waits(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        await received(submit_receive(client, queue, 1, max_wait_ms=60_000))
        assert broker.statistics().waiting_count == 0

        waiting = submit_receive(client, queue, 1, max_wait_ms=60_000)
        await let_happen()

        assert broker.statistics().waiting_count == 1
        await produce(client, topic_of(broker), batch_of(b"b"))
        assert [each.value for each in await received(waiting)] == [b"b"]
        assert broker.statistics().waiting_count == 0
