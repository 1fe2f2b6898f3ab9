"""Tests of the metadata applier: roles change at once, and disk work follows."""

import errno
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.broker.applied_metadata import keeping
from tests.broker.logs import append, flush
from tests.broker.partitions.test_partition import Told
from tests.broker.world import World, settle
from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.catalog import AlterTopic, DeleteTopic
from tidelog.coordinator.metadata.commands import Reassignment, ReassignReplicas
from tidelog.isr.durability import Durability
from tidelog.wire.errors import (
    BrokerError,
    DiskFullError,
    LogOfflineError,
    NotLeaderError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.produce import Acks


def delete(cluster: Cluster, name: str = "orders") -> Callable[[], object]:
    return lambda: cluster.do(DeleteTopic(name))


async def test_a_start_opens_assigned_replicas_and_takes_their_roles(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2], [2, 1], [2, 3])
    async with keeping(world, cluster) as kept:
        await kept.start()

        assert [partition.number for partition in kept.partitions.all()] == [0, 1]
        assert kept.leader_epoch(topic_id, 0) == cluster.partition(number=0).leader_epoch
        assert kept.leader_epoch(topic_id, 1) is None
        assert kept.partitions.find(topic_id, 0) is kept.replica(topic_id, 0)


async def test_a_start_creates_missing_logs_and_keeps_them(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1], [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        log = kept.replica(topic_id, 1).log
        append(log, b"a")
        flush(log)

    async with keeping(world.after_power_cut(3), cluster) as kept:
        await kept.start()

        assert [partition.high_watermark for partition in kept.partitions.all()] == [0, 1]


async def test_a_start_removes_the_files_of_topics_deleted_before(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    for name in ("orders", "gone"):
        cluster.create(name, [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
    delete(cluster, "gone")()

    async with keeping(world, cluster) as kept:
        await kept.start()

        assert len(kept.partitions.all()) == 1
    assert len(world.disk.list_directory("topics")) == 1
    assert not world.disk.exists("deleted")


async def test_opening_many_logs_reports_progress(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2, 3)
    cluster.create("a", *[[1, 2]] * 150, [2, 3])
    cluster.create("b", *[[1, 2]] * 150)
    async with keeping(world, cluster) as kept:
        await kept.start()

    assert world.told("opening_logs") == [
        {"opened": opened, "total": 300} for opened in (100, 200, 300)
    ]


async def test_a_log_that_cannot_be_opened_fails_the_start(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        world.disk.fail("create")

        with pytest.raises(OSError, match="Input/output error"):
            await kept.start()


async def test_a_new_topic_is_open_when_it_has_settled(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2, 3)
    async with keeping(world, cluster) as kept:
        await kept.start()

        kept.hear(lambda: cluster.create("orders", [1, 2], [1, 2], [2, 1], [2, 3]))
        topic_id = cluster.state.catalog.topic("orders").topic_id
        assert kept.partitions.all() == [], "that needs the disk"
        await kept.applier.settle(topic_id)

        assert {partition.number for partition in kept.partitions.all()} == {0, 1, 2}
        assert [kept.leader_epoch(topic_id, number) for number in range(3)] == [0, 0, None]


async def test_changes_before_the_task_runs_are_not_lost(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    async with keeping(world, cluster) as kept:
        await kept.applier.start()
        kept.hear(lambda: cluster.create("orders", [1]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kept.applier.run)
            await settle()
            nursery.cancel_scope.cancel()

        assert len(kept.partitions.all()) == 1


async def test_a_log_is_opened_once_although_a_change_arrives_during_the_start(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2])
    cluster.in_sync(1, 2)
    async with keeping(world, cluster) as kept, trio.open_nursery() as nursery:
        world.work.hold_work()
        nursery.start_soon(kept.start)
        await settle()
        kept.hear(lambda: cluster.fence(1))
        world.work.let_all()
        await settle()

        opened = [told["directory"] for told in world.told("log_opened")]
        assert opened == [f"topics/orders.{topic_id.hex()}/0"]
        assert kept.leader_epoch(topic_id) is None, "broker 2 leads it now"


async def test_leaderships_that_come_and_go_are_one_line_each(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    async with keeping(world, cluster) as kept:
        await kept.start()
        kept.hear(lambda: cluster.create("orders", *[[2, 1]] * 30))
        await settle()
        assert world.told("became_leader") == []

        kept.hear(lambda: cluster.fence(2))
        kept.hear(lambda: cluster.fence(1))

    (led,) = world.told("became_leader")
    assert (led["topic"], led["partition"], led["count"]) == ("orders", 0, 30)
    assert led["partitions"] == [f"orders/{number}" for number in range(10)]
    (lost,) = world.told("became_follower")
    assert (lost["leader_id"], lost["count"]) == (None, 30)


async def test_a_new_leader_takes_effect_with_the_metadata_change(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2])
    cluster.in_sync(1, 2)
    async with keeping(world, cluster) as kept:
        await kept.start()
        partition, told = kept.replica(topic_id), Told()
        partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)

        kept.hear(lambda: cluster.shut_down(1))

        assert partition.leader is None
        ((_, error),) = told.failures
        assert isinstance(error, NotLeaderError)
        assert str(error) == "broker 2 leads the partition now"


async def test_a_leaderless_partition_is_reported_as_such(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        partition, told = kept.replica(topic_id), Told()
        partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)

        kept.hear(lambda: cluster.fence(1))

        ((_, error),) = told.failures
        assert str(error) == "the partition has no leader now"


async def test_a_leadership_that_returns_has_a_new_epoch(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        assert kept.leader_epoch(topic_id) == 0

        kept.hear(lambda: cluster.fence(1))
        kept.hear(lambda: cluster.unfence(1))

        assert kept.leader_epoch(topic_id) == cluster.partition().leader_epoch == 2


async def test_an_isr_change_does_not_begin_a_new_leadership(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2])
    async with keeping(world, cluster) as kept:
        await kept.start()
        leader = kept.replica(topic_id).leader

        kept.hear(lambda: cluster.in_sync(1))

        assert leader is not None
        assert kept.replica(topic_id).leader is leader


async def test_an_opened_log_takes_its_current_role(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    async with keeping(world, cluster) as kept:
        await kept.start()
        world.work.hold_work()
        kept.hear(lambda: cluster.create("orders", [1, 2]))
        await settle()
        kept.hear(lambda: cluster.shut_down(1))
        world.work.let_all()
        await settle()

        topic_id = cluster.state.catalog.topic("orders").topic_id
        assert cluster.partition().leader == 2
        assert kept.leader_epoch(topic_id) is None
        assert len(world.told("log_opened")) == 1


async def test_altered_settings_hold_at_once(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        partition = kept.replica(topic_id)
        append(partition.log, b"a")

        settings = {"durability": "replicated", "retention_bytes": "1MiB"}
        kept.hear(lambda: cluster.do(AlterTopic("orders", settings, [])))

        assert partition.durability is Durability.REPLICATED
        assert partition.log.config.retention_bytes == 1 << 20
        assert partition.high_watermark == 1


async def test_records_in_memory_are_flushed_when_durability_is_raised(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1], overrides={"durability": "replicated"})
    async with keeping(world, cluster) as kept:
        await kept.start()
        partition = kept.replica(topic_id)
        append(partition.log, b"a")

        kept.hear(lambda: cluster.do(AlterTopic("orders", {}, ["durability"])))
        await settle()

        assert partition.log.durable_end_offset == 1


async def test_a_deleted_topic_is_closed_at_once_and_its_files_are_removed(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1], [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        partition, told = kept.replica(topic_id), Told()
        partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)

        kept.hear(delete(cluster))

        assert kept.partitions.all() == []
        ((_, error),) = told.failures
        assert isinstance(error, UnknownTopicIdError | NotLeaderError)
        await kept.applier.settle(topic_id)
        assert world.disk.list_directory("topics") == []


async def test_the_files_of_a_deleted_topic_stay_while_they_are_flushed(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        partition = kept.replica(topic_id)
        world.work.hold_syncs()
        append(partition.log, b"a")
        kept.group_commit.appended(partition)
        await settle()

        kept.hear(delete(cluster))
        await settle()

        assert len(world.disk.list_directory("topics")) == 1
        world.work.let_all_sync()
        await kept.applier.settle(topic_id)
        assert world.disk.list_directory("topics") == []


async def test_a_topic_deleted_while_it_is_opened_leaves_no_files(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    async with keeping(world, cluster) as kept:
        await kept.start()
        world.work.hold_work()
        kept.hear(lambda: cluster.create("orders", [1], [1], [1]))
        topic_id = cluster.state.catalog.topic("orders").topic_id
        await settle()
        kept.hear(delete(cluster))
        world.work.let_all()
        await kept.applier.settle(topic_id)

        assert kept.partitions.all() == []
        assert world.disk.list_directory("topics") == []


async def test_a_topic_deleted_during_a_start_leaves_no_files(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1], [1], [1])
    async with keeping(world, cluster) as kept, trio.open_nursery() as nursery:
        world.work.hold_work()
        nursery.start_soon(kept.start)
        await settle()
        world.work.let_one()  # Files left by an earlier deletion.
        await settle()
        kept.hear(delete(cluster))
        world.work.let_all()
        await settle()
        await kept.applier.settle(topic_id)

        assert kept.partitions.all() == []
        assert world.disk.list_directory("topics") == []


async def test_a_topic_deleted_while_several_logs_are_opened_leaves_no_files(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    async with keeping(world, cluster) as kept:
        await kept.start()
        world.work.hold_work()
        kept.hear(lambda: cluster.create("orders", [1], [1], [1], [1]))
        topic_id = cluster.state.catalog.topic("orders").topic_id
        await settle()
        while not kept.partitions.all():
            world.work.let_one()
            await settle()

        kept.hear(delete(cluster))
        world.work.let_all()
        await kept.applier.settle(topic_id)

        assert kept.partitions.all() == []
        assert world.disk.list_directory("topics") == []


@pytest.mark.parametrize(
    ("error_number", "error_type", "reason"),
    [
        (errno.ENOSPC, DiskFullError, "the disk is full; topic 'orders' is opened"),
        (errno.EIO, LogOfflineError, "the disk failed while topic 'orders' was opened"),
    ],
)
async def test_a_topic_without_room_for_all_its_logs_gets_the_missing_ones_later(
    mock_clock: MockClock, error_number: int, error_type: type[BrokerError], *, reason: str
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    async with keeping(world, cluster) as kept:
        await kept.start()
        world.disk.fail("create", error_number=error_number)
        kept.hear(lambda: cluster.create("orders", [1], [1], [1]))
        topic_id = cluster.state.catalog.topic("orders").topic_id

        with pytest.raises(error_type, match=reason):
            await kept.applier.settle(topic_id)

        assert len(kept.partitions.all()) == 2
        assert kept.applier.has_failed(topic_id)
        kept.applier.retry()
        await kept.applier.settle(topic_id)
        assert len(kept.partitions.all()) == 3
        assert not kept.applier.has_failed(topic_id)
        assert kept.leader_epoch(topic_id, 0) == kept.leader_epoch(topic_id, 2) == 0


async def test_a_failed_log_that_another_change_opened_is_no_longer_failed(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    async with keeping(world, cluster) as kept:
        await kept.start()
        world.disk.fail("create")
        kept.hear(lambda: cluster.create("orders", [1]))
        topic_id = cluster.state.catalog.topic("orders").topic_id
        await settle()

        kept.hear(lambda: cluster.fence(1))
        await kept.applier.settle(topic_id)
        kept.applier.retry()
        await settle()

        assert len(world.told("log_opened")) == 1


async def test_failures_of_a_deleted_topic_are_dropped(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    async with keeping(world, cluster) as kept:
        await kept.start()
        world.disk.fail("create")
        kept.hear(lambda: cluster.create("orders", [1]))
        topic_id = cluster.state.catalog.topic("orders").topic_id
        await settle()

        kept.hear(delete(cluster))
        await kept.applier.settle(topic_id)

        assert not kept.applier.has_failed(topic_id)


async def test_files_that_cannot_be_removed_are_reported_and_do_not_block_other_work(
    mock_clock: MockClock,
) -> None:
    world, cluster = World(mock_clock), Cluster(1)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        world.disk.fail("rename")

        kept.hear(delete(cluster))
        await kept.applier.settle(topic_id)

        (told,) = world.told("files_left_over")
        assert (told["severity"], told["topic"]) == ("warning", "orders")
        kept.hear(lambda: cluster.create("another", [1]))
        await kept.applier.settle(cluster.state.catalog.topic("another").topic_id)
        assert len(kept.partitions.all()) == 1


async def test_a_reassigned_replica_is_removed_with_its_files(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    topic_id = cluster.create("orders", [1], [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        kept.hear(lambda: move_away(cluster, topic_id))
        await settle()

        assert [partition.number for partition in kept.partitions.all()] == [1]
        assert directories(world) == ["1"]
        assert [event["partition"] for event in world.told("replica_removed")] == [0]


async def test_a_start_removes_reassigned_replicas(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    topic_id = cluster.create("orders", [1], [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
    move_away(cluster, topic_id)

    async with keeping(world, cluster) as kept:
        await kept.start()

        assert directories(world) == ["1"]


async def test_a_replica_that_is_assigned_again_is_recreated(mock_clock: MockClock) -> None:
    world, cluster = World(mock_clock), Cluster(1, 2)
    topic_id = cluster.create("orders", [1])
    async with keeping(world, cluster) as kept:
        await kept.start()
        append(kept.replica(topic_id, 0).log, b"a")
        kept.hear(lambda: move_away(cluster, topic_id))
        await settle()

        kept.hear(lambda: cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [2, 1])])))
        await settle()

        assert kept.replica(topic_id, 0).log.log_end_offset == 0


def move_away(cluster: Cluster, topic_id: bytes) -> None:
    """Move partition 0 from broker 1 to broker 2."""
    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [2])]))
    cluster.in_sync(1, 2)


def directories(world: World) -> list[str]:
    (topic,) = world.disk.list_directory("topics")
    return sorted(world.disk.list_directory(f"topics/{topic}"))
