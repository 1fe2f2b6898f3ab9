"""Tests of periodic maintenance, on a clock that the test moves."""

import errno
from typing import final

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    alter_topic,
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch,
    fetch_all,
    list_offset,
    produce,
    submit,
    submit_produce,
)
from tests.broker.world import START_MS, World, settle
from tests.simulation.machine.disk_contents import contents
from tidelog.broker.partitions.partition import Partition
from tidelog.wire.errors import DiskFullError
from tidelog.wire.messages.cluster_admin import AlterClusterConfigRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

HOUR_S = 3600
DAY_S = 24 * HOUR_S


async def test_retention_by_time_deletes_old_records(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, retention_ms="1h")
        await produce(client, topic, batch_of(b"old"))
        await world.pass_time(HOUR_S / 2)
        now_ms = world.clock.now_ms()
        await produce(client, topic, batch_of(b"newer", at_ms=now_ms))
        assert len(await fetch_all(client, topic)) == 2

        # The segment is rolled, so that retention can delete it.
        await world.pass_time(HOUR_S / 2 + 10)
        await world.pass_time(HOUR_S / 2 + 10)

        assert await fetch_all(client, topic) == []
        assert (await list_offset(client, topic, "earliest")).offset == 2
        assert (await produce(client, topic, batch_of(b"new"))).base_offset == 2
        deleted = world.told("segments_deleted")
        assert sum(int(str(event["count"])) for event in deleted) == 1
        assert len(world.segments()) == 1


async def test_retention_by_size_deletes_the_oldest_records(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB", retention_bytes="9KiB")
        for number in range(10):
            await produce(client, topic, batch_of(b"%d" % number * 2000))

        await world.pass_time(6)

        found = await describe(client)
        assert 9 << 10 <= found.size_bytes < 13 << 10  # Whole segments only, never below the limit.
        kept = [record.offset for record in await fetch_all(client, topic)]
        assert kept == list(range(found.log_start_offset, 10))
        assert 0 < found.log_start_offset < 9


async def test_retention_by_size_needs_no_size_of_segments(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, retention_bytes="512KiB")
        for _ in range(20):
            await produce(client, topic, batch_of(bytes(100_000)))

        await world.pass_time(6)

        assert 512 << 10 <= (await describe(client)).size_bytes < 768 << 10


async def test_without_limits_nothing_is_deleted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, retention_ms="unlimited", segment_ms="1h")
        await produce(client, topic, batch_of(b"a"))

        for _ in range(3):
            await world.pass_time(1000 * DAY_S)

        assert len(await fetch_all(client, topic)) == 1
        assert len(world.segments()) == 2  # The segment was rolled anyway.


async def test_a_record_with_a_future_timestamp_does_not_keep_its_segment(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, retention_ms="1h")
        await produce(client, topic, batch_of(b"a", at_ms=START_MS * 2))

        for _ in range(3):
            await world.pass_time(HOUR_S)

        assert await fetch_all(client, topic) == []


async def test_retention_keeps_uncommitted_records(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB", retention_bytes="0")
        await produce(client, topic, batch_of(b"a"))
        world.work.hold_syncs()
        for _ in range(3):
            submit_produce(client, topic, batch_of(bytes(3000)))
        await world.pass_time(6)

        found = await describe(client)
        assert found.log_start_offset <= found.high_watermark == 1
        assert found.log_end_offset == 4
        world.work.let_all_sync()


async def test_segments_that_cannot_be_removed_are_no_longer_read(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB", retention_bytes="5KiB")
        for _ in range(4):
            await produce(client, topic, batch_of(bytes(3000)))
        (directory,) = world.disk.list_directory("topics")
        first = f"topics/{directory}/0/{0:020d}.log"
        world.disk.fail("remove", path=first, error_number=errno.EACCES, count=1)

        await world.pass_time(6)
        await world.pass_time(6)

        assert len(world.told("files_left_over")) == 1
        start = (await describe(client)).log_start_offset
        assert start > 0
        await produce(client, topic, batch_of(b"a"))
    async with world.broker(), world.client() as client:
        assert (await describe(client)).log_start_offset >= start
        assert (await describe(client)).status == "online"


async def test_a_full_disk_prevents_only_the_roll_of_segments(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_ms="1h")
        await produce(client, topic, batch_of(b"a"))
        world.disk.capacity_bytes = 0

        await world.pass_time(2 * HOUR_S)

        assert (await fetch(client, topic)).values == [b"a"]
        assert len(world.segments()) == 1
        world.disk.capacity_bytes = None
        await world.pass_time(6)
        assert len(world.segments()) == 2


async def test_a_topic_may_be_deleted_while_its_segments_are_removed(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB", retention_bytes="5KiB")
        for _ in range(4):
            await produce(client, topic, batch_of(bytes(3000)))
        await world.pass_time(1)  # The new cluster gets its feature level.
        world.work.hold_work()
        await world.pass_time(5)  # The removal begins and is held.
        held = world.work.set_held_aside()

        await delete_topic(client)
        held.set()
        await world.pass_time(6)

        assert world.disk.list_directory("topics") == []


async def test_records_in_memory_are_synced_in_the_background(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(log_flush_interval_ms=1000), world.client() as client:
        topic = await create_topic(client, durability="replicated")
        await produce(client, topic, batch_of(b"a"))
        assert world.work.sync_count == 0

        await world.pass_time(1.1)

        assert world.work.sync_count == 1
        await world.pass_time(10)
        assert world.work.sync_count == 1  # No records are left to sync.


async def test_a_background_flush_is_one_sync_for_all_appends(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(log_flush_interval_ms=1000), world.client() as client:
        topic = await create_topic(client, durability="replicated")
        await produce(client, topic, batch_of(b"a"))
        world.work.hold_syncs()
        await world.pass_time(1.1)
        assert world.work.held_count == 1
        await produce(client, topic, batch_of(b"b"))

        world.work.let_sync()
        await settle()

        assert world.work.held_count == 0
        await world.pass_time(1.1)
        assert world.work.held_count == 1
        world.work.let_all_sync()


async def test_raising_durability_syncs_records_in_memory(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker(), world.client() as client:
        topic = await create_topic(client, durability="replicated")
        await produce(client, topic, batch_of(b"a"))

        await alter_topic(client, durability="fsync")
        await settle()

    for seed in range(5):
        after = world.after_power_cut(seed)
        async with after.broker(), after.client() as client:
            assert len(await fetch_all(client, topic)) == 1


async def test_a_partition_whose_disk_has_room_again_is_reported_online(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.disk.capacity_bytes = 0
        with pytest.raises(DiskFullError):
            await produce(client, topic, batch_of(b"a"))
        assert (await describe(client)).status == "read-only"
        world.disk.capacity_bytes = None

        await world.pass_time(6)

        assert (await describe(client)).status == "online"
        statuses = [event["status"] for event in world.told("log_status_changed")]
        assert statuses == ["read-only", "online"]


async def test_maintenance_of_many_logs_does_not_block_other_tasks(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_in_step: list[int] = [0]
    note_status = Partition.note_status

    def note_and_count(self: Partition, reason: str) -> None:
        seen_in_step[-1] += reason == "seen by maintenance"
        note_status(self, reason)

    @final
    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            del task
            seen_in_step.append(0)

    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=120)
        await create_topic(client, "blank", partitions=300)
        for number in range(120):
            await produce(client, topic, batch_of(b"a"), partition=number)
        monkeypatch.setattr(Partition, "note_status", note_and_count)
        trio.lowlevel.add_instrument(Steps())

        await world.pass_time(6)

    assert sum(seen_in_step) == 120, "empty logs are skipped"
    assert max(seen_in_step) <= 50


async def test_appends_stop_at_min_free_disk_bytes(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(min_free_disk_bytes=20 << 20), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"first"))
        taken = sum(len(data or b"") for data in contents(world.disk).values())
        world.disk.capacity_bytes = taken + (10 << 20)
        await world.pass_time(6)

        with pytest.raises(DiskFullError, match="min_free_disk_bytes"):
            await produce(client, topic, batch_of(b"second"))
        await create_topic(client, "other")
        world.disk.capacity_bytes = taken + (30 << 20)
        await world.pass_time(6)
        await produce(client, topic, batch_of(b"second"))

        full = world.told("log_status_changed")[0]
        assert full["status"] == "read-only"
        assert full["reason"] == "the disk has no room beyond min_free_disk_bytes, 20971520 bytes"
        assert (await describe(client)).status == "online"


async def test_the_oldest_records_are_deleted_at_log_retention_disk_bytes(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(log_retention_disk_bytes=20 << 10), world.client() as client:
        old = await create_topic(client, "old", segment_bytes="4KiB", retention_ms="unlimited")
        new = await create_topic(client, "new", segment_bytes="4KiB")
        for number in range(6):
            await produce(client, old, batch_of(bytes(2000), at_ms=START_MS + number))
        for number in range(6):
            await produce(client, new, batch_of(bytes(2000), at_ms=START_MS + 1000 + number))

        await world.pass_time(12)

        assert [record.offset for record in await fetch_all(client, new)] == list(range(6))
        kept = [record.offset for record in await fetch_all(client, old)]
        assert 0 < len(kept) < 6
        assert kept[-1] == 5
        sizes = [(await describe(client, name)).size_bytes for name in ("old", "new")]
        assert 16 << 10 < sum(sizes) <= 20 << 10


async def test_cluster_settings_hold_at_once_and_until_they_are_reset(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB")
        for _ in range(10):
            await produce(client, topic, batch_of(bytes(2000)))
        await world.pass_time(12)
        all_of_it = (await describe(client)).size_bytes

        await alter_cluster(client, log_retention_disk_bytes="9kB", maintenance_interval_ms="100ms")
        await world.pass_time(6)
        await world.pass_time(1)
        left = (await describe(client)).size_bytes
        await alter_cluster(client, log_retention_disk_bytes=None)
        for _ in range(10):
            await produce(client, topic, batch_of(bytes(2000)))
        await world.pass_time(1)

        assert all_of_it > 20_000
        assert left <= 9_000
        assert (await describe(client)).size_bytes > 20_000


async def alter_cluster(client: RpcConnection, **settings: str | None) -> None:
    """Set settings of the cluster, or reset those that are `None`."""
    changes = {name: text for name, text in settings.items() if text is not None}
    resets = [name for name, text in settings.items() if text is None]
    await submit(
        client, api.ALTER_CLUSTER_CONFIG, AlterClusterConfigRequest(changes, resets)
    ).reply()
