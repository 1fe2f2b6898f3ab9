"""Companions are where their topics are."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.colocation import first_leader_beside, partitions_beside
from tidelog.coordinator.metadata.records import Partition
from tidelog.wire.errors import LeaderNotAvailableError


def test_a_companion_has_its_replicas_where_those_of_its_topic_are() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2], [2, 3], [3, 1])
    topic = cluster.state.catalog.topic("orders")

    every, last = (
        partitions_beside(cluster.state, topic),
        partitions_beside(cluster.state, topic, 2),
    )

    assert [each.replicas for each in every] == [(1, 2), (2, 3), (3, 1)]
    assert last == every[2:]


def test_who_leads_the_topic_leads_its_companion_if_that_broker_can() -> None:
    source = Partition((1, 2, 3), (2, 3), leader=2)

    assert first_leader_beside(source, (1, 2, 3)) == 2
    assert first_leader_beside(source, (1, 3)) == 3, "who is in sync before who is not"
    assert first_leader_beside(source, (1,)) == 1


def test_nothing_is_put_beside_a_partition_whose_replicas_are_all_dead() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [2])
    cluster.fence(2)

    with pytest.raises(LeaderNotAvailableError, match="beside partition 0 of 'orders'"):
        partitions_beside(cluster.state, cluster.state.catalog.topic("orders"))
