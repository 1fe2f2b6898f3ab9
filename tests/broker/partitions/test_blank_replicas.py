"""Tests of blank replicas: logs of very many new partitions are created when they are used."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    delete_topic,
    fetch_all,
    produce,
    produce_silently,
)
from tests.broker.queues.queue_requests import count
from tests.broker.security.access_world import features_known
from tests.broker.world import World, settle
from tests.client.clients import client_of
from tests.simulation.machine.disk_contents import contents
from tidelog.broker.partitions.replica_manager import CREATED_AT_ONCE
from tidelog.wire.errors import LeaderNotAvailableError
from tidelog.wire.messages.queue_admin import (
    CreateQueueRequest,
    CreateQueuesRequest,
    DeleteQueueRequest,
    QueueCreated,
)
from tidelog.wire.messages.topic_usage import TopicUsageRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

MANY = CREATED_AT_ONCE
"""Queues; with topic and journal each, they have too many logs to be created together."""


async def create_queues(client: RpcConnection, count: int = MANY) -> Sequence[QueueCreated]:
    await features_known(client)
    names = [f"q{number}" for number in range(count)]
    wanted = [
        CreateQueueRequest(name, name, None, [], is_fifo=False, config={}, topic_config={})
        for name in names
    ]
    results = (await client.ask(api.CREATE_QUEUES, CreateQueuesRequest(wanted))).results
    assert all(each.error is None for each in results)
    return results


def stored(world: World) -> set[str]:
    """Return the names of the topics with files."""
    paths = contents(world.disk, "topics")
    return {path.split("/")[1].partition(".")[0] for path in paths}


async def produce_first(client: RpcConnection, topic_id: bytes, value: bytes) -> None:
    """Send a record to a blank partition, which is refused once."""
    with pytest.raises(LeaderNotAvailableError, match="is being opened"):
        await produce(client, topic_id, batch_of(value))
    await settle()
    await produce(client, topic_id, batch_of(value))


async def test_the_logs_of_many_new_queues_are_created_when_they_are_used(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with world.broker(), world.client() as client:
        queues = await create_queues(client)
        assert stored(world) == set()

        await produce_first(client, queues[3].topic_id, b"once")

        assert stored(world) == {"q3", "queue@q3"}, "a queue has work when its topic gets a record"
        counts = await count(client, queues[3].queue_id)
        assert (counts.visible, counts.error) == (1, None)


async def test_records_without_acknowledgement_are_appended_when_the_log_is_created(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with world.broker(), world.client() as client:
        queues = await create_queues(client)

        for value in (b"first", b"second", b"third"):
            produce_silently(client, queues[5].topic_id, batch_of(value))
        await settle()

        records = await fetch_all(client, queues[5].topic_id)
        assert [each.value for each in records] == [b"first", b"second", b"third"]
        assert (await count(client, queues[5].queue_id)).visible == 3


async def test_few_new_queues_have_their_logs_when_the_reply_comes(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with world.broker(), world.client() as client:
        queues = await create_queues(client, MANY // 2)

        assert len(stored(world)) == MANY
        await produce(client, queues[0].topic_id, batch_of(b"at once"))


async def test_a_topic_with_many_partitions_has_its_logs_when_the_reply_comes(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with world.broker(), world.client() as client:
        topic_id = await create_topic(client, partitions=CREATED_AT_ONCE + 1)

        await produce(client, topic_id, batch_of(b"at once"), partition=CREATED_AT_ONCE)


async def test_a_question_about_blank_replicas_creates_no_files(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with world.broker(), world.client() as client:
        queues = await create_queues(client)

        described = await client.ask(api.DESCRIBE_TOPICS, DescribeTopicsRequest(["q1"]))
        usage = await client.ask(api.TOPIC_USAGE, TopicUsageRequest(["q1"]))
        counts = await count(client, queues[1].queue_id)

        (partition,) = described.topics[0].partitions
        assert (partition.leader_id, partition.status) == (1, "online")
        assert partition.log_end_offset == 0
        (used,) = usage.topics[0].partitions
        assert (used.leader_id, used.size_bytes, used.high_watermark) == (1, 0, 0)
        assert (counts.visible, counts.in_flight, counts.error) == (0, 0, None)
        assert stored(world) == set()


@pytest.mark.invariant("I14")
async def test_blank_replicas_stay_blank_through_starts_and_crashes(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with world.doomed_broker(), world.client() as client:
        queues = await create_queues(client)
        await produce_first(client, queues[0].topic_id, b"kept")
        await produce_first(client, queues[1].topic_id, b"kept, too")

    for seed, after in enumerate((world.after_crash(), world.after_power_cut(7))):
        async with after.broker(), after.client() as client:
            assert stored(after) == {"q0", "queue@q0", "q1", "queue@q1"}
            assert after.told("replica_suspect") == []
            await produce_first(client, queues[2].topic_id, b"%d" % seed)
            records = await fetch_all(client, queues[2].topic_id)
            assert [each.value for each in records] == [b"%d" % seed]


async def test_a_created_replica_that_lost_its_files_is_suspect_and_not_blank(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with world.broker(), world.client() as client:
        queues = await create_queues(client)
        await produce_first(client, queues[0].topic_id, b"to be lost")
    for path in [path for path in contents(world.disk, "topics") if "/q0." in path]:
        if path.endswith((".log", ".index", "checkpoint")):
            world.disk.remove(path)

    async with world.broker(), world.client():
        assert [each["topic"] for each in world.told("replica_suspect")] == ["q0"]


async def test_files_outside_the_manifest_are_opened_and_not_taken_for_blank(
    autojump_clock: MockClock,
) -> None:
    """A crash between the creation of a log and its entry in the manifest leaves such files."""
    world = World(autojump_clock)
    async with world.doomed_broker(), world.client() as client:
        queues = await create_queues(client)
        await produce_first(client, queues[0].topic_id, b"first")
    crashed = world.after_crash()
    crashed.disk.remove("replicas")
    crashed.events.clear()

    async with crashed.broker(), crashed.client() as client:
        records = await fetch_all(client, queues[0].topic_id)
        assert [each.value for each in records] == [b"first"]


async def test_a_deleted_blank_queue_leaves_nothing(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with world.broker(), world.client() as client:
        queues = await create_queues(client)

        await client.ask(api.DELETE_QUEUE, DeleteQueueRequest("q0"))
        await delete_topic(client, "q0")

        with pytest.raises(Exception, match="no topic has the id"):
            await produce(client, queues[0].topic_id, batch_of(b"too late"))
        await settle()
        assert stored(world) == set()


async def test_a_client_uses_blank_queues_without_an_error(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        names = [f"q{number}" for number in range(MANY)]
        await client.admin.create_queue("first", labels={"a": "needs a feature level"})
        await client.admin.create_queues(names)

        async def use(name: str) -> None:
            queue = client.queue(name)
            await queue.send(b"once")
            (message,) = await queue.receive(wait=20)
            await queue.delete(message)

        async with trio.open_nursery() as nursery:
            for name in names[::3]:
                nursery.start_soon(use, name)

        assert len(stored(world)) == 2 + 2 * len(names[::3])
