"""Tests of the time of a queue: leases last as long as they should while wall clocks jump."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce
from tests.broker.queues.queue_requests import (
    Message,
    create_queue,
    receive,
    received,
    submit_receive,
    topic_of,
)
from tests.broker.queues.test_failover import at_leader, make_queue
from tests.broker.queues.workers import JOURNAL
from tests.broker.replication.three_brokers import ThreeBrokers, live
from tests.broker.world import World, settle
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process

HOUR_MS = 3_600_000
LEASE_S = 30.0


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
async def test_a_jump_of_an_hour_changes_no_lease_of_a_broker_alone(
    mock_clock: MockClock, jump_ms: int
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        assert len(await receive(client, queue, 1, visibility_timeout_ms=int(LEASE_S * 1000))) == 1
        world.clock.offset_ms += jump_ms

        await world.pass_time(LEASE_S - 5)
        assert await receive(client, queue, 1) == []
        await world.pass_time(10)
        assert len(await receive(client, queue, 1, visibility_timeout_ms=int(LEASE_S * 1000))) == 1

        world.clock.offset_ms -= jump_ms  # Another lease after it.
        await world.pass_time(LEASE_S - 5)
        assert await receive(client, queue, 1) == []
        await world.pass_time(10)
        assert len(await receive(client, queue, 1)) == 1


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("is_before", [True, False])
def test_a_jump_of_an_hour_of_one_broker_changes_no_lease(jump_ms: int, *, is_before: bool) -> None:
    """A lease of the broker with the wrong clock ends in time, also under another leader."""

    async def main(brokers: ThreeBrokers) -> None:
        queue_id = await make_queue(brokers, 1, visibility_timeout_ms="30s", receive_acks="all")
        first = brokers.leader(JOURNAL)
        assert first is not None
        done = trio.Event()

        async def client(process: Process) -> None:
            if is_before:
                brokers.machines[first].wall_clock.jump(jump_ms / 1000)
                await trio.sleep(5)
            (message,) = await at_leader(brokers, process, queue_id)
            leased_at = trio.current_time()
            if not is_before:
                brokers.machines[first].wall_clock.jump(jump_ms / 1000)
            await trio.sleep(3)
            brokers.kill(first)
            await until(lambda: brokers.leader(JOURNAL) not in {None, first}, 60)
            again: list[Message] = []
            while not again:
                await trio.sleep(0.5)
                again = await at_leader(brokers, process, queue_id)
            assert again[0].offset == message.offset
            assert abs(trio.current_time() - leased_at - LEASE_S) <= 5
            done.set()

        brokers.world.add_node("client").start(client)
        with trio.fail_after(120):
            await done.wait()

    live(6, main)


async def test_a_journal_that_is_an_hour_ahead_delays_no_lease(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    world.clock.offset_ms += HOUR_MS
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        assert len(await receive(client, queue, 1, visibility_timeout_ms=1000)) == 1
    world.clock.offset_ms -= HOUR_MS
    async with world.broker(), world.client() as client:
        pending = submit_receive(
            client, queue, 1, visibility_timeout_ms=int(LEASE_S * 1000), max_wait_ms=10_000
        )
        await settle()
        await world.pass_time(2)
        assert pending.reply.is_answered
        reply = await pending.reply.reply()
        (partition,) = reply.results
        assert abs(partition.deadline_ms - reply.now_ms - LEASE_S * 1000) <= 100

        waiting = submit_receive(client, queue, 1, max_wait_ms=60_000)
        await world.pass_time(LEASE_S - 5)
        assert not waiting.reply.is_answered
        await world.pass_time(10)
        assert len(await received(waiting)) == 1
