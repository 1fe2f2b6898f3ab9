"""Tests of the manifest: created replicas are recorded as long as their files matter."""

import errno
from random import Random

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.world import World
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.partitions.replica_manifest import (
    MANIFEST_NAME,
    ReplicaManifest,
    SuspectReplica,
)
from tidelog.coordinator.metadata.broker_delta import Key

A, B, C = ((bytes([number]) * 16, number) for number in (1, 2, 3))
LOST = SuspectReplica(*A, is_empty=True)


@pytest.fixture
def world(mock_clock: MockClock) -> World:
    return World(mock_clock)


async def loaded(world: World, disk: FaultyDisk, *, is_expected: bool = True) -> ReplicaManifest:
    manifest = ReplicaManifest(world.env, disk)
    await manifest.load(is_expected=is_expected)
    return manifest


async def with_replicas(world: World, *keys: Key) -> ReplicaManifest:
    manifest = await loaded(world, world.disk, is_expected=False)
    await manifest.begin(keys, [], is_new=True)
    for key in keys:
        await manifest.add(key)
    return manifest


async def test_an_added_replica_survives_a_power_cut(world: World) -> None:
    await with_replicas(world, A, B)

    again = await loaded(world, world.disk.power_cut(Random(1)))

    assert (again.has(A), again.has(B), again.has(C)) == (True, True, False)
    assert not again.is_lost


async def test_a_removed_replica_stays_removed_after_a_power_cut(world: World) -> None:
    manifest = await with_replicas(world, A, B, C)

    await manifest.remove([A])
    await manifest.remove_topic(B[0])

    again = await loaded(world, world.disk.power_cut(Random(1)))
    assert (again.has(A), again.has(B), again.has(C)) == (False, False, True)


async def test_concurrent_additions_take_few_writes(world: World) -> None:
    manifest = await with_replicas(world)
    before = len(world.disk.changes)

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(manifest.add, (bytes(16), number))

    again = await loaded(world, world.disk.power_cut(Random(1)))
    assert all(again.has((bytes(16), number)) for number in range(100))
    writes = [call for call in world.disk.changes[before:] if call[0] == "rename"]
    assert len(writes) <= 2


async def test_a_replica_that_is_removed_while_it_is_added_is_not_listed(world: World) -> None:
    manifest = await with_replicas(world, A)

    async with trio.open_nursery() as nursery:
        world.work.hold_work()
        nursery.start_soon(manifest.add, B)
        await trio.testing.wait_all_tasks_blocked()
        assert not manifest.has(B)
        nursery.start_soon(manifest.remove, [B])
        await trio.testing.wait_all_tasks_blocked()
        world.work.let_all()

    assert not manifest.has(B)
    assert not (await loaded(world, world.disk.power_cut(Random(1)))).has(B)


async def test_a_replica_that_is_removed_and_returns_while_it_is_added_is_listed(
    world: World,
) -> None:
    manifest = await with_replicas(world, A)

    async with trio.open_nursery() as nursery:
        world.work.hold_work()
        nursery.start_soon(manifest.add, B)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(manifest.remove, [B])
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(manifest.add, B)
        await trio.testing.wait_all_tasks_blocked()
        world.work.let_all()

    assert manifest.has(B)
    assert (await loaded(world, world.disk.power_cut(Random(1)))).has(B)


async def test_a_suspect_replica_stays_suspect_until_it_is_settled(world: World) -> None:
    await with_replicas(world, A, B)
    manifest = await loaded(world, world.disk)

    await manifest.begin({A, B}, [LOST], is_new=False)

    disk = world.disk.power_cut(Random(1))
    again = await loaded(world, disk)
    assert again.suspects == {A: LOST}
    await again.begin({A, B}, [], is_new=False)
    assert again.suspects == {A: LOST}
    await again.settle()
    assert (await loaded(world, disk.power_cut(Random(1)))).suspects == {}


async def test_replicas_that_are_no_longer_assigned_are_removed(world: World) -> None:
    await with_replicas(world, A, B)
    manifest = await loaded(world, world.disk)

    await manifest.begin({B}, [LOST], is_new=False)

    again = await loaded(world, world.disk.power_cut(Random(1)))
    assert (again.has(A), again.has(B)) == (False, True)
    assert not again.suspects


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_missing_or_damaged_manifest_is_lost_and_recreated(
    world: World, *, is_gone: bool
) -> None:
    await with_replicas(world, A, B)
    if is_gone:
        world.disk.lose_file(MANIFEST_NAME)
    else:
        world.disk.flip_bit(MANIFEST_NAME, 20, 0)

    manifest = await loaded(world, world.disk)

    assert manifest.is_lost
    await manifest.begin({A, B}, [LOST], is_new=False)
    again = await loaded(world, world.disk.power_cut(Random(1)))
    assert not again.is_lost
    assert again.suspects == {A: LOST}
    assert again.has(B)


async def test_a_directory_that_never_had_a_manifest_lacks_none(world: World) -> None:
    manifest = await loaded(world, world.disk, is_expected=False)

    assert not manifest.is_lost


async def test_an_unchanged_manifest_is_not_written(world: World) -> None:
    await with_replicas(world, A)
    manifest = await loaded(world, world.disk)
    before = len(world.disk.changes)

    await manifest.begin({A}, [], is_new=False)
    await manifest.add(A)
    await manifest.remove([B])
    await manifest.settle()

    assert len(world.disk.changes) == before


async def test_a_replica_without_room_is_not_added(world: World) -> None:
    manifest = await with_replicas(world, A)
    world.disk.capacity_bytes = 1

    with pytest.raises(OSError, match="No space") as caught:
        await manifest.add(B)

    assert caught.value.errno == errno.ENOSPC
    assert not manifest.has(B)
    world.disk.capacity_bytes = None
    await manifest.add(C)
    assert not (await loaded(world, world.disk)).has(B)
