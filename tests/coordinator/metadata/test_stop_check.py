"""The check before a node stops: partitions and voters that need it."""

from collections.abc import Collection

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.commands import AlterClusterConfig
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.stop_check import (
    PARTITIONS_NAMED_MAX,
    PARTITIONS_PER_STEP,
    StopCheck,
    check_stop,
)

VOTERS = (1, 2, 3)


def checked(state: ClusterState, node_id: int, voters: Collection[int]) -> StopCheck:
    steps = check_stop(state, node_id, voters)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: StopCheck = stop.value
            return found


def at_risk(cluster: Cluster, node_id: int) -> list[tuple[str, int, tuple[int, ...], int]]:
    """Return the named partitions: topic, number, remaining replicas and their minimum."""
    found = checked(cluster.state, node_id, VOTERS).partitions
    return [(each.topic.name, each.number, each.remaining, each.minimum) for each in found]


def test_a_node_of_a_healthy_cluster_may_stop() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], [2, 3, 1])

    found = [checked(cluster.state, node_id, VOTERS) for node_id in VOTERS]
    assert [each.remaining_voters for each in found] == [[2, 3], [1, 3], [1, 2]]
    assert all(each.has_majority and not each.partition_count for each in found)


def test_without_a_third_replica_the_others_are_needed() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.fence(3)

    assert at_risk(cluster, 1) == [("orders", 0, (2,), 2)]
    assert at_risk(cluster, 2) == [("orders", 0, (1,), 2)]
    # A node that is in no ISR takes nothing away.
    assert at_risk(cluster, 3) == []


def test_a_sole_replica_is_needed_and_the_second_of_two_is_not() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("single", [1])
    cluster.create("double", [1, 2])

    assert at_risk(cluster, 1) == [("single", 0, (), 1)]
    assert at_risk(cluster, 2) == []


def test_min_insync_replicas_of_the_cluster_counts() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.do(AlterClusterConfig({"min_insync_replicas": "3"}, []))

    assert at_risk(cluster, 1) == [("orders", 0, (2, 3), 3)]


def test_a_broker_that_is_stopping_counts_no_more() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.shut_down(3)

    found = checked(cluster.state, 1, VOTERS)
    assert (found.has_majority, found.remaining_voters) == (False, [2])
    assert found.partition_count == 1


def test_two_of_three_voters_must_be_left() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.fence(3)

    assert not checked(cluster.state, 1, VOTERS).has_majority
    # A node without a vote is no part of the majority.
    assert checked(cluster.state, 4, VOTERS).has_majority
    assert not checked(Cluster(1).state, 1, [1]).has_majority


def test_a_result_names_the_first_partitions_and_counts_all() -> None:
    cluster = Cluster(1, 2)
    for name in ("b", "a"):
        cluster.create(name, *[[1]] * 30)

    found = checked(cluster.state, 1, VOTERS)
    assert found.partition_count == 60
    assert [(each.topic.name, each.number) for each in found.partitions] == [
        ("a", number) for number in range(PARTITIONS_NAMED_MAX)
    ]


def test_many_partitions_are_checked_in_steps() -> None:
    cluster = Cluster(1)
    cluster.create("orders", *[(1,)] * (3 * PARTITIONS_PER_STEP))

    steps = list(check_stop(cluster.state, 1, [1]))

    assert len(steps) == 3
