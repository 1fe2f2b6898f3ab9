"""Tests of defects in one partition of a queue: the broker continues."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, fetch_all, produce, submit
from tests.broker.queues.queue_requests import (
    create_queue,
    receive,
    send,
    settle,
    states,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.broker.queues.handlers.deduplication_windows import PartitionWindow
from tidelog.broker.queues.partition.expiry import Expiry
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.partition.journal import Journal
from tidelog.wire.errors import UnexpectedServerError
from tidelog.wire.messages.queue_admin import AlterQueueRequest
from tidelog.wire.messages.queues import RedriveRequest, SettleAction
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


@asynccontextmanager
async def restarted(mock_clock: MockClock) -> AsyncGenerator[tuple[World, RpcConnection, bytes]]:
    """Yield a broker with a queue of cold messages: two are dead, two are not."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, retention_ms="1h")
        for value in (b"a", b"b", b"c", b"d"):
            await produce(client, topic_of(broker), batch_of(value))
        await settle(client, queue, await receive(client, queue, 2), action=SettleAction.REJECT)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        await let_happen()  # The broker has looked for background work in the journal.
        yield world, client, queue


async def remove_defect(world: World, defects: list[str]) -> None:
    """Remove the defect, and wait until the dropped partition is loaded."""
    assert defects
    assert all("partition 0 of queue 'orders' failed unexpectedly" in each for each in defects)
    assert "Traceback" in defects[0]
    assert "LookupError: a defect" in defects[0]
    defects.clear()
    world.work.read_defect = None
    for _ in range(10):
        await world.pass_time(2)


async def test_a_queue_that_failed_to_load_is_loaded_again(
    mock_clock: MockClock, defects: list[str]
) -> None:
    async with restarted(mock_clock) as (world, client, queue):
        world.work.read_defect = LookupError("a defect")

        with pytest.raises(UnexpectedServerError, match="LookupError"):
            await receive(client, queue)

        await remove_defect(world, defects)
        assert [each.value for each in await receive(client, queue)] == [b"c", b"d"]


def _defective(*args: object) -> NoReturn:
    del args
    raise LookupError("a defect")


async def test_a_queue_that_failed_to_expire_messages_is_loaded_again(
    mock_clock: MockClock, defects: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1h")
        long_ago_ms = START_MS - 3000 * 1000
        await produce(client, topic_of(broker), batch_of(b"old", at_ms=long_ago_ms))
        await produce(client, topic_of(broker), batch_of(b"new"))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(Expiry, "slices", _defective)
            await world.pass_time(660)
            await world.pass_time(6)  # After such a jump no time may decide for a moment.

        await remove_defect(world, defects)
        assert [each.value for each in await receive(client, queue)] == [b"new"]


async def test_a_queue_that_failed_to_read_messages_is_loaded_again(
    mock_clock: MockClock, defects: list[str]
) -> None:
    async with restarted(mock_clock) as (world, client, queue):
        await receive(client, queue, 1, visibility_timeout_ms=0)  # The expiry check is done.
        world.work.read_defect = LookupError("a defect")

        with pytest.raises(UnexpectedServerError, match="LookupError"):
            await receive(client, queue)

        await remove_defect(world, defects)
        values = {each.value for each in await receive(client, queue)}
        assert values == {b"c", b"d"}


async def test_dead_letters_are_moved_when_the_defect_is_gone(
    mock_clock: MockClock, defects: list[str]
) -> None:
    async with restarted(mock_clock) as (world, client, queue):
        assert await states(client, queue) == (2, 0, 0, 2)
        world.work.read_defect = LookupError("a defect")
        settings = {"dead_letter_queue": "dead"}
        await submit(client, api.ALTER_QUEUE, AlterQueueRequest("orders", settings, [])).reply()
        await let_happen()

        await remove_defect(world, defects)
        assert await states(client, queue) == (2, 0, 0, 0)


async def test_a_redrive_continues_when_the_defect_is_gone(
    mock_clock: MockClock, defects: list[str]
) -> None:
    async with restarted(mock_clock) as (world, client, queue):
        assert await states(client, queue) == (2, 0, 0, 2)
        topic = b"topic orders".ljust(16, b".")
        world.work.read_defect = LookupError("a defect")
        await submit(client, api.REDRIVE, RedriveRequest(queue, [0], topic)).reply()
        await let_happen()

        await remove_defect(world, defects)
        values = [record.value for record in await fetch_all(client, topic)]
        assert values == [b"a", b"b", b"c", b"d", b"c", b"d"]


async def test_a_queue_that_failed_to_plan_its_next_deadline_is_loaded_again(
    mock_clock: MockClock, defects: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restarted(mock_clock) as (world, client, queue):
        with monkeypatch.context() as patched:
            patched.setattr(HostedPartition, "next_deadline_ms", property(_defective))
            with pytest.raises(UnexpectedServerError, match="LookupError"):
                await receive(client, queue, max_wait_ms=60_000)

        await remove_defect(world, defects)
        assert [each.value for each in await receive(client, queue)] == [b"c", b"d"]


async def test_a_defect_in_the_check_for_background_work_does_not_stop_the_broker(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, defects: list[str]
) -> None:
    async with restarted(mock_clock) as (world, client, queue):

        async def fail(_self: Journal, _reader: object) -> None:
            raise RuntimeError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr(Journal, "read_last", fail)
            settings = AlterQueueRequest("orders", {"dead_letter_queue": "dead"}, [])
            await submit(client, api.ALTER_QUEUE, settings).reply()
            await let_happen()
        assert "checking queue 'orders' for background work failed" in defects.pop()

        await world.pass_time(5.1)

        assert await states(client, queue) == (2, 0, 0, 0), "the dead letters were moved"


async def test_a_defect_in_dropping_idle_windows_does_not_stop_the_broker(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, defects: list[str]
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))

        def fail(_: PartitionWindow) -> float:
            raise RuntimeError("a defect")

        monkeypatch.setattr(PartitionWindow, "idle_s", property(fail))
        await world.pass_time(601)

        assert "dropping idle deduplication windows failed" in defects.pop()
        assert (await send(client, queue, (b"b", "2"))).offsets == [1]
