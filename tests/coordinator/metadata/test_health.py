"""Health of partitions: counts and notable partitions."""

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.commands import Reassignment, ReassignReplicas
from tidelog.coordinator.metadata.health import health_of
from tidelog.coordinator.metadata.state import ClusterState


def notable(cluster: Cluster) -> list[tuple[str, int]]:
    """Return topic and number of the notable partitions."""
    return [(each.topic.name, each.number) for each in health_of(cluster.state).notable]


def test_an_empty_cluster_has_no_notable_partitions() -> None:
    health = health_of(ClusterState())

    assert (health.partition_count, health.notable) == (0, [])


def test_healthy_partitions_are_only_counted() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], [2, 3, 1])

    health = health_of(cluster.state)

    assert (health.partition_count, health.notable) == (2, [])


def test_a_fenced_broker_leaves_replicas_out_of_sync_and_leaders_elsewhere() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], [2, 3, 1])
    cluster.create("others", [2, 3])
    cluster.fence(1)

    health = health_of(cluster.state)

    assert (health.under_replicated_count, health.not_preferred_count) == (2, 1)
    assert (health.unavailable_count, health.leaderless_count) == (0, 0)
    assert notable(cluster) == [("orders", 0), ("orders", 1)]


def test_partitions_below_min_insync_replicas_are_counted_separately() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.create("single", [1])
    cluster.fence(2, 3)

    health = health_of(cluster.state)

    assert (health.unavailable_count, health.under_replicated_count) == (1, 1)
    assert notable(cluster) == [("orders", 0)]


def test_a_partition_without_a_leader_is_not_led_elsewhere() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1])
    cluster.fence(1)

    health = health_of(cluster.state)

    assert (health.leaderless_count, health.under_replicated_count) == (1, 1)
    assert (health.unavailable_count, health.not_preferred_count) == (0, 0)


def test_an_adding_replica_is_not_under_replicated() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2])
    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [1, 3])]))

    health = health_of(cluster.state)

    assert (health.reassigning_count, health.under_replicated_count) == (1, 0)
    assert notable(cluster) == [("orders", 0)]


def test_topics_are_in_the_order_of_their_names() -> None:
    cluster = Cluster(1, 2)
    cluster.create("b", [1], [1])
    cluster.create("a", [1])
    cluster.fence(1)

    assert notable(cluster) == [("a", 0), ("b", 0), ("b", 1)]
