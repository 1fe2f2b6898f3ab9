"""The fold over the records: what the random lives do not look at closely."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tests.simulation.metadata.invariants import check_same
from tidelog.coordinator.metadata.catalog import AlterTopic, DeleteTopic
from tidelog.coordinator.metadata.commands import ElectLeaders
from tidelog.coordinator.metadata.records import (
    ChangedPartition,
    ChangedTopic,
    DataLossAccepted,
    Partition,
    PartitionsChanged,
)
from tidelog.coordinator.metadata.state import DATA_LOSSES_KEPT, ClusterState


def test_what_is_not_there_is_none_or_nothing() -> None:
    state = ClusterState()

    assert state.partition(b"?" * 16, 0) is None
    assert state.partitions(b"?" * 16) == ()
    assert dict(state.brokers) == {}
    assert state.next_broker_epoch == 1


@pytest.mark.parametrize("number", [-1, 2])
def test_a_partition_number_out_of_range_is_no_partition(number: int) -> None:
    cluster = Cluster(1)
    topic_id = cluster.create("orders", [1], [1])

    assert cluster.state.partition(topic_id, number) is None


def test_equal_lists_of_replicas_are_one_list() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", *([1, 2, 3] for _ in range(4)))
    cluster.fence(1)

    for state in (cluster.state, cluster.follower.state):
        topic_id = state.catalog.topic("orders").topic_id
        partitions = state.partitions(topic_id)
        assert len({id(partition.replicas) for partition in partitions}) == 1
        assert len({id(partition.in_sync_replicas) for partition in partitions}) == 1
        restored = ClusterState.from_snapshot(state.snapshot())
        (first, *others) = restored.partitions(topic_id)
        assert all(other.replicas is first.replicas for other in others)


def test_a_change_that_does_not_follow_on_the_last_one_is_a_mistake() -> None:
    cluster = Cluster(1)
    topic_id = cluster.create("orders", [1])
    ahead = Partition((1,), (1,), leader=1, partition_epoch=2)
    record = PartitionsChanged([ChangedTopic(topic_id, [ChangedPartition(0, ahead)])])

    with pytest.raises(AssertionError, match="a change was left out"):
        cluster.machine.apply(record)


def test_only_the_last_losses_of_data_are_remembered() -> None:
    state = ClusterState()

    for number in range(DATA_LOSSES_KEPT + 5):
        state.apply(DataLossAccepted(b"?" * 16, number, 1, 1, None, (), 0))

    assert len(state.data_losses) == DATA_LOSSES_KEPT
    assert state.data_losses[0].partition == 5


def test_a_deleted_topic_leaves_nothing_but_its_id() -> None:
    cluster = Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2], overrides={"durability": "replicated"})
    cluster.do(AlterTopic("orders", {"durability": "fsync"}, []))
    cluster.do(ElectLeaders([(topic_id, 0)]))

    cluster.do(DeleteTopic("orders"))

    assert cluster.state.catalog.was_deleted(topic_id)
    assert list(cluster.state.index.not_preferred) == []
    assert cluster.state.index.topic_ids(1) == []
    assert cluster.state.snapshot().topics == []


def test_a_broker_that_registered_before_the_topic_was_on_disk_may_lose_committed_records() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    cluster.create("ticks", [1], overrides={"durability": "replicated"})

    def may_lose(name: str) -> bool:
        topic = cluster.state.catalog.topic(name)
        return cluster.state.may_lose_committed(topic, cluster.broker(1))

    assert (may_lose("orders"), may_lose("ticks")) == (False, True)
    cluster.do(AlterTopic("ticks", {"durability": "fsync"}, []))
    assert may_lose("ticks")
    check_same(ClusterState.from_snapshot(cluster.state.snapshot()), cluster.state)
    cluster.start(1)
    assert not may_lose("ticks")
