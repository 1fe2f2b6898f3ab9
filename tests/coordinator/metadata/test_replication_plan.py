"""The plan for another replication factor: spread over racks and loads, and nothing is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coordinator.metadata.clusters import Cluster
from tests.coordinator.metadata.queues import creation, make
from tidelog.coordinator.metadata.commands import (
    AddPartitions,
    DrainBroker,
    ElectLeaders,
    PartitionAnswers,
    Reassignment,
    ReassignReplicas,
)
from tidelog.coordinator.metadata.replication_plan import plan_replication_factor
from tidelog.wire.errors import InvalidTopicError

JOURNAL = "queue@q"


def plan(cluster: Cluster, factor: int, *names: str) -> dict[tuple[str, int], list[int]]:
    """Return the planned replicas by topic and partition; without names for all topics."""
    return {
        (topic.name, move.partition): list(move.replicas or ())
        for move in moves(cluster, factor, *names)
        if (topic := cluster.state.catalog.topic_by_id(move.topic_id)) is not None
    }


def moves(cluster: Cluster, factor: int, *names: str) -> list[Reassignment]:
    topics = [cluster.state.catalog.topic(name) for name in names] or None
    return plan_replication_factor(cluster.state, factor, topics)


def alter(cluster: Cluster, factor: int, *names: str) -> None:
    """Submit a plan, each move of which the cluster accepts."""
    command = ReassignReplicas(moves(cluster, factor, *names))
    answers = cluster.answer(PartitionAnswers, command).answers
    assert [each.error for each in answers if each.error is not None] == []


def loads(cluster: Cluster) -> dict[int, int]:
    index = cluster.state.index
    return {node: index.load(node).replica_count for node in sorted(cluster.state.brokers)}


def test_a_topic_of_one_broker_gets_replicas_on_the_two_that_join() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1], [1])
    cluster.start(2)
    cluster.start(3)

    found = plan(cluster, 3, "orders")

    assert {number: set(replicas) for (_, number), replicas in found.items()} == {
        0: {1, 2, 3},
        1: {1, 2, 3},
    }
    assert {replicas[0] for replicas in found.values()} == {1}, "the preferred leader stays"
    assert {replicas[1] for replicas in found.values()} == {2, 3}, "one successor for each"


def test_the_journal_of_a_queue_gets_the_replicas_of_its_topic_and_becomes_in_sync() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    make(cluster, creation(cluster, "q", "orders"))
    cluster.start(2)
    cluster.start(3)

    alter(cluster, 3, "orders")
    assert cluster.partition(JOURNAL).adding_replicas == cluster.partition().adding_replicas
    for name in ("orders", JOURNAL):
        cluster.in_sync(1, 2, 3, name=name)

    for name in ("orders", JOURNAL):
        assert cluster.partition(name).replication_factor == 3
        assert not cluster.partition(name).is_reassigning
    assert moves(cluster, 3, "orders") == []


def test_new_replicas_go_to_other_racks_and_then_to_the_brokers_with_the_lowest_load() -> None:
    cluster = Cluster()
    for node, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c")):
        cluster.start(node, domain=rack)
    cluster.create("others", [3], [3])
    cluster.create("orders", [1])

    assert set(plan(cluster, 3, "orders")["orders", 0]) == {1, 4, 5}


def test_a_journal_counts_as_load() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("books", [1])
    make(cluster, creation(cluster, "q", "books"))
    cluster.create("others", [1], [1])

    found = plan(cluster, 2)

    by_node = {node: [key for key, nodes in found.items() if node in nodes] for node in (2, 3)}
    (heavy,) = (node for node in (2, 3) if ("books", 0) in by_node[node])
    assert by_node[heavy] == [("books", 0)], "a replica of it comes with one of the journal"


def test_drained_and_fenced_brokers_get_no_replicas_and_keep_their_own() -> None:
    cluster = Cluster(1, 2, 3, 4, 5)
    cluster.create("orders", [1, 2])
    cluster.do(DrainBroker(2))
    cluster.do(DrainBroker(3))
    cluster.fence(4)

    assert plan(cluster, 3, "orders") == {("orders", 0): [1, 2, 5]}


def test_more_replicas_than_brokers_are_refused_with_both_numbers() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("orders", [1])
    cluster.do(DrainBroker(3))
    cluster.fence(4)

    with pytest.raises(InvalidTopicError, match=r"'orders' cannot have 3 replicas: .* is 2; start"):
        moves(cluster, 3, "orders")
    with pytest.raises(InvalidTopicError, match="cannot have 3 replicas"):
        moves(cluster, 3)


@pytest.mark.parametrize("factor", [0, 16])
def test_an_impossible_replication_factor_is_refused(factor: int) -> None:
    with pytest.raises(InvalidTopicError, match=f"{factor} replicas are not possible"):
        moves(Cluster(1), factor)


def test_fewer_replicas_than_min_insync_replicas_are_refused_with_the_remedy() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], overrides={"min_insync_replicas": "2"})

    with pytest.raises(InvalidTopicError, match=r"of topic 'orders' is 2; .*=1"):
        moves(cluster, 1, "orders")


def test_for_all_topics_those_with_more_replicas_keep_them() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("wide", [1, 2, 3])
    cluster.create("narrow", [3])

    assert list(plan(cluster, 2)) == [("narrow", 0)]
    assert list(plan(cluster, 2, "wide")) == [("wide", 0)]


def test_replicas_out_of_sync_are_removed_first() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("others", [3], [3])
    cluster.create("orders", [1, 2, 3])
    cluster.in_sync(1, 3)

    assert plan(cluster, 2, "orders") == {("orders", 0): [1, 3]}, "although broker 3 has most"


def test_the_replica_of_the_broker_with_the_highest_load_is_removed() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("others", [2], [2])
    cluster.create("orders", [1, 2, 3])

    assert plan(cluster, 2, "orders") == {("orders", 0): [1, 3]}


def test_a_second_replica_in_a_rack_is_removed_before_a_heavier_one_elsewhere() -> None:
    cluster = Cluster()
    for node, rack in ((1, "a"), (2, "b"), (3, "a")):
        cluster.start(node, domain=rack)
    cluster.create("others", [2], [2])
    cluster.create("orders", [1, 2, 3])

    assert plan(cluster, 2, "orders") == {("orders", 0): [1, 2]}


def test_the_leader_stays_also_if_it_is_not_the_preferred_one() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.fence(1)
    cluster.start(1)
    assert cluster.partition().leader == 2

    alter(cluster, 1, "orders")

    assert cluster.partition().replicas == (2,)
    assert cluster.partition().leader == 2


def test_a_replica_stays_in_whose_journal_all_records_are() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("others", [3], [3])
    cluster.create("orders", [1, 2, 3])
    make(cluster, creation(cluster, "q", "orders"))
    cluster.in_sync(1, 3, name=JOURNAL)

    assert plan(cluster, 2, "orders") == {("orders", 0): [1, 3]}


def test_the_leaders_of_topic_and_journal_stay() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 3, 2])
    make(cluster, creation(cluster, "q", "orders"))
    cluster.in_sync(1, 2)
    cluster.in_sync(1, 2, name=JOURNAL)
    cluster.fence(1)
    cluster.start(1)
    for name in ("orders", JOURNAL):
        cluster.in_sync(1, 2, 3, name=name)
    cluster.do(ElectLeaders([(topic_id, 0)]))
    assert (cluster.partition().leader, cluster.partition(JOURNAL).leader) == (1, 2)

    assert plan(cluster, 2, "orders") == {("orders", 0): [1, 2]}
    cluster.in_sync(2, name=JOURNAL)
    assert plan(cluster, 1, "orders") == {("orders", 0): [1]}, "the leader of the topic"


def test_an_eligible_replica_stays_rather_than_one_that_lacks_records() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 3, 2])
    cluster.fence(3)
    cluster.fence(2)
    assert cluster.partition().eligible_leader_replicas == (2,)

    assert plan(cluster, 2, "orders") == {("orders", 0): [1, 2]}


def test_replicas_on_drained_and_then_on_fenced_brokers_are_removed_before_others() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("drained", [1, 2, 3])
    cluster.create("fenced", [1, 2, 3], overrides={"min_insync_replicas": "1"})
    cluster.do(DrainBroker(2))
    assert plan(cluster, 2, "drained") == {("drained", 0): [1, 3]}
    cluster.do(DrainBroker(2, is_drained=False))
    cluster.in_sync(1, name="fenced")
    cluster.fence(2)

    assert plan(cluster, 2, "fenced") == {("fenced", 0): [1, 3]}


def test_a_plan_under_way_is_planned_again_as_it_is() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1])
    alter(cluster, 3, "orders")
    under_way = cluster.partition().target_replicas

    assert plan(cluster, 3, "orders") == {("orders", 0): list(under_way)}
    alter(cluster, 3, "orders")
    assert cluster.partition().target_replicas == under_way


def test_another_move_is_not_part_of_the_plan() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1])
    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [2])]))

    assert plan(cluster, 1) == {}
    assert plan(cluster, 2) == {("orders", 0): [2, 3]}


def test_new_replicas_that_are_not_in_sync_yet_are_given_up_first() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1])
    alter(cluster, 3, "orders")

    alter(cluster, 1, "orders")

    assert cluster.partition().replicas == (1,)
    assert not cluster.partition().is_reassigning


def test_partitions_that_are_added_meanwhile_get_as_many_replicas() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1])
    alter(cluster, 3, "orders")

    cluster.do(AddPartitions("orders", 2))

    assert cluster.partition(number=1).replication_factor == 3


nodes_of_partitions = st.lists(
    st.sets(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=8
)


@settings(max_examples=60)
@given(nodes_of_partitions, st.integers(1, 4), st.data())
def test_any_partition_gets_as_many_replicas_and_keeps_what_it_needs(
    placed: list[set[int]], factor: int, data: st.DataObject
) -> None:
    cluster = Cluster()
    rack = {node: f"rack-{node % 3}" for node in range(1, 7)}
    for node, domain in rack.items():
        cluster.start(node, domain=domain)
    for number, nodes in enumerate(placed):
        name = f"topic-{number}"
        cluster.create(name, data.draw(st.permutations(sorted(nodes))))
        leader = cluster.partition(name).leader
        assert leader is not None
        in_sync = data.draw(st.sets(st.sampled_from(sorted(nodes)))) | {leader}
        cluster.in_sync(*in_sync, name=name)
    cluster.do(DrainBroker(drained := data.draw(st.integers(1, 6))))
    names = [f"topic-{number}" for number in range(len(placed))]
    before = {name: cluster.partition(name) for name in names}

    found = plan(cluster, factor, *names)

    assert set(found) == {(name, 0) for name in names if len(before[name].replicas) != factor}
    for (name, _), replicas in found.items():
        old = before[name]
        assert len(set(replicas)) == len(replicas) == factor
        assert old.leader in replicas
        kept = [node for node in old.replicas if node in replicas]
        assert replicas[: len(kept)] == kept, "the order of those that stay"
        added = set(replicas) - set(old.replicas)
        gone = set(old.replicas) - set(replicas)
        assert not (added and gone), "a replica is copied without need"
        assert drained not in added
        if gone & set(old.in_sync_replicas):
            assert set(replicas) <= set(old.in_sync_replicas), "one out of sync stays instead"
        racks_before = {rack[node] for node in old.replicas}
        others = {rack[node] for node in rack if node != drained} - racks_before
        racks_after = {rack[node] for node in replicas}
        if added:
            assert len(racks_after) == len(racks_before) + min(len(added), len(others))
    alter(cluster, factor, *names)
    assert {len(cluster.partition(name).target_replicas) for name in names} == {factor}


@settings(max_examples=40)
@given(st.integers(2, 6), st.integers(1, 12), st.data())
def test_new_replicas_make_the_loads_of_brokers_equal(
    broker_count: int, partition_count: int, data: st.DataObject
) -> None:
    cluster = Cluster(*range(1, broker_count + 1))
    factor = data.draw(st.integers(2, broker_count))
    cluster.create("orders", *([1 + each % broker_count] for each in range(partition_count)))

    alter(cluster, factor, "orders")

    assert max(loads(cluster).values()) - min(loads(cluster).values()) <= 2
