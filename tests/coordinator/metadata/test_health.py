"""Health of partitions: counts and notable partitions."""

from tests.coordinator.metadata.clusters import Cluster
from tests.coordinator.metadata.queues import creation, make
from tidelog.coordinator.metadata.commands import (
    AlterClusterConfig,
    DrainBroker,
    Reassignment,
    ReassignReplicas,
)
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


def below_default(cluster: Cluster) -> tuple[int, int]:
    """Return the topics with fewer replicas than new topics get, and the replicas of those."""
    health = health_of(cluster.state)
    return health.below_default_count, health.default_replication_factor


def test_topics_with_fewer_replicas_than_new_topics_are_counted() -> None:
    cluster = Cluster(1)
    topic_id = cluster.create("orders", [1], [1])
    make(cluster, creation(cluster, "q", "orders"))
    cluster.create("others", [1])
    assert below_default(cluster) == (0, 1)

    cluster.start(2)
    cluster.create("new", [1, 2])
    assert below_default(cluster) == (2, 2), "a journal is not a topic"
    cluster.start(3)
    assert below_default(cluster) == (3, 3)

    moves = [Reassignment(topic_id, number, [1, 2, 3]) for number in range(2)]
    cluster.do(ReassignReplicas(moves[:1]))
    assert below_default(cluster) == (3, 3), "its other partition has one replica"
    cluster.do(ReassignReplicas(moves[1:]))
    assert below_default(cluster) == (2, 3), "the replicas are on their way"


def test_the_default_counts_as_far_as_there_are_brokers_that_are_not_drained() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1])
    cluster.do(AlterClusterConfig({"default_replication_factor": "2"}, []))
    assert below_default(cluster) == (1, 2)
    cluster.do(AlterClusterConfig({"default_replication_factor": "5"}, []))
    assert below_default(cluster) == (1, 3)

    cluster.do(DrainBroker(2))
    cluster.do(DrainBroker(3))

    assert below_default(cluster) == (0, 1)
