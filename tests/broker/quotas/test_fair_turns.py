"""Turns of connections, on virtual time: a flood of one principal does not starve another."""

from collections import Counter

import trio
from trio.testing import MockClock

from tests.broker.broker_requests import submit
from tests.broker.world import World, settle
from tidelog.broker.quotas.fair_turns import FairTurns
from tidelog.broker.quotas.round_robin import QUANTUM_S
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api


async def test_a_principal_with_a_hundred_connections_gets_as_many_turns_as_one_with_one() -> None:
    turns = FairTurns()
    turns.is_needed = True
    counts: Counter[str] = Counter()
    is_over = trio.Event()

    async def work(key: str) -> None:
        while not is_over.is_set():
            if turns.may_go(key):
                await trio.lowlevel.checkpoint()
            else:
                await turns.take(key)
            began_at = trio.current_time()
            counts[key] += 1
            work_for(0.001)
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


def work_for(seconds: float) -> None:
    """Keep the loop busy."""
    began_at = trio.current_time()
    while trio.current_time() - began_at < seconds:
        pass


async def test_a_principal_goes_on_without_a_turn_until_its_millisecond_is_used_up() -> None:
    turns = FairTurns()
    taken_count = 0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        for _ in range(100):
            if not turns.may_go("alice"):
                taken_count += 1
                await turns.take("alice")
            began_at = trio.current_time()
            work_for(QUANTUM_S / 10)
            turns.took("alice", began_at)
        nursery.cancel_scope.cancel()

    assert 1 <= taken_count <= 20  # One for each millisecond of work, and not for each request.


async def test_a_principal_that_works_little_goes_on_beside_one_that_waits() -> None:
    turns = FairTurns()
    began_at = trio.current_time()
    work_for(2 * QUANTUM_S)
    turns.took("flood", began_at)

    assert not turns.may_go("flood")
    assert turns.may_go("alice")
    turns.took("alice", trio.current_time())
    assert turns.may_go("alice")


async def test_after_a_pause_all_principals_have_credit_again(mock_clock: MockClock) -> None:
    turns = FairTurns()
    began_at = trio.current_time()
    mock_clock.jump(1)
    turns.took("flood", began_at)
    assert not turns.may_go("flood")

    mock_clock.jump(2 * QUANTUM_S)

    assert turns.may_go("flood")


async def test_a_cancelled_wait_for_a_turn_leaves_nothing(mock_clock: MockClock) -> None:
    del mock_clock
    turns = FairTurns()
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
