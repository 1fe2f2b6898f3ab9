"""Tests of the replica manager: finding partitions, refusals, and their files."""


# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.applied_metadata import AppliedMetadata, keeping
from tests.broker.broker_requests import submit
from tests.broker.logs import TOPIC_ID, append, flush
from tests.broker.queues.queue_requests import create_queue
from tests.broker.world import World
from tests.coordinator.metadata.clusters import Cluster
from tests.simulation.machine.disk_contents import contents
from tidelog.broker.partitions.mover_ids import MoverIds, producer_id_of
from tidelog.broker.partitions.partition import Partition
from tidelog.coordinator.metadata.catalog import DeleteTopic, Topic
from tidelog.coordinator.metadata.commands import FenceBroker
from tidelog.wire.errors import (
    BrokerError,
    LeaderNotAvailableError,
    NotLeaderError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.queue_admin import DeleteQueueRequest
from tidelog.wire.protocol import api


def topic_of(kept: AppliedMetadata, name: str = "orders") -> Topic:
    return kept.metadata.state.catalog.topic(name)


async def opened(kept: AppliedMetadata, name: str = "orders") -> list[Partition]:
    """Open the logs of a topic."""
    topic = topic_of(kept, name)
    return [await kept.partitions.open(topic, number) for number in range(topic.partition_count)]


def refusal(kept: AppliedMetadata, topic_id: bytes, number: int) -> str:
    """Return the refusal of `find`, as the kind of the error and its line."""
    with pytest.raises(BrokerError) as caught:
        kept.partitions.find(topic_id, number)
    return f"{type(caught.value).__name__}: {caught.value}"


async def test_a_partition_led_here_is_found(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1], [1])
    async with keeping(world, cluster) as kept:
        first, second = await opened(kept)
        first.lead(0)
        second.lead(0)

        assert kept.partitions.all() == [first, second]
        assert kept.partitions.find(topic_id, 1) is second
        assert kept.partitions.replica(topic_id, 0) is first
        assert kept.partitions.replica(topic_id, 2) is None


@pytest.mark.invariant("I47")
async def test_a_partition_not_led_here_is_refused_with_its_leader(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2], [2, 1], [3, 2])
    cluster.in_sync(3, number=2)
    cluster.do(FenceBroker(3, cluster.broker(3).broker_epoch))
    async with keeping(world, cluster) as kept:
        assert refusal(kept, TOPIC_ID, 0).startswith(
            f"{UnknownTopicIdError.__name__}: no topic has the id {TOPIC_ID.hex()}"
        )
        assert refusal(kept, topic_id, 3) == (
            f"{UnknownPartitionError.__name__}: there is no partition 3; the topic has partitions 0"
            " to 2"
        )
        assert refusal(kept, topic_id, 0) == (
            f"{LeaderNotAvailableError.__name__}: partition 0 is being opened,"
            " or its disk has no room"
        )
        assert refusal(kept, topic_id, 1) == (
            f"{NotLeaderError.__name__}: broker 2 leads partition 1, not this one"
        )
        assert refusal(kept, topic_id, 2) == (
            f"{LeaderNotAvailableError.__name__}: partition 2 has no leader at the moment: no"
            " replica with all committed records is alive: broker 3 is fenced; start broker 3, or"
            " accept the loss: tidelog cluster elect-leaders --topic orders --partition 2"
            " --accept-data-loss"
        )


async def test_a_leader_without_contact_to_the_cluster_does_not_lead(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        (partition,) = await opened(kept)
        partition.lead(0)

        kept.is_heard_of = False

        assert refusal(kept, topic_id, 0) == (
            f"{LeaderNotAvailableError.__name__}: broker 1 leads partition 0, and has lost"
            " contact with its cluster"
        )
        assert kept.partitions.replica(topic_id, 0) is partition
        kept.is_heard_of = True
        assert kept.partitions.find(topic_id, 0) is partition


async def test_a_replica_not_led_here_is_refused_to_clients(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    topic_id = cluster.create("orders", [2, 1])
    async with keeping(world, cluster) as kept:
        await opened(kept)

        assert "broker 2 leads partition 0" in refusal(kept, topic_id, 0)


async def test_a_log_that_cannot_be_created_can_be_created_later(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    cluster.create("orders", [1], [1])
    async with keeping(world, cluster) as kept:
        topic = topic_of(kept)
        await kept.partitions.open(topic, 0)
        world.disk.fail("create")

        with pytest.raises(OSError, match="Input/output error"):
            await kept.partitions.open(topic, 1)

        assert [partition.number for partition in kept.partitions.all()] == [0]
        await kept.partitions.open(topic, 1)
        assert [partition.number for partition in kept.partitions.all()] == [0, 1]


async def test_closing_a_log_and_removing_a_topic_leaves_no_files(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id, other = cluster.create("orders", [1], [1]), cluster.create("other", [1], [1])
    async with keeping(world, cluster) as kept:
        await opened(kept)
        await opened(kept, "other")
        before = set(contents(world.disk))
        error = UnknownTopicIdError("it was deleted")

        closed = [kept.partitions.close((topic_id, number), error) for number in (0, 1)]
        await kept.partitions.remove_files("orders", topic_id)

        assert [each and each.log.status.value for each in closed] == ["offline", "offline"]
        assert kept.partitions.close((topic_id, 0), error) is None
        assert [partition.topic_id for partition in kept.partitions.all()] == [other, other]
        gone = before - set(contents(world.disk))
        assert gone
        assert all(topic_id.hex() in path for path in gone)


async def test_a_start_removes_the_files_of_deleted_topics(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    cluster.create("orders", [1])
    cluster.create("gone", [1])
    async with keeping(world, cluster) as kept:
        await opened(kept)
        await opened(kept, "gone")
    cluster.do(DeleteTopic("gone"))

    async with keeping(world, cluster) as kept:
        await kept.partitions.settle_left_overs(kept.metadata.state.catalog)

    (left,) = world.disk.list_directory("topics")
    assert left.startswith("orders.")
    assert not world.disk.exists("deleted")


@pytest.mark.invariant("I65")
async def test_files_of_an_unknown_topic_are_kept_and_reported(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        await opened(kept)
    before = contents(world.disk, "topics")

    async with keeping(world, Cluster(1)) as kept:
        await kept.partitions.settle_left_overs(kept.metadata.state.catalog)

    assert contents(world.disk, "topics") == before
    assert world.told("topic_without_metadata") == [
        {"severity": "warning", "topic": "orders", "directory": f"topics/orders.{topic_id.hex()}"}
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_flushed_records_are_there_when_a_log_is_opened_again(
    mock_clock: MockClock, seed: int
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        (partition,) = await opened(kept)
        append(partition.log, b"a")
        flush(partition.log)

    async with keeping(world.after_power_cut(seed), cluster) as kept:
        (again,) = await opened(kept)

    assert (again.topic_id, again.number, again.log.log_end_offset) == (topic_id, 0, 1)


async def test_damage_found_by_recovery_is_reported(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        (partition,) = await opened(kept)
        log = partition.log
        for value in (b"first", b"second", b"third"):
            append(log, value)
            flush(log)
        append(log, b"torn")
    ((path, data),) = world.segments()
    world.disk.flip_bit(path, data.index(b"second"), 0)
    world.disk.cut_file(path, len(data) - 2)

    after = world.after_crash()
    async with keeping(after, cluster) as kept:
        (again,) = await opened(kept)

    (recovered,) = after.told("log_recovered")
    assert (recovered["topic"], recovered["partition"]) == ("orders", 0)
    assert int(str(recovered["truncated_bytes"])) > 0
    (damaged,) = after.told("log_damaged")
    assert (damaged["offset"], damaged["end_offset"]) == (1, 2)
    assert again.log.status.value == "damaged"


async def test_a_mover_id_is_valid_as_long_as_its_queue_exists(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        assert broker._cluster is not None
        metadata = broker._cluster.metadata
        movers = MoverIds(lambda: metadata.state.catalog)
        queue = await create_queue(broker, partitions=2)

        assert movers.is_one(producer_id_of(queue, 0))
        assert movers.is_one(producer_id_of(queue, 1))
        assert not movers.is_one(producer_id_of(queue, 2))
        assert not movers.is_one(7)

        await submit(client, api.DELETE_QUEUE, DeleteQueueRequest("orders")).reply()
        assert not movers.is_one(producer_id_of(queue, 0))
