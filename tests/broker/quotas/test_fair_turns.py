"""Turns of connections, on virtual time: a flood of one principal does not starve another."""

from collections import Counter

import trio
from trio.testing import MockClock

from tests.broker.broker_requests import submit
from tests.broker.world import World, settle
from tidelog.broker.quotas.fair_turns import FairTurns
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api


async def test_a_principal_with_a_hundred_connections_gets_as_many_turns_as_one_with_one() -> None:
    turns = FairTurns()
    turns.is_needed = True
    counts: Counter[str] = Counter()
    is_over = trio.Event()

    async def work(key: str) -> None:
        while not is_over.is_set():
            await turns.take(key)
            began_at = trio.current_time()
            counts[key] += 1
            while trio.current_time() - began_at < 0.001:
                pass
            turns.took(key, began_at)
            if counts["alice"] == 100:
                is_over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        for _ in range(100):
            nursery.start_soon(work, "flood")
        nursery.start_soon(work, "alice")
        await is_over.wait()
        nursery.cancel_scope.cancel()

    assert counts["flood"] <= 3 * counts["alice"]


async def test_a_loop_that_is_not_busy_gives_a_turn_at_once() -> None:
    turns = FairTurns()

    await turns.take("alice")  # Although `run` does not run.


async def test_a_cancelled_wait_for_a_turn_leaves_nothing(mock_clock: MockClock) -> None:
    del mock_clock
    turns = FairTurns()
    turns.took("alice", trio.current_time())
    with trio.move_on_after(0):
        await turns.take("alice")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        await turns.take("bob")
        nursery.cancel_scope.cancel()


async def test_connections_from_two_addresses_take_turns_and_all_are_answered(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        turns = broker.quotas.turns
        turns.is_needed = True
        replies = [submit(client, api.METADATA, MetadataRequest(None)) for _ in range(300)]
        await settle()

        assert all(reply.is_answered for reply in replies)
        await world.pass_time(5)
        assert not turns.is_needed  # One address is left.
