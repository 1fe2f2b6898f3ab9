"""Tests of the checkpoints of idle logs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from tests.broker.logs import append
from tests.broker.maintenance.test_group_commit import new_partition, sync_one
from tests.broker.world import World
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.maintenance.idle_checkpoints import IDLE_S
from tidelog.broker.partitions.partition import Partition


@asynccontextmanager
async def group_commit_in(world: World) -> AsyncGenerator[GroupCommit]:
    async with trio.open_nursery() as nursery:
        group_commit = GroupCommit(world.env, nursery)
        nursery.start_soon(group_commit.idle.run)
        yield group_commit
        nursery.cancel_scope.cancel()


async def pass_time(world: World, seconds: float) -> None:
    """Let time pass in steps that are shorter than a round."""
    for _ in range(int(seconds * 10)):
        await world.pass_time(0.1)


def is_behind(partition: Partition) -> bool:
    return partition.log.is_checkpoint_behind


def checkpoint_of(world: World, partition: Partition) -> bytes:
    path = f"{partition.log.directory}/checkpoint"
    return world.disk.visible_bytes(path) if world.disk.exists(path) else b""


async def test_an_idle_log_gets_one_checkpoint(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world) as group_commit:
        await sync_one(group_commit, partition)  # The first flush of a log writes a checkpoint.
        await sync_one(group_commit, partition)
        before = checkpoint_of(world, partition)
        assert is_behind(partition)

        await pass_time(world, IDLE_S + 1)

        assert not is_behind(partition)
        after = checkpoint_of(world, partition)
        assert after != before
        flushes = partition.flushes_begun
        await pass_time(world, 60)
        assert partition.flushes_begun == flushes


async def test_a_log_with_appends_gets_none(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world) as group_commit:
        await sync_one(group_commit, partition)
        before = checkpoint_of(world, partition)
        for _ in range(20):
            await sync_one(group_commit, partition)
            await pass_time(world, IDLE_S / 2)

        assert checkpoint_of(world, partition) == before
        assert is_behind(partition)


async def test_records_in_memory_wait_for_their_flush(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world, "replicated")
    async with group_commit_in(world) as group_commit:
        await sync_one(group_commit, partition)
        group_commit.flush_lazy()
        await group_commit.wait_idle()
        append(partition.log, b"b")
        group_commit.appended(partition)
        flushes = partition.flushes_begun

        await pass_time(world, IDLE_S + 1)
        assert partition.flushes_begun == flushes

        group_commit.flush_lazy()
        await pass_time(world, IDLE_S + 1)
        assert not is_behind(partition)


async def test_a_later_high_watermark_gets_into_the_checkpoint(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    partition.follow(2, 1)
    async with group_commit_in(world) as group_commit:
        await sync_one(group_commit, partition)
        await sync_one(group_commit, partition)
        await pass_time(world, IDLE_S + 1)
        before = checkpoint_of(world, partition)
        assert partition.follower is not None

        partition.follower.high_watermark = 2
        partition.progressed()
        await pass_time(world, 2 * IDLE_S + 1)

        assert not is_behind(partition)
        assert checkpoint_of(world, partition) != before


async def test_many_logs_are_written_in_turn(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partitions = [new_partition(world, number=number) for number in range(120)]
    async with group_commit_in(world) as group_commit:
        for partition in partitions:
            await sync_one(group_commit, partition)
            await sync_one(group_commit, partition)
        await pass_time(world, IDLE_S + 0.25)
        assert 0 < sum(is_behind(partition) for partition in partitions) < 120

        await pass_time(world, 1)

        assert not any(is_behind(partition) for partition in partitions)


async def test_a_log_that_is_closed_is_forgotten(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world) as group_commit:
        await sync_one(group_commit, partition)
        await sync_one(group_commit, partition)
        await group_commit.forget(partition)
        flushes = partition.flushes_begun

        await pass_time(world, IDLE_S + 1)

        assert partition.flushes_begun == flushes
