"""The colocation of a topic's replicas with those of its queues' journals."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tests.coordinator.metadata.queues import creation, make
from tidelog.coordinator.metadata.commands import (
    DeleteQueue,
    DrainBroker,
    ElectLeaders,
    PartitionAnswers,
    Reassignment,
    ReassignReplicas,
)
from tidelog.coordinator.metadata.preferred_leaders import PreferredLeaders
from tidelog.coordinator.metadata.rebalance_plan import plan_moves, plan_replacement
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.wire.errors import ErrorCode

JOURNAL = "queue@q"


def with_queue(*brokers: int, replicas: list[int]) -> Cluster:
    cluster = Cluster(*brokers)
    cluster.create("orders", replicas)
    make(cluster, creation(cluster, "q", "orders"))
    return cluster


def reassign(cluster: Cluster, replicas: list[int] | None, *, topic: str = "orders") -> int | None:
    """Reassign a partition; return the error code, if any."""
    (found,) = (each for each in cluster.state.catalog.topics if each.name == topic)
    command = ReassignReplicas([Reassignment(found.topic_id, 0, replicas)])
    (answer,) = cluster.answer(PartitionAnswers, command).answers
    return None if answer.error is None else answer.error.code


def places(cluster: Cluster) -> set[tuple[int, ...]]:
    return {cluster.partition(name).replicas for name in ("orders", JOURNAL)}


def test_a_journal_moves_with_its_topic_in_one_command() -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2])

    assert reassign(cluster, [3, 2]) is None

    assert places(cluster) == {(3, 2, 1)}
    assert cluster.partition(JOURNAL).adding_replicas == (3,)


@pytest.mark.parametrize("first", ["orders", JOURNAL])
def test_a_reassignment_is_complete_when_topic_and_journal_are_in_sync(first: str) -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2])
    second = JOURNAL if first == "orders" else "orders"
    reassign(cluster, [3, 2])

    cluster.in_sync(1, 2, 3, name=first)
    assert cluster.partition(first).is_reassigning, "the other one is not ready"
    cluster.in_sync(1, 2, 3, name=second)

    assert places(cluster) == {(3, 2)}
    assert not cluster.partition("orders").is_reassigning
    assert {cluster.partition(name).leader for name in ("orders", JOURNAL)} == {3}


def test_a_cancelled_reassignment_covers_topic_and_journal() -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2])
    reassign(cluster, [3, 2])
    cluster.in_sync(1, 2, 3, name=JOURNAL)

    assert reassign(cluster, None) is None

    assert places(cluster) == {(2, 1)}
    assert cluster.partition(JOURNAL).in_sync_replicas == (2, 1)


def test_a_new_replica_order_holds_for_topic_and_journal_at_once() -> None:
    cluster = with_queue(1, 2, replicas=[1, 2])

    assert reassign(cluster, [2, 1]) is None

    assert places(cluster) == {(2, 1)}


def test_a_journal_is_not_moved_alone() -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2])

    assert reassign(cluster, [3, 2], topic=JOURNAL) == ErrorCode.INVALID_TOPIC

    assert places(cluster) == {(1, 2)}


def test_a_reassignment_is_not_cancelled_if_the_journal_would_lose_its_copies() -> None:
    cluster = with_queue(1, 2, 3, 4, replicas=[1, 2, 3])
    reassign(cluster, [4, 2, 3])
    cluster.in_sync(4, 1, name=JOURNAL)

    assert reassign(cluster, None) == ErrorCode.NOT_ENOUGH_REPLICAS

    assert places(cluster) == {(4, 2, 3, 1)}


def test_a_queue_created_during_a_reassignment_moves_with_its_topic() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2])
    reassign(cluster, [3, 2])

    make(cluster, creation(cluster, "q", "orders"))
    assert places(cluster) == {(3, 2, 1)}
    assert cluster.partition(JOURNAL).leader == 1, "the messages are there"
    cluster.in_sync(1, 2, 3, name="orders")

    assert places(cluster) == {(3, 2)}


def test_a_deleted_queue_does_not_hold_up_the_reassignment_of_its_topic() -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2])
    make(cluster, creation(cluster, "r", "orders"))
    reassign(cluster, [3, 2])
    cluster.in_sync(1, 2, 3, name="orders")
    cluster.in_sync(1, 2, 3, name=JOURNAL)
    assert cluster.partition("orders").is_reassigning

    cluster.do(DeleteQueue("r"))

    assert places(cluster) == {(3, 2)}


def test_a_journal_leader_is_in_the_isr_of_the_source_partition() -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2, 3])
    cluster.in_sync(1, 3, name="orders")

    cluster.fence(1)

    assert cluster.partition("orders").leader == 3
    assert cluster.partition(JOURNAL).in_sync_replicas == (2, 3)
    assert cluster.partition(JOURNAL).leader == 3


def test_a_journal_gets_its_preferred_leader_when_the_messages_are_in_sync() -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2, 3])
    cluster.start(1)
    cluster.in_sync(1, 2, 3, name=JOURNAL)
    journal_id = cluster.state.catalog.journal("q").topic_id
    preferred = PreferredLeaders(now_ms=0, interval_ms=1000)

    assert preferred.due(cluster.state, now_ms=1000) is None
    command = ElectLeaders([(journal_id, 0)])
    (answer,) = cluster.answer(PartitionAnswers, command).answers
    assert answer.error is not None
    cluster.in_sync(1, 2, 3, name="orders")
    due = preferred.due(cluster.state, now_ms=2000)

    assert due is not None
    assert len(due.partitions) == 2
    cluster.do(due)
    assert {cluster.partition(name).leader for name in ("orders", JOURNAL)} == {1}


def ready(cluster: Cluster) -> None:
    """Put all replicas into their ISRs."""
    for topic in cluster.state.catalog.topics:
        for number in range(topic.partition_count):
            partition = cluster.partition(topic.name, number)
            if partition.is_reassigning:
                live = [node for node in partition.replicas if cluster.broker(node).can_lead]
                cluster.in_sync(*live, name=topic.name, number=number)


def test_a_broker_is_drained_of_journals_by_moving_their_topics() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2], [2, 1], [1, 2])
    for name in ("q", "r"):
        make(cluster, creation(cluster, name, "orders"))
    cluster.do(DrainBroker(1))

    plan = plan_moves(cluster.state, moves_max=1000)
    assert {move.topic_id for move in plan} == {topic_id}
    cluster.do(ReassignReplicas(plan))
    ready(cluster)

    assert cluster.state.index.load(1).replica_count == 0


def test_a_replacement_gets_the_journals_too() -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2])
    cluster.fence(1)

    plan = plan_replacement(cluster.state, 1, 3)
    cluster.do(ReassignReplicas(plan))
    ready(cluster)

    assert [move.replicas for move in plan] == [[3, 2]]
    assert places(cluster) == {(3, 2)}


def test_a_topic_counts_with_its_journals_in_the_rebalance_plan() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1])
    for name in ("q", "r", "s"):
        make(cluster, creation(cluster, name, "orders"))

    assert plan_moves(cluster.state, moves_max=1000) == [], "a move would only reverse it"
    cluster.create("plain", [1], [1])
    cluster.do(ReassignReplicas(plan_moves(cluster.state, moves_max=1000)))
    ready(cluster)

    loads = [cluster.state.index.load(node).replica_count for node in (1, 2)]
    assert sorted(loads) == [2, 4]


def test_preferred_leaders_are_balanced_with_journals() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2], [1, 2])
    make(cluster, creation(cluster, "q", "orders"))

    cluster.do(ReassignReplicas(plan_moves(cluster.state, moves_max=0)))

    assert [cluster.state.index.load(node).preferred_count for node in (1, 2)] == [2, 2]


def test_a_partition_without_queues_moves_alone() -> None:
    cluster = with_queue(1, 2, 3, replicas=[1, 2])
    cluster.create("other", [1, 2])

    reassign(cluster, [3, 2], topic="other")
    cluster.in_sync(1, 2, 3, name="other")

    assert cluster.partition("other") == PartitionRegistration(
        (3, 2), (3, 2), leader=3, leader_epoch=1, partition_epoch=2
    )
    assert places(cluster) == {(1, 2)}
