"""Tests of group commit."""

import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import pytest
import trio
from trio.testing import MockClock

from tests.broker.logs import TOPIC_ID, append, config_of, open_partition_log
from tests.broker.world import World, settle
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.log import LogStatus
from tidelog.wire.errors import LogOfflineError


@asynccontextmanager
async def group_commit_in(world: World, *, is_alone: bool = False) -> AsyncGenerator[GroupCommit]:
    async with trio.open_nursery() as nursery:
        group_commit = GroupCommit(world.env, nursery)
        group_commit.is_alone = is_alone
        yield group_commit


async def sync_one(group_commit: GroupCommit, partition: Partition, value: bytes = b"a") -> int:
    """Append a batch and sync it; return the offset behind it."""
    end = append(partition.log, value)
    group_commit.appended(partition)
    await group_commit.wait_idle()
    return end


def new_partition(world: World, durability: str = "fsync", number: int = 0) -> Partition:
    config = config_of(durability)
    log = open_partition_log(world.disk, config, number=number)
    partition = Partition(
        TOPIC_ID, number, log, topic="orders", config=config, probe=world.env.probe
    )
    partition.lead(0)
    return partition


async def test_appended_records_become_durable(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world) as group_commit:
        end = append(partition.log, b"a")
        group_commit.appended(partition)
        assert partition.log.durable_end_offset == 0

        await group_commit.wait_idle()

        assert partition.log.durable_end_offset == partition.high_watermark == end


async def test_one_sync_of_a_partition_runs_at_a_time(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    world.work.hold_syncs()
    async with group_commit_in(world) as group_commit:
        for _ in range(5):
            append(partition.log, b"a")
            group_commit.appended(partition)
            await settle()
            assert world.work.held_count == 1

        world.work.let_all_sync()
        await group_commit.wait_idle()

    assert world.work.sync_count == 2
    assert partition.log.durable_end_offset == 5


async def test_flush_now_waits_for_a_sync_that_began_after_the_call(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partition = new_partition(world, "replicated")
    world.work.hold_syncs()
    async with group_commit_in(world) as group_commit, trio.open_nursery() as nursery:
        append(partition.log, b"a")
        group_commit.request(partition)
        await settle()
        append(partition.log, b"b")
        seen: list[int] = []

        async def flush_and_look() -> None:
            await group_commit.flush_now(partition)
            seen.append(partition.log.durable_end_offset)

        nursery.start_soon(flush_and_look)
        await settle()
        world.work.let_sync()
        await settle()
        assert seen == []
        world.work.let_all_sync()
        await settle()

        assert seen == [2]


async def test_flush_now_returns_at_once_when_all_is_durable(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world) as group_commit:
        append(partition.log, b"a")
        await group_commit.flush_now(partition)
        count = world.work.sync_count

        await group_commit.flush_now(partition)

        assert world.work.sync_count == count


async def test_flush_now_raises_when_the_disk_failed(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world) as group_commit:
        append(partition.log, b"a")
        world.disk.fail("sync", error_number=errno.EIO)

        for _ in range(2):  # A failed sync is never retried.
            with pytest.raises(LogOfflineError, match="fsync failed"):
                await group_commit.flush_now(partition)

    assert [event["status"] for event in world.told("log_status_changed")] == ["offline"]
    assert partition.log.durable_end_offset == 0


async def test_forget_waits_for_the_sync_under_way_and_no_other_follows(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    world.work.hold_syncs()
    async with group_commit_in(world) as group_commit, trio.open_nursery() as nursery:
        append(partition.log, b"a")
        group_commit.appended(partition)
        await settle()
        append(partition.log, b"b")
        group_commit.appended(partition)
        partition.log.close()
        is_forgotten = trio.Event()

        async def forget() -> None:
            await group_commit.forget(partition)
            is_forgotten.set()

        nursery.start_soon(forget)
        await settle()
        assert not is_forgotten.is_set()
        world.work.let_sync()
        await settle()

        assert is_forgotten.is_set()
        assert world.work.sync_count == 1
        world.work.let_all_sync()


async def test_a_forgotten_partition_gets_no_background_flush(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partition = new_partition(world, "replicated")
    async with group_commit_in(world) as group_commit:
        append(partition.log, b"a")
        group_commit.appended(partition)
        await group_commit.forget(partition)

        group_commit.flush_lazy()
        await group_commit.wait_idle()

    assert world.work.sync_count == 0


async def test_a_held_log_is_not_flushed_before_its_release(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    world.work.hold_syncs()
    async with group_commit_in(world) as group_commit, trio.open_nursery() as nursery:
        append(partition.log, b"a")
        group_commit.request(partition)
        await settle()
        let_go = trio.Event()
        is_held: list[bool] = []

        async def hold() -> None:
            async with group_commit.hold(partition):
                is_held.append(partition.is_flushing)
                await let_go.wait()

        nursery.start_soon(hold)
        await settle()
        assert is_held == [], "a sync is under way"
        world.work.let_sync()
        await settle()
        assert is_held == [False]

        append(partition.log, b"b")
        group_commit.request(partition)
        nursery.start_soon(group_commit.flush_now, partition)
        await settle()
        assert world.work.held_count == 0
        let_go.set()
        await settle()
        world.work.let_all_sync()
        await settle()

        assert partition.log.durable_end_offset == 2


async def partition_with_a_checkpoint_under_way(
    world: World, group_commit: GroupCommit
) -> Partition:
    """Return a partition with one durable record, whose log was rolled."""
    partition = new_partition(world)
    await group_commit.flush_now(partition)
    append(partition.log, b"a")
    partition.log.roll_if_old(now_ms=world.env.clock.now_ms(), force=True)
    world.work.hold_syncs()
    group_commit.request(partition)
    await settle()
    world.work.let_sync()
    await settle()
    assert partition.is_checkpointing
    assert not partition.is_flushing
    assert partition.high_watermark == partition.log.durable_end_offset == 1
    return partition


async def test_records_become_durable_while_a_checkpoint_is_written(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with group_commit_in(world) as group_commit:
        partition = await partition_with_a_checkpoint_under_way(world, group_commit)
        scanned_bytes = partition.log.bytes_since_checkpoint
        append(partition.log, b"b")
        group_commit.appended(partition)
        await settle()
        assert world.work.held_count == 2
        checkpoint, sync = world.work.take_held_syncs()
        sync.set()
        await settle()
        assert partition.high_watermark == 2
        assert partition.log.bytes_since_checkpoint > scanned_bytes

        checkpoint.set()
        await group_commit.wait_idle()

        assert 0 < partition.log.bytes_since_checkpoint < scanned_bytes + 1
        assert not partition.is_checkpointing


async def test_holding_a_log_waits_for_its_checkpoint(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with group_commit_in(world) as group_commit, trio.open_nursery() as nursery:
        partition = await partition_with_a_checkpoint_under_way(world, group_commit)
        done: list[str] = []

        async def hold() -> None:
            async with group_commit.hold(partition):
                partition.log.truncate(0)
                done.append("held")

        async def forget() -> None:
            await group_commit.forget(partition)
            done.append("forgotten")

        nursery.start_soon(hold)
        await settle()
        nursery.start_soon(forget)
        await settle()
        assert done == []
        world.work.let_all_sync()
        await settle()

        assert done == ["held", "forgotten"]
        assert partition.log.log_end_offset == 0


async def test_a_due_checkpoint_follows_the_one_under_way(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with group_commit_in(world) as group_commit, trio.open_nursery() as nursery:
        partition = await partition_with_a_checkpoint_under_way(world, group_commit)
        partition.log.delete_records(1, high_watermark=1)
        nursery.start_soon(group_commit.flush_now, partition)
        await settle()
        assert world.work.held_count == 1
        is_due_meanwhile = partition.log.is_checkpoint_due
        world.work.let_all_sync()
        await settle()

        assert (is_due_meanwhile, partition.log.is_checkpoint_due) == (True, False)
    for seed in range(5):
        again = open_partition_log(world.disk.power_cut(Random(seed)), config_of("fsync"))
        assert again.log_start_offset == 1


async def test_a_log_that_was_rolled_during_a_checkpoint_gets_another(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with group_commit_in(world) as group_commit:
        partition = await partition_with_a_checkpoint_under_way(world, group_commit)
        append(partition.log, b"b")
        partition.log.roll_if_old(now_ms=world.env.clock.now_ms(), force=True)

        world.work.let_all_sync()
        await group_commit.flush_now(partition)
        await group_commit.wait_idle()

        assert partition.log.bytes_since_checkpoint == 0


async def test_a_flush_without_file_descriptors_is_retried(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world) as group_commit:
        append(partition.log, b"a")
        await group_commit.flush_now(partition)
        end = append(partition.log, b"b")
        partition.log.roll_if_old(now_ms=world.env.clock.now_ms(), force=True)
        world.disk.fail("sync_directory", error_number=errno.EMFILE, count=3)

        mock_clock.autojump_threshold = 0
        with trio.fail_after(5):
            await group_commit.flush_now(partition)

    assert partition.log.status is LogStatus.ONLINE
    assert partition.log.durable_end_offset == end
    assert len(world.told("flush_delayed")) == 3
    assert partition.flushes_begun == partition.flushes_ended


async def test_a_failed_checkpoint_takes_the_log_offline_and_durable_records_stay(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with group_commit_in(world) as group_commit:
        partition = await partition_with_a_checkpoint_under_way(world, group_commit)
        world.disk.fail("rename", error_number=errno.EIO)
        world.work.let_all_sync()
        await group_commit.wait_idle()

        with pytest.raises(LogOfflineError, match="writing a checkpoint failed"):
            await group_commit.flush_now(partition)

    assert partition.log.status is LogStatus.OFFLINE
    assert partition.log.durable_intact
    assert [event["status"] for event in world.told("log_status_changed")] == ["offline"]


@pytest.mark.parametrize(
    ("is_alone", "size", "is_brief"),
    [(True, 100, True), (True, 100_000, False), (False, 100, False)],
)
async def test_a_broker_that_is_alone_syncs_a_few_bytes_without_a_thread(
    mock_clock: MockClock, is_alone: bool, size: int, *, is_brief: bool
) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world, is_alone=is_alone) as group_commit:
        await sync_one(group_commit, partition)
        assert world.work.brief_count == 0, "the name of a new file takes another sync"

        end = await sync_one(group_commit, partition, b"a" * size)

        assert world.work.brief_count == is_brief
        assert partition.high_watermark == end


@pytest.mark.parametrize(("partition_count", "brief_count"), [(2, 2), (3, 0)])
async def test_concurrent_syncs_of_several_partitions_use_threads(
    mock_clock: MockClock, partition_count: int, brief_count: int
) -> None:
    world = World(mock_clock)
    async with group_commit_in(world, is_alone=True) as group_commit:
        partitions = [new_partition(world, number=number) for number in range(partition_count)]
        for expected_count in (0, brief_count):  # The name of a new file takes another sync.
            for partition in partitions:
                append(partition.log, b"a")
                group_commit.appended(partition)
            await group_commit.wait_idle()
            assert world.work.brief_count == expected_count


async def test_an_append_just_before_a_sync_in_the_loop_is_included(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partition = new_partition(world)
    async with group_commit_in(world, is_alone=True) as group_commit:
        await sync_one(group_commit, partition)

        async def append_one() -> None:
            append(partition.log, b"b")
            group_commit.appended(partition)

        for _ in range(10):  # In one turn of the loop trio runs tasks in any order.
            sync_count = world.work.sync_count
            append(partition.log, b"a")
            group_commit.appended(partition)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(append_one)
            await group_commit.wait_idle()

            assert partition.log.durable_end_offset == partition.log.log_end_offset
            assert world.work.sync_count == sync_count + 1
