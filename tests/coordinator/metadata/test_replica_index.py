"""Counts and places of replicas. That they are always right is checked after every random step."""

from msgspec.structs import replace

from tidelog.coordinator.metadata.records import Partition
from tidelog.coordinator.metadata.replica_index import NO_PARTITION, Load, ReplicaIndex

A = b"a" * 16
B = b"b" * 16


def test_a_broker_knows_its_topics_and_its_load() -> None:
    index = ReplicaIndex()

    index.moved(B, 0, NO_PARTITION, after=Partition((1, 2), (1, 2), leader=1))
    index.moved(A, 0, NO_PARTITION, after=Partition((2, 1), (1,), leader=1))

    assert index.topic_ids(1) == [A, B]
    assert index.load(1) == Load(replica_count=2, preferred_count=1, leader_count=2)
    assert index.load(2) == Load(replica_count=2, preferred_count=1, leader_count=0)
    assert index.load(3) == Load()
    assert list(index.not_preferred) == [(A, 0)]


def test_what_moves_away_is_counted_elsewhere() -> None:
    index = ReplicaIndex()
    before = Partition((1, 2), (1, 2), leader=1)
    index.moved(A, 0, NO_PARTITION, after=before)

    index.moved(
        A, 0, before, after=replace(before, replicas=(3, 2), in_sync_replicas=(2,), leader=2)
    )

    assert index.topic_ids(1) == []
    assert index.load(1) == Load()
    assert index.load(3) == Load(replica_count=1, preferred_count=1)
    assert list(index.not_preferred) == [(A, 0)]


def test_an_index_of_what_is_gone_is_empty() -> None:
    index = ReplicaIndex()
    partition = Partition((1, 2), (2,), leader=2)
    index.moved(A, 0, NO_PARTITION, after=partition)

    index.moved(A, 0, partition, after=NO_PARTITION)

    assert vars(index) == vars(ReplicaIndex())
