"""Tests of compaction beside other work of a broker."""

# Runs single rounds, which the compactor itself repeats until nothing is dirty.
# pyright: reportPrivateUsage=false

import errno
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import alter_topic, create_topic, fetch_all, produce, submit
from tests.broker.logs import TOPIC_ID, flush, open_partition_log
from tests.broker.world import World, settle
from tests.logstore.keyed_logs import rows_of
from tidelog.broker.maintenance.compactor import CompactionLimits, Compactor
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.coordinator.metadata.topic_config import topic_config
from tidelog.logstore.compaction.policy import CompactionConfig
from tidelog.logstore.log import PartitionLog
from tidelog.wire.batch.record_batch import Columns, check_produced, encode_batch
from tidelog.wire.messages.topic_usage import PartitionUsage, TopicUsageRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

EAGER = CompactionConfig(min_cleanable_dirty_ratio=0.0)
CONFIG = topic_config({"segment_bytes": "4KiB"})
LIMITS = CompactionLimits(bytes_per_s=1 << 20, memory_bytes=1 << 20)


def fill(log: PartitionLog, count: int = 40, *, keys: int = 3) -> None:
    """Append values of three keys, all committed, in some segments."""
    for number in range(count):
        columns = Columns(1, keys=[b"%d" % (number % keys)], values=[b"%d" % number * 200])
        batch = memoryview(encode_batch(columns, first_timestamp_ms=1))
        log.append(batch, check_produced(batch), leader_epoch=0, now_ms=0)
    log.roll_if_old(now_ms=0, force=True)
    log.high_watermark = log.log_end_offset
    flush(log)


def compactor_of(
    world: World,
    group_commit: GroupCommit,
    partitions: list[Partition],
    *,
    memory_bytes: int = LIMITS.memory_bytes,
    config_of: Callable[[Partition], CompactionConfig | None] = lambda _: EAGER,
) -> Compactor:
    return Compactor(
        world.env,
        world.disk,
        group_commit,
        limits=CompactionLimits(LIMITS.bytes_per_s, memory_bytes),
        partitions=lambda: partitions,
        config_of=config_of,
    )


@asynccontextmanager
async def compactor_in(world: World) -> AsyncGenerator[tuple[Compactor, Partition, GroupCommit]]:
    log = open_partition_log(world.disk, CONFIG)
    fill(log)
    partition = Partition(TOPIC_ID, 0, log, topic="orders", config=CONFIG, probe=world.env.probe)
    async with trio.open_nursery() as nursery:
        group_commit = GroupCommit(world.env, nursery)
        yield compactor_of(world, group_commit, [partition]), partition, group_commit


async def run_round(compactor: Compactor) -> bool:
    """Clean the dirtiest log once; return whether the round was finished."""
    found = compactor._dirtiest(())
    return found is not None and await compactor._clean(*found)


async def test_a_log_is_compacted_once_and_then_is_clean(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with compactor_in(world) as (compactor, partition, group_commit):
        before = rows_of(partition.log)

        assert await run_round(compactor)
        assert not await run_round(compactor)
        await group_commit.wait_idle()

        end = partition.log.log_end_offset
        assert rows_of(partition.log) == {at: before[at] for at in range(end - 3, end)}
        assert compactor.progress.rounds_ended == 1
        assert compactor.progress.read_bytes > compactor.progress.written_bytes > 0
        assert compactor.progress.dirty_ratio == 0
        assert world.told("log_compacted")


async def test_a_round_ends_when_compaction_of_the_log_is_turned_off(
    mock_clock: MockClock,
) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with compactor_in(world) as (_, partition, group_commit):
        before = rows_of(partition.log)
        answers = iter([EAGER])
        compactor = compactor_of(
            world, group_commit, [partition], config_of=lambda _: next(answers, None)
        )

        assert not await run_round(compactor)

        assert rows_of(partition.log) == before
        assert not [name for name in world.disk.list_directory("0") if "tmp" in name]


async def test_a_segment_swap_waits_while_the_log_is_held(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with (
        compactor_in(world) as (compactor, partition, group_commit),
        trio.open_nursery() as own,
    ):
        before = rows_of(partition.log)
        async with group_commit.hold(partition):
            own.start_soon(run_round, compactor)
            await trio.sleep(60)
            assert rows_of(partition.log) == before
            partition.log.truncate(5)

    assert rows_of(partition.log) == {at: row for at, row in before.items() if at < 5}
    assert not [name for name in world.disk.list_directory("0") if "tmp" in name]


async def test_holding_a_log_waits_for_a_segment_swap(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with compactor_in(world) as (_, partition, group_commit), trio.open_nursery() as own:
        held = trio.Event()

        async def hold() -> None:
            async with group_commit.hold(partition):
                held.set()

        async with group_commit.swapping(partition):
            own.start_soon(hold)
            await settle()
            assert not held.is_set()
        await held.wait()


@pytest.mark.parametrize("operation", ["write_at", "rename"])
async def test_a_full_disk_ends_only_the_compaction_round(
    operation: str, mock_clock: MockClock
) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with compactor_in(world) as (compactor, partition, group_commit):
        before = rows_of(partition.log)
        world.disk.fail(operation, error_number=errno.ENOSPC)

        assert not await run_round(compactor)

        assert rows_of(partition.log) == before
        assert "No space" in compactor.progress.last_error
        assert partition.is_whole
        assert await run_round(compactor)
        await group_commit.wait_idle()
        assert len(rows_of(partition.log)) == 3


async def test_a_log_that_cannot_be_compacted_does_not_block_others(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    logs = [open_partition_log(world.disk, CONFIG, number) for number in range(2)]
    for log, count in zip(logs, (80, 40), strict=True):
        fill(log, count)
    partitions = [
        Partition(TOPIC_ID, number, log, topic="orders", config=CONFIG, probe=world.env.probe)
        for number, log in enumerate(logs)
    ]
    tmp = f"0/{0:020}.log.cleaned.tmp"
    world.disk.fail("write_at", path=tmp, error_number=errno.ENOSPC)
    async with trio.open_nursery() as nursery:
        compactor = compactor_of(world, GroupCommit(world.env, nursery), partitions)

        await compactor.clean_all()

        assert "No space" in compactor.progress.last_error
        assert [len(rows_of(log)) for log in logs] == [80, 3]
        await compactor.clean_all()
        assert [len(rows_of(log)) for log in logs] == [3, 3]


async def test_a_disk_that_fails_before_a_round_takes_one_log_offline(
    mock_clock: MockClock,
) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    log = open_partition_log(world.disk, CONFIG)
    fill(log, 100, keys=100)
    partition = Partition(TOPIC_ID, 0, log, topic="orders", config=CONFIG, probe=world.env.probe)
    async with trio.open_nursery() as nursery:
        group_commit = GroupCommit(world.env, nursery)
        # Memory for so many keys that a round ends within a segment.
        compactor = compactor_of(world, group_commit, [partition], memory_bytes=1)
        assert await run_round(compactor)
        await group_commit.wait_idle()
        clean_offset = log.cleaner.clean_offset
        assert 0 < clean_offset < 100
        partition = Partition(
            TOPIC_ID,
            0,
            open_partition_log(world.disk, CONFIG),
            topic="orders",
            config=CONFIG,
            probe=world.env.probe,
        )
        partition.log.high_watermark = 100
        compactor = compactor_of(world, group_commit, [partition], memory_bytes=1)
        for path in world.disk.paths():
            if path.endswith((".index", ".log")):
                world.disk.fail("read_at", path=path, count=100)

        assert not await run_round(compactor)

        assert not partition.is_whole
        assert partition.log.cleaner.clean_offset == clean_offset


async def test_damage_found_by_compaction_is_recorded(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with compactor_in(world) as (compactor, partition, group_commit):
        path = f"0/{0:020}.log"
        world.disk.flip_bit(path, world.disk.visible_bytes(path).index(b"5" * 100) + 5, 0)

        assert not await run_round(compactor)
        await group_commit.wait_idle()

        assert [(each.offset, each.end_offset) for each in partition.log.damage] == [(5, 6)]
        assert not await run_round(compactor)


async def test_compaction_starts_when_it_is_set_and_retention_limits_do_not_apply(
    mock_clock: MockClock,
) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB", retention_ms="10min")
        for number in range(60):
            columns = Columns(1, keys=[b"%d" % (number % 3)], values=[b"%d" % number * 100])
            batch = encode_batch(columns, first_timestamp_ms=world.clock.now_ms())
            await produce(client, topic, batch)
        await trio.sleep(60)
        assert len(await fetch_all(client, topic)) == 60
        assert broker.statistics().compaction.rounds_ended == 0

        assert await dirty_ratio(client) is None
        await alter_topic(client, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        assert await dirty_ratio(client) == 1
        await trio.sleep(60)
        assert await dirty_ratio(client) == 0
        assert (await usage(client)).oldest_ms is None, "the remaining batch is empty"

        left = await fetch_all(client, topic)
        assert len(left) < 30
        assert [record.offset for record in left[-3:]] == [57, 58, 59]
        assert broker.statistics().compaction.rounds_ended == 1
        await trio.sleep(25 * 60)
        assert await fetch_all(client, topic) == left, "no record is too old"

        await alter_topic(client, cleanup_policy="delete,compact")
        await trio.sleep(25 * 60)
        assert await fetch_all(client, topic) == []


async def usage(client: RpcConnection) -> PartitionUsage:
    """Return the usage of the only partition."""
    reply = await submit(client, api.TOPIC_USAGE, TopicUsageRequest(["orders"])).reply()
    return reply.topics[0].partitions[0]


async def dirty_ratio(client: RpcConnection) -> float | None:
    """Return the dirty ratio of the only partition."""
    return (await usage(client)).dirty_ratio
