"""The metadata of one node: durable when it is said to be, whatever ends the process."""

import dataclasses
import errno
import threading
from collections.abc import Callable
from random import Random
from typing import TypeVar

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from coordinator.catalog import (
    PRODUCER_ID_BLOCK,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TakeProducerIds,
)
from coordinator.local import METADATA_DIRECTORY, LocalMetadata, open_local_metadata
from logstore.config import LogConfig
from logstore.file_cache import FileCache
from logstore.recovery import open_log
from logstore.segment_format import SegmentHeader
from tests.broker.world import World
from tests.simulation.faulty_disk import FaultyDisk, StaleHandleError
from wire.errors import DataDirectoryError, LogOfflineError, TopicExistsError
from wire.record_batch import Columns, check_produced, encode_batch

Result = TypeVar("Result")
ID = b"0123456789abcdef"
SEGMENT = f"{METADATA_DIRECTORY}/{0:020d}.log"


async def opened(world: World, disk: FaultyDisk | None = None) -> LocalMetadata:
    return await open_local_metadata(world.env, FileCache(disk or world.disk))


def names(metadata: LocalMetadata) -> list[str]:
    return [topic.name for topic in metadata.catalog.topics]


async def test_an_empty_directory_has_no_topics(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)

    assert names(metadata) == []


@pytest.mark.parametrize("seed", range(8))
async def test_what_was_submitted_survives_a_power_cut(
    autojump_clock: MockClock, seed: int
) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    await metadata.submit(CreateTopic("orders", ID, 3, {"retention_ms": "1h"}))
    await metadata.submit(AlterTopic("orders", {"segment_ms": "2h"}, []))

    restarted = await opened(world, world.disk.power_cut(Random(seed)))

    assert restarted.catalog.topics == metadata.catalog.topics


async def test_a_refused_command_writes_nothing(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    await metadata.submit(CreateTopic("orders", ID, 3, {}))
    changes = len(world.disk.changes)

    with pytest.raises(TopicExistsError):
        await metadata.submit(CreateTopic("orders", b"x" * 16, 3, {}))

    assert len(world.disk.changes) == changes


async def test_a_cancelled_command_is_carried_out_or_not_but_agrees_with_the_log(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)

    with trio.CancelScope() as scope:
        scope.cancel()
        await metadata.submit(CreateTopic("orders", ID, 3, {}))

    restarted = await opened(world, world.disk.kill())
    assert names(restarted) == names(metadata)


async def test_deleted_ids_are_remembered_over_a_clean_stop(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    await metadata.submit(CreateTopic("orders", ID, 3, {}))
    await metadata.submit(DeleteTopic("orders"))
    await metadata.aclose()

    restarted = await opened(world)

    assert restarted.catalog.was_deleted(ID)
    assert names(restarted) == []


async def test_a_producer_id_is_never_given_twice_over_crashes(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    given: list[int] = []
    disk = world.disk
    for seed in range(4):
        metadata = await opened(world, disk)
        given += [await metadata.take_producer_id() for _ in range(3)]
        disk = disk.power_cut(Random(seed))

    assert len(set(given)) == len(given)
    assert min(given) >= 1


async def test_a_block_of_producer_ids_is_one_write(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    await metadata.take_producer_id()
    changes = len(world.disk.changes)

    given = [await metadata.take_producer_id() for _ in range(PRODUCER_ID_BLOCK - 1)]

    assert len(world.disk.changes) == changes
    assert given == list(range(2, PRODUCER_ID_BLOCK + 1))


async def test_producers_that_ask_together_share_a_block(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    given: list[int] = []

    async def take() -> None:
        given.append(await metadata.take_producer_id())

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(take)

    assert sorted(given) == list(range(1, 21))
    assert metadata.catalog.next_producer_id == 1 + PRODUCER_ID_BLOCK


async def test_a_failed_fsync_takes_the_metadata_offline_and_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    world.disk.fail("sync", path=SEGMENT, error_number=errno.EIO)

    with pytest.raises(LogOfflineError, match="metadata log is offline"):
        await metadata.submit(CreateTopic("orders", ID, 3, {}))

    assert names(metadata) == []
    with pytest.raises(LogOfflineError):
        await metadata.submit(CreateTopic("more", ID, 3, {}))
    (told,) = world.told("metadata_offline")
    assert "fsync failed" in str(told["reason"])
    with pytest.raises(LogOfflineError):
        await metadata.aclose()


async def test_a_stop_waits_for_a_command_that_is_being_synced(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    disk = world.disk
    syncing, may_go_on = threading.Event(), threading.Event()

    def stop_in_sync(operation: str, path: str) -> None:
        if operation == "sync" and path == SEGMENT:
            syncing.set()
            assert may_go_on.wait(10)

    async def offload(work: Callable[[], Result]) -> Result:
        # The start looks at the clock, which belongs to the loop.
        return work() if disk.before_call is None else await trio.to_thread.run_sync(work)

    env = dataclasses.replace(world.env, offload=offload)
    metadata = await open_local_metadata(env, FileCache(disk))
    disk.before_call = stop_in_sync
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metadata.submit, CreateTopic("orders", ID, 3, {}))
        await trio.to_thread.run_sync(syncing.wait)
        nursery.start_soon(metadata.aclose)
        await wait_all_tasks_blocked()
        may_go_on.set()

    assert names(await opened(world, disk.power_cut(Random(0)))) == ["orders"]


async def test_a_failed_write_of_the_metadata_is_told_once(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    world.disk.fail("write_at", path=SEGMENT, error_number=errno.EIO)

    for _ in range(2):
        with pytest.raises(LogOfflineError):
            await metadata.submit(CreateTopic("orders", ID, 3, {}))

    assert len(world.told("metadata_offline")) == 1


async def test_damaged_metadata_is_refused_rather_than_guessed(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    await metadata.submit(CreateTopic("orders", ID, 3, {}))
    await metadata.submit(TakeProducerIds())
    await metadata.aclose()
    disk = world.disk.kill()
    disk.flip_bit(SEGMENT, 64 + 100, 3)

    with pytest.raises(DataDirectoryError, match=r"metadata is damaged.*restore it"):
        await opened(world, disk)


@pytest.mark.parametrize(
    "record",
    [
        ["topic-moved", ID, 7],
        ["topic-created", "orders", ID, 3, {"min_in_sync_replicas": "16"}],
        ["topic-created", "orders", ID, "three", {}],
        "no record at all",
    ],
)
async def test_metadata_of_a_newer_version_is_refused_with_advice(
    autojump_clock: MockClock, record: object
) -> None:
    world = World(autojump_clock)
    metadata = await opened(world)
    await metadata.submit(CreateTopic("first", b"x" * 16, 1, {}))
    await metadata.aclose()
    owner = SegmentHeader(b"tidelog-metadata", 0, 0)
    log, _ = open_log(METADATA_DIRECTORY, owner, FileCache(world.disk), LogConfig(), now_ms=0)
    batch = memoryview(
        encode_batch(Columns(1, values=[msgspec.msgpack.encode(record)]), first_timestamp_ms=0)
    )
    log.append(batch, check_produced(batch), leader_epoch=0, now_ms=0)
    log.close()

    with pytest.raises(DataDirectoryError, match="use the version that wrote it, or a newer one"):
        await opened(world)


async def test_a_crash_at_any_disk_call_leaves_the_old_catalog_or_the_new_one() -> None:
    """Every call of one submit is tried as the last one."""
    crash_at = 0
    while True:
        world = World(MockClock())
        metadata = await opened(world)
        await metadata.submit(CreateTopic("first", ID, 1, {}))
        calls_left = crash_at

        def crash(operation: str, path: str) -> None:
            nonlocal calls_left
            del operation, path
            if calls_left == 0:
                raise StaleHandleError
            calls_left -= 1

        world.disk.before_call = crash
        try:
            await metadata.submit(CreateTopic("second", b"x" * 16, 1, {}))
        except StaleHandleError:
            is_over = False
        else:
            is_over = True
        for seed in range(4):
            restarted = await opened(world, world.disk.power_cut(Random(seed)))
            assert names(restarted) in (["first"], ["first", "second"])
            assert not is_over or names(restarted) == ["first", "second"]
        if is_over:
            break
        crash_at += 1
    assert crash_at > 1
