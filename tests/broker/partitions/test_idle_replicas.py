"""Tests of idle replicas: which logs a start leaves closed, and what opens them."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import (
    alter_topic,
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch_all,
    produce,
    submit,
)
from tests.broker.queues.queue_requests import (
    count,
    create_queue,
    receive,
    settle,
    topic_of,
)
from tests.broker.world import World
from tests.simulation.machine.disk_contents import contents
from tidelog.broker.partitions.idle_replicas import IDLE_LOGS_NAME, IdleLogsContent
from tidelog.logstore.checkpoint import read_small_file
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

HOUR_S = 3600


def closed_count(world: World) -> int:
    """Return how many logs the last start left closed."""
    events = [each for each in world.events if each.name in {"logs_stay_closed", "broker_started"}]
    last = events[-2] if len(events) > 1 else events[-1]
    return int(str(last.fields.get("count", 0)))


async def fill(client: RpcConnection, *, partitions: int = 3) -> bytes:
    """Create a topic with a record in each partition."""
    topic = await create_topic(client, partitions=partitions)
    for partition in range(partitions):
        await produce(client, topic, batch_of(b"%d" % partition), partition=partition)
    return topic


async def test_a_start_after_a_clean_stop_opens_a_log_at_its_first_use(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await fill(client)
    world.events.clear()

    async with world.broker(), world.client() as client:
        assert closed_count(world) == 3
        assert world.told("log_opened") == []
        await submit(client, api.METADATA, MetadataRequest(["orders"])).reply()
        assert world.told("log_opened") == []

        assert [each.value for each in await fetch_all(client, topic, 1)] == [b"1"]

        assert [each["partition"] for each in world.told("log_opened")] == [1]
        assert (await produce(client, topic, batch_of(b"more"), partition=2)).base_offset == 1
        assert (await describe(client)).log_end_offset == 1


async def test_a_log_stays_closed_through_several_starts(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await fill(client)
    for _ in range(3):
        async with world.broker():
            pass
        assert closed_count(world) == 3
    world.events.clear()
    async with world.doomed_broker():
        pass

    world = world.after_power_cut(1)
    async with world.broker(), world.client() as client:
        assert closed_count(world) == 3
        assert [each.value for each in await fetch_all(client, topic, 2)] == [b"2"]


async def test_a_start_opens_logs_that_were_written_since_their_description(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await fill(client)
    async with world.doomed_broker(), world.client() as client:
        await produce(client, topic, batch_of(b"later"), partition=1)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert closed_count(world) == 2
        assert [each["partition"] for each in world.told("log_opened")] == [1]
        assert [each.value for each in await fetch_all(client, topic, 1)] == [b"1", b"later"]


async def test_a_start_opens_logs_whose_checkpoint_was_replaced(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
    path = next(path for path in contents(world.disk, "topics") if path.endswith("1/checkpoint"))
    world.disk.flip_bit(path, 30, 1)
    world.events.clear()

    async with world.broker():
        assert closed_count(world) == 2
        assert [each["partition"] for each in world.told("log_opened")] == [1]
        assert len(world.told("log_note")) == 1, "the scan of the whole log is reported"


@pytest.mark.parametrize("damage", ["missing", "damaged"])
async def test_without_descriptions_a_start_opens_all_logs(
    mock_clock: MockClock, damage: str
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
    if damage == "missing":
        world.disk.remove(IDLE_LOGS_NAME)
    else:
        world.disk.flip_bit(IDLE_LOGS_NAME, 40, 1)
    world.events.clear()

    async with world.broker():
        assert len(world.told("log_opened")) == 3
        assert len(world.told("idle_logs_unreadable")) == (damage == "damaged")


@pytest.mark.invariant("I1")
async def test_a_log_that_is_lost_while_it_is_closed_does_not_begin_again(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await fill(client)
    async with world.broker(), world.client() as client:
        directory = next(path for path in contents(world.disk, "topics") if "/1/" in path)
        world.disk.remove_directory(directory.rpartition("/")[0])

        with pytest.raises(BrokerError):
            await produce(client, topic, batch_of(b"again"), partition=1)
        for _ in range(60):  # It is tried again and again.
            await world.pass_time(1)
        with pytest.raises(BrokerError):
            await produce(client, topic, batch_of(b"again"), partition=1)

        assert (await produce(client, topic, batch_of(b"2"), partition=2)).base_offset == 1


async def test_a_log_that_rots_while_it_is_closed_is_recovered_with_care(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await fill(client)
    async with world.broker(), world.client() as client:
        path = next(
            path for path in contents(world.disk, "topics") if path.endswith("1/checkpoint")
        )
        world.disk.flip_bit(path, 30, 1)
        with pytest.raises(BrokerError):  # A thread recovers it first.
            await fetch_all(client, topic, 1)
        await world.pass_time(1)

        assert [each.value for each in await fetch_all(client, topic, 1)] == [b"1"]


async def test_a_scrub_finds_damage_in_a_closed_log(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=2)
        for number in range(20):
            for partition in range(2):
                value = b"%d" % number * 900
                await produce(client, topic, batch_of(value), partition=partition)
    async with world.broker(), world.client() as client:
        assert closed_count(world) == 2
        path, data = next(each for each in world.segments() if "/1/" in each[0])
        world.disk.flip_bit(path, data.index(b"3" * 900) + 5, 0)

        await world.pass_time(61)
        for _ in range(200):
            await world.pass_time(0.25)

        assert [each["offset"] for each in world.told("scrub_found_damage")] == [3]
        assert (await describe(client, partition=1)).status == "damaged"
        (ended,) = world.told("scrub_round_ended")
        assert ended["log_count"] == 2
        assert int(str(ended["size_bytes"])) > 2 * 20 * 900


async def test_retention_opens_a_closed_log_when_it_is_due(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, retention_ms="1h")
        await produce(client, topic, batch_of(b"old"))
    world.events.clear()
    async with world.broker():
        assert closed_count(world) == 1
        await world.pass_time(HOUR_S / 2)
        assert world.told("log_opened") == []

        for _ in range(200):
            await world.pass_time(60)

        assert len(world.told("segments_deleted")) == 1


async def test_new_settings_and_the_end_of_a_topic_reach_closed_logs(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
    async with world.broker(), world.client() as client:
        world.events.clear()
        await alter_topic(client, retention_ms="1h")
        assert len(world.told("log_opened")) == 3
    async with world.broker(), world.client() as client:
        world.events.clear()
        await delete_topic(client)
        await world.pass_time(1)
        assert world.told("log_opened") == []
        assert world.segments() == []


async def test_a_limit_of_the_whole_disk_opens_all_logs(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
    world.events.clear()
    async with world.broker(log_retention_disk_bytes=1 << 20):
        for _ in range(30):
            await world.pass_time(1)
        assert len(world.told("log_opened")) == 3


async def test_a_clean_stop_writes_nothing_for_logs_that_were_not_used(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await fill(client)
        await create_topic(client, "empty", partitions=5)
    world.disk.calls.clear()
    async with world.broker():
        pass

    writes = [call for call in world.disk.calls if call[0] in {"write_at", "rename", "sync"}]
    assert [call for call in writes if str(call[1]).startswith("topics")] == []


async def test_logs_are_described_while_a_broker_runs(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker(), world.client() as client:
        topic = await fill(client)
        for _ in range(80):
            await world.pass_time(1)
        await produce(client, topic, batch_of(b"later"), partition=0)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert closed_count(world) == 2
        assert len(await fetch_all(client, topic)) == 2


async def stored(world: World) -> IdleLogsContent:
    content = read_small_file(world.disk, IDLE_LOGS_NAME, IdleLogsContent)
    assert content is not None
    return content


async def test_a_used_queue_stays_closed_until_a_message_comes(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        queue = await create_queue(broker)
        topic = topic_of(broker)
        await produce(client, topic, batch_of(b"used"))
        await settle(client, queue, await receive(client, queue))
        await world.pass_time(1)
    assert [each[2].is_drained for each in (await stored(world)).replicas] == [False, True]
    world.events.clear()

    async with world.broker(), world.client() as client:
        assert closed_count(world) == 2
        await produce(client, topic, batch_of(b"new"))
        assert len(world.told("log_opened")) == 2, "the queue is opened with its topic"
        assert [each.value for each in await receive(client, queue)] == [b"new"]


async def test_a_queue_with_messages_stays_closed_until_they_expire(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        queue = await create_queue(broker, retention_ms="1h")
        topic = topic_of(broker)
        await produce(client, topic, batch_of(b"kept"))
        await world.pass_time(2)
    world.events.clear()
    async with world.broker(), world.client() as client:
        assert closed_count(world) == 2
        for _ in range(70):
            await world.pass_time(60)

        assert len(world.told("log_opened")) == 2
        assert (await count(client, queue)).visible == 0
