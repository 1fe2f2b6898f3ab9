"""Internal topics are colocated with their sources."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.colocation import colocated_leader, colocated_partitions
from tidelog.coordinator.metadata.records import Partition
from tidelog.wire.errors import LeaderNotAvailableError


def test_a_companion_has_its_replicas_where_those_of_its_topic_are() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2], [2, 3], [3, 1])
    topic = cluster.state.catalog.topic("orders")

    every, last = (
        colocated_partitions(cluster.state, topic),
        colocated_partitions(cluster.state, topic, 2),
    )

    assert [each.replicas for each in every] == [(1, 2), (2, 3), (3, 1)]
    assert last == every[2:]


def test_who_leads_the_topic_leads_its_companion_if_that_broker_can() -> None:
    source = Partition((1, 2, 3), (2, 3), leader=2)

    assert colocated_leader(source, (1, 2, 3)) == 2
    assert colocated_leader(source, (1, 3)) == 3, "who is in sync before who is not"
    assert colocated_leader(source, (1,)) == 1


def test_nothing_is_put_beside_a_partition_whose_replicas_are_all_dead() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [2])
    cluster.fence(2)

    with pytest.raises(LeaderNotAvailableError, match="belongs to partition 0 of 'orders'"):
        colocated_partitions(cluster.state, cluster.state.catalog.topic("orders"))
