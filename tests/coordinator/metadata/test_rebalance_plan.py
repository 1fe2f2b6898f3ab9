"""Rebalance plans: as few moves as needed, and replicas of a partition kept apart."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.commands import DrainBroker, ReassignReplicas
from tidelog.coordinator.metadata.rebalance_plan import plan_moves, plan_replacement


def move(cluster: Cluster, *, moves_max: int = 1000, leaving: tuple[int, ...] = ()) -> int:
    """Apply a plan with all replicas in their ISRs, and return how many replicas it moved."""
    plan = plan_moves(cluster.state, moves_max=moves_max, leaving=leaving)
    before = {
        (move.topic_id, move.partition): cluster.state.partition(move.topic_id, move.partition)
        for move in plan
    }
    cluster.do(ReassignReplicas(plan))
    for number, partition in enumerate(cluster.state.partitions(topic_id(cluster))):
        if partition.is_reassigning:
            cluster.in_sync(*partition.replicas, number=number)
    moved = 0
    for wish in plan:
        was = before[wish.topic_id, wish.partition]
        assert was is not None
        moved += len(set(wish.replicas or ()) - set(was.replicas))
    return moved


def topic_id(cluster: Cluster) -> bytes:
    return cluster.state.catalog.topic("orders").topic_id


def loads(cluster: Cluster) -> dict[int, int]:
    index = cluster.state.index
    return {node: index.load(node).replica_count for node in sorted(cluster.state.brokers)}


def test_equal_loads_need_no_moves() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2], [2, 3], [3, 1])

    assert plan_moves(cluster.state, moves_max=100) == []


def test_a_new_broker_gets_its_share_with_the_fewest_moves() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", *([1, 2, 3] for _ in range(8)))
    cluster.start(4)

    assert move(cluster) == 6

    assert loads(cluster) == {1: 6, 2: 6, 3: 6, 4: 6}


def preferred(cluster: Cluster) -> dict[int, int]:
    index = cluster.state.index
    return {node: index.load(node).preferred_count for node in sorted(cluster.state.brokers)}


def test_brokers_are_preferred_equally_afterwards() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", *([1, 2, 3] for _ in range(8)))
    cluster.start(4)

    move(cluster)

    assert preferred(cluster) == {1: 2, 2: 2, 3: 2, 4: 2}


def test_a_preferred_leader_changes_without_a_copy() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", *([1, 2, 3] for _ in range(6)))

    assert move(cluster, moves_max=0) == 0

    assert preferred(cluster) == {1: 2, 2: 2, 3: 2}


def test_a_plan_has_at_most_moves_max_moves() -> None:
    cluster = Cluster(1)
    cluster.create("orders", *([1] for _ in range(8)))
    cluster.start(2)

    assert move(cluster, moves_max=3) == 3
    assert loads(cluster) == {1: 5, 2: 3}
    assert move(cluster) == 1


def test_a_partition_that_the_target_has_already_is_passed() -> None:
    cluster = Cluster(1, 2)
    cluster.create("copied", [1, 2])
    cluster.create("orders", [1], [1])

    assert move(cluster) == 1

    assert loads(cluster) == {1: 2, 2: 2}


def test_a_leaving_broker_loses_all_replicas_and_gets_none() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("orders", *([1, 2, 3] for _ in range(5)))

    move(cluster, leaving=(1,))

    assert loads(cluster) == {1: 0, 2: 5, 3: 5, 4: 5}


def test_a_leaving_broker_keeps_replicas_without_a_target() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2])

    assert move(cluster, leaving=(1,)) == 0


def test_replicas_are_not_moved_to_fenced_brokers() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", *([1] for _ in range(4)))
    cluster.fence(2)

    assert plan_moves(cluster.state, moves_max=10) == []


def test_a_rebalance_keeps_replicas_in_different_racks() -> None:
    cluster = Cluster()
    for node, domain in ((1, "a"), (2, "b"), (3, "a"), (4, "b")):
        cluster.start(node, domain=domain)
    cluster.create("orders", *([1, 2] for _ in range(6)))

    move(cluster)

    assert loads(cluster) == {1: 3, 2: 3, 3: 3, 4: 3}
    for partition in cluster.state.partitions(topic_id(cluster)):
        assert {node % 2 for node in partition.replicas} == {0, 1}


@settings(max_examples=40)
@given(st.lists(st.sets(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=12))
def test_a_rebalance_makes_any_loads_equal(replicas: list[set[int]]) -> None:
    cluster = Cluster(1, 2, 3, 4)
    factor = min(len(nodes) for nodes in replicas)
    cluster.create("orders", *(sorted(nodes)[:factor] for nodes in replicas))
    spread_before = max(loads(cluster).values()) - min(loads(cluster).values())

    moved = move(cluster)

    assert max(loads(cluster).values()) - min(loads(cluster).values()) <= 1
    assert max(preferred(cluster).values()) - min(preferred(cluster).values()) <= 2
    assert (moved == 0) == (spread_before <= 1)


def test_a_drained_broker_loses_all_replicas_and_gets_none() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("orders", *([1, 2] for _ in range(8)))
    cluster.do(DrainBroker(3))

    move(cluster)
    assert loads(cluster)[3] == 0
    assert loads(cluster)[4] == 5

    cluster.do(DrainBroker(1))
    move(cluster)
    assert loads(cluster) == {1: 0, 2: 8, 3: 0, 4: 8}


def test_a_leaving_broker_puts_replicas_into_one_rack_only_without_another() -> None:
    cluster = Cluster()
    for node, domain in ((1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c")):
        cluster.start(node, domain=domain)
    cluster.create("orders", [1, 3], [1, 5], [5, 3])
    wide = cluster.create("wide", [1, 3, 5])

    plan = plan_moves(cluster.state, moves_max=100, leaving=[5])

    found = {each.partition: each.replicas for each in plan if each.topic_id != wide}
    assert set(found[1] or ()) in ({1, 3}, {1, 4}), "not into the domain of broker 1"
    assert set(found[2] or ()) in ({1, 3}, {2, 3})
    (crowded,) = (each.replicas for each in plan if each.topic_id == wide)
    assert set(crowded or ()) < {1, 2, 3, 4}, "there is no third domain"


def test_a_replacement_gets_the_replicas_of_a_lost_broker_in_the_same_positions() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2], [3, 1], [2, 3], [3, 2])
    cluster.fence(3)
    cluster.start(4)

    plan = plan_replacement(cluster.state, 3, 4)

    assert {each.partition: each.replicas for each in plan} == {1: [4, 1], 2: [2, 4], 3: [4, 2]}


def test_if_the_replacement_has_a_replica_already_a_third_broker_gets_it() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("orders", [3, 4], [1, 3])
    cluster.create("wide", [1, 2, 3, 4])
    cluster.fence(3)

    plan = plan_replacement(cluster.state, 3, 4)

    found = {each.partition: each.replicas for each in plan}
    assert len(plan) == 2, "the wide partition has no other broker left"
    assert found[0] in ([1, 4], [2, 4])
    assert found[1] == [1, 4]
