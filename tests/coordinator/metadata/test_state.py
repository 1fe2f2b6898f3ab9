"""The metadata state: cases that the random runs do not check closely."""

import msgspec
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import Cluster
from tests.simulation.metadata.invariants import check_same
from tests.simulation.metadata.moves import MOVE_LISTS, Move, run
from tidelog.coordinator.metadata.catalog import AlterTopic, DeleteTopic
from tidelog.coordinator.metadata.commands import ElectLeaders
from tidelog.coordinator.metadata.records import (
    ChangedPartition,
    ChangedTopic,
    DataLossAccepted,
    PartitionRegistration,
    PartitionsChanged,
)
from tidelog.coordinator.metadata.replica_index import NO_PARTITION, Load, ReplicaIndex
from tidelog.coordinator.metadata.state import DATA_LOSSES_KEPT, ClusterState
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine


def test_an_unknown_topic_has_no_partitions() -> None:
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


def test_equal_replica_lists_are_shared() -> None:
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


def test_a_skipped_partition_epoch_is_a_defect() -> None:
    cluster = Cluster(1)
    topic_id = cluster.create("orders", [1])
    ahead = PartitionRegistration((1,), (1,), leader=1, partition_epoch=2)
    record = PartitionsChanged([ChangedTopic(topic_id, [ChangedPartition(0, ahead)])])

    with pytest.raises(AssertionError, match="a change is missing"):
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
    check_same(cluster.state.copy(), cluster.state)
    cluster.start(1)
    assert not may_lose("ticks")


A = b"a" * 16
B = b"b" * 16


def test_a_broker_knows_its_topics_and_its_load() -> None:
    index = ReplicaIndex()

    index.moved(B, 0, NO_PARTITION, after=PartitionRegistration((1, 2), (1, 2), leader=1))
    index.moved(A, 0, NO_PARTITION, after=PartitionRegistration((2, 1), (1,), leader=1))

    assert index.topic_ids(1) == [A, B]
    assert index.load(1) == Load(replica_count=2, preferred_count=1, leader_count=2)
    assert index.load(2) == Load(replica_count=2, preferred_count=1, leader_count=0)
    assert index.load(3) == Load()
    assert list(index.not_preferred) == [(A, 0)]


def test_the_index_counts_moved_replicas_at_their_new_broker() -> None:
    index = ReplicaIndex()
    before = PartitionRegistration((1, 2), (1, 2), leader=1)
    index.moved(A, 0, NO_PARTITION, after=before)

    index.moved(
        A, 0, before, after=replace(before, replicas=(3, 2), in_sync_replicas=(2,), leader=2)
    )

    assert index.topic_ids(1) == []
    assert index.load(1) == Load()
    assert index.load(3) == Load(replica_count=1, preferred_count=1)
    assert list(index.not_preferred) == [(A, 0)]


def test_the_index_of_deleted_topics_is_empty() -> None:
    index = ReplicaIndex()
    partition = PartitionRegistration((1, 2), (2,), leader=2)
    index.moved(A, 0, NO_PARTITION, after=partition)

    index.moved(A, 0, partition, after=NO_PARTITION)

    assert vars(index) == vars(ReplicaIndex())


@pytest.mark.invariant("I45")
@settings(max_examples=60)
@given(MOVE_LISTS)
def test_random_commands_keep_the_metadata_invariants(moves: list[Move]) -> None:
    life = run(moves)

    data = life.cluster.machine.snapshot()
    restored = MetadataStateMachine.from_snapshot(data)
    assert restored.snapshot() == data
    check_same(restored.state, life.cluster.state)


def test_a_damaged_snapshot_is_refused() -> None:
    data = Cluster(1).machine.snapshot()

    for damaged in (data[:-1], b"", b"\x90", data + b"\x00"):
        with pytest.raises(msgspec.MsgspecError):
            MetadataStateMachine.from_snapshot(damaged)
