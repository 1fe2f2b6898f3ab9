"""Tests of scrubbing: it finds damage before a read, at a limited rate."""

import errno

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch_all,
    produce,
)
from tests.broker.world import World
from tidelog.wire.transport.rpc import RpcConnection

MINUTE_S = 60
DAY_S = 24 * 3600
KIB = 1 << 10


async def fill(client: RpcConnection, *, count: int = 12, partitions: int = 1) -> bytes:
    """Create a topic with some segments of records."""
    topic = await create_topic(client, segment_bytes="4KiB", partitions=partitions)
    for number in range(count):
        for partition in range(partitions):
            await produce(client, topic, batch_of(b"%x" % number * 900), partition=partition)
    return topic


def rot(world: World, value: bytes) -> None:
    """Flip a bit of the first record with this value."""
    path, data = next(each for each in world.segments() if value * 900 in each[1])
    world.disk.flip_bit(path, data.index(value * 900) + 5, 0)


async def test_scrubbing_finds_damage_before_a_read(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await fill(client)
        rot(world, b"2")
        rot(world, b"b")

        await world.pass_time(MINUTE_S)
        await let_round_end(world)

        found = world.told("scrub_found_damage")
        assert [(each["offset"], each["next_offset"]) for each in found] == [(2, 3), (11, 12)]
        assert {(each["topic"], each["partition"]) for each in found} == {("orders", 0)}
        assert (await describe(client)).status == "damaged"
        assert broker.statistics().scrub.damage_found == 2
        assert broker.statistics().scrub.rounds_ended == 1
        (ended,) = world.told("scrub_round_ended")
        assert ended["log_count"] == 1
        assert (ended["damage_found"], ended["damage_known"]) == (2, 2)

    world = world.after_power_cut(1)
    async with world.broker(), world.client() as client:
        assert (await describe(client)).status == "damaged", "the checkpoint records the damage"


async def let_round_end(world: World) -> None:
    """Wait for the end of the round under way."""
    for _ in range(10_000):
        if world.told("scrub_round_ended"):
            return
        await world.pass_time(0.25)
    pytest.fail("the round does not end")


async def test_scrubbing_repairs_headers_and_footers(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await fill(client)
        path, data = world.segments()[0]
        world.disk.flip_bit(path, 9, 1)
        world.disk.flip_bit(path, len(data) - 9, 1)
        checkpoint = f"{path.rpartition('/')[0]}/checkpoint"
        world.disk.flip_bit(checkpoint, 20, 1)

        await world.pass_time(MINUTE_S)
        await let_round_end(world)

        assert [each["what"] for each in world.told("scrub_found_spoiled")] == [
            "checkpoint",
            "header, footer",
        ]
        assert dict(world.segments())[path] == data
        assert world.told("scrub_found_damage") == []
        assert len(await fetch_all(client, topic)) == 12
    world = world.after_power_cut(1)
    async with world.broker():
        assert world.told("log_recovered") == world.told("log_damaged") == []
    assert dict(world.segments())[path] == data


@pytest.mark.parametrize("rate", [16 * KIB, 64 * KIB])
async def test_a_scrub_round_keeps_to_its_rate(mock_clock: MockClock, rate: int) -> None:
    world = World(mock_clock)
    async with world.broker(scrub_max_bytes_per_second=rate) as broker, world.client() as client:
        await fill(client, count=100)

        await world.pass_time(MINUTE_S)
        await let_round_end(world)

        (ended,) = world.told("scrub_round_ended")
        size_bytes, seconds = float(str(ended["size_bytes"])), float(str(ended["seconds"]))
        assert size_bytes == broker.statistics().scrub.bytes_done
        # A batch of 1 KiB costs 4 KiB.
        cost_bytes = 100 * 4 * KIB
        assert seconds >= cost_bytes / rate
        assert seconds < 1.5 * cost_bytes / rate + 10


async def test_a_broker_with_few_records_scrubs_once_a_day(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
        await world.pass_time(MINUTE_S)
        await let_round_end(world)
        await world.pass_time(2 * MINUTE_S)  # By then the idle log is described for the next start.
        world.disk.calls.clear()

        for _ in range(22):
            await world.pass_time(3600)

        assert [call for call in world.disk.calls if call[0] == "read_at"] == []
        await world.pass_time(3 * 3600)
        for _ in range(60):
            await world.pass_time(1)
        assert len(world.told("scrub_round_ended")) == 2


async def test_scrubbing_can_be_turned_off(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(scrub_max_bytes_per_second=0), world.client() as client:
        await fill(client)
        rot(world, b"2")

        await world.pass_time(2 * DAY_S)

        assert world.told("scrub_found_damage") == []
        assert world.told("scrub_round_ended") == []


async def test_known_damage_is_not_reported_again(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(scrub_interval_ms=60_000), world.client() as client:
        await fill(client)
        rot(world, b"2")

        await world.pass_time(MINUTE_S)
        await let_round_end(world)
        for _ in range(200):
            await world.pass_time(1)

        assert len(world.told("scrub_round_ended")) > 2
        assert len(world.told("scrub_found_damage")) == 1


@pytest.mark.invariant("I13")
async def test_an_invalid_index_is_reported_once_and_not_used(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(scrub_interval_ms=60_000), world.client() as client:
        topic = await fill(client)
        path = world.segments()[0][0].replace(".log", ".index")
        world.disk.flip_bit(path, 30, 1)

        await world.pass_time(MINUTE_S)
        await let_round_end(world)
        assert len(await fetch_all(client, topic)) == 12
        for _ in range(200):
            await world.pass_time(1)

        assert len(world.told("scrub_round_ended")) > 2
        assert [each["what"] for each in world.told("scrub_found_spoiled")] == ["index"]
        assert len(await fetch_all(client, topic)) == 12


async def test_indexes_are_valid_after_power_cuts(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await fill(client)
    for seed in range(5):
        world = world.after_power_cut(seed)
        async with world.broker(scrub_interval_ms=60_000), world.client() as client:
            for number in range(6):
                await produce(client, topic, batch_of(b"%x" % number * 900))
            for _ in range(MINUTE_S):
                await world.pass_time(1)
            await let_round_end(world)

            assert world.told("scrub_found_spoiled") == []


async def test_scrubbing_skips_a_topic_that_is_deleted_meanwhile(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(scrub_max_bytes_per_second=KIB), world.client() as client:
        await fill(client, partitions=2)
        await world.pass_time(MINUTE_S)
        for _ in range(70):
            await world.pass_time(1)
        assert world.told("scrub_round_ended") == []

        await delete_topic(client)
        await let_round_end(world)

        assert world.told("log_status_changed") == []
        assert world.told("scrub_found_damage") == []
        assert world.told("scrub_found_spoiled") == []


@pytest.mark.parametrize("size", [100, 900])
async def test_a_round_tells_the_bytes_that_it_has_read(mock_clock: MockClock, size: int) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB")
        for _ in range(100):
            await produce(client, topic, batch_of(b"-" * size))
        size_bytes = sum(len(data) for _, data in world.segments())

        await world.pass_time(MINUTE_S)
        await let_round_end(world)

        (ended,) = world.told("scrub_round_ended")
        assert 0.95 * size_bytes < float(str(ended["size_bytes"])) < 1.1 * size_bytes


async def test_a_round_tells_of_damage_that_was_known_before(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
        rot(world, b"2")
        await world.pass_time(MINUTE_S)
        await let_round_end(world)
    world = world.after_power_cut(1)
    async with world.broker():
        await world.pass_time(MINUTE_S)
        await let_round_end(world)

        (ended,) = world.told("scrub_round_ended")
        assert (ended["damage_found"], ended["damage_known"]) == (0, 1)
        assert ended["severity"] == "warning"


async def test_a_disk_failure_found_by_scrubbing_is_reported(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
        world.disk.fail("read_at", path=world.segments()[1][0])

        await world.pass_time(MINUTE_S)
        await let_round_end(world)

        assert (await describe(client)).status == "offline"
        (change,) = world.told("log_status_changed")
        assert str(change["reason"]).startswith("reading failed")


async def test_a_log_without_file_descriptors_is_scrubbed_in_the_next_round(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
        world.disk.fail("open", path=world.segments()[1][0], error_number=errno.EMFILE)

        await world.pass_time(MINUTE_S)
        await let_round_end(world)

        assert (await describe(client)).status == "online"
        assert world.told("log_status_changed") == []


async def test_a_broker_stops_cleanly_during_a_scrub_round(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(scrub_max_bytes_per_second=KIB) as broker, world.client() as client:
        await fill(client)
        await world.pass_time(MINUTE_S)
        for _ in range(70):
            await world.pass_time(1)
        progress = broker.statistics().scrub
        assert (progress.log_count, progress.logs_done) == (1, 0)
        assert progress.bytes_done > 0

    assert world.told("scrub_round_ended") == []
    (stopped,) = world.told("broker_stopped")
    assert stopped["is_clean"] is True
