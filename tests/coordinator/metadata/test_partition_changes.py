"""The partition changes of one command, before the commit."""

from msgspec.structs import replace

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.cluster_config import ClusterConfig
from tidelog.coordinator.metadata.leader_election import PartitionEvent
from tidelog.coordinator.metadata.partition_changes import (
    PartitionChangeBuilder,
)
from tidelog.coordinator.metadata.records import PartitionsChanged


def test_two_changes_of_a_partition_are_one_record() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2, 3], [2, 3, 1])
    topic = cluster.state.catalog.topic("orders")
    changes = PartitionChangeBuilder(cluster.state)

    changes.apply_event(topic, 0, PartitionEvent(in_sync_replicas=(1, 2)))
    changes.apply_event(topic, 0, PartitionEvent(in_sync_replicas=(1,)))
    changes.apply_event(topic, 1, PartitionEvent(in_sync_replicas=(2,)))

    (record,) = changes.records()
    assert isinstance(record, PartitionsChanged)
    (changed,) = record.topics
    assert [partition.number for partition in changed.partitions] == [0, 1]
    first = changes.partition(topic_id, 0)
    assert first == changed.partitions[0].partition
    assert first is not None
    assert (first.in_sync_replicas, first.eligible_leader_replicas) == ((1,), (2,))
    assert first.partition_epoch == 1
    assert cluster.partition().partition_epoch == 0, "nothing is committed yet"


def test_an_unchanged_partition_has_no_record() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    changes = PartitionChangeBuilder(cluster.state)

    changes.apply_event(cluster.state.catalog.topic("orders"), 0)

    assert changes.records() == []
    assert list(changes.changed()) == []


def test_an_election_uses_the_brokers_state_after_the_command() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2])
    fenced = replace(cluster.broker(1), is_fenced=True)

    after = PartitionChangeBuilder(cluster.state, broker=fenced).apply_event(
        cluster.state.catalog.topic("orders"), 0
    )

    assert (after.leader, after.in_sync_replicas) == (2, (2,))


def test_an_election_uses_the_settings_after_the_command() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    topic = cluster.state.catalog.topic("orders")

    changes = PartitionChangeBuilder(cluster.state, config=ClusterConfig(min_insync_replicas=3))

    assert changes.minimum(topic, 3) == 3
    assert PartitionChangeBuilder(cluster.state).minimum(topic, 3) == 2


def test_a_preview_changes_nothing() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2])
    changes = PartitionChangeBuilder(cluster.state)

    (step,) = changes.preview(
        cluster.state.catalog.topic("orders"), 0, PartitionEvent(in_sync_replicas=(1,))
    )

    assert (step.before.in_sync_replicas, step.after.in_sync_replicas) == ((1, 2), (1,))
    assert changes.records() == []
