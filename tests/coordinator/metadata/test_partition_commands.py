"""ISR changes by leaders; elections and reassignments by administrators."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    ElectLeaders,
    InSyncReplica,
    PartitionAnswer,
    PartitionAnswers,
    Reassignment,
    ReassignReplicas,
)
from tidelog.coordinator.metadata.records import DataLossAccepted
from tidelog.wire.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    NotControllerError,
    NotEnoughReplicasError,
    NotLeaderError,
    StaleBrokerEpochError,
    StalePartitionEpochError,
    TidelogError,
    UnknownPartitionError,
    UnknownTopicIdError,
    from_wire,
)


def cluster_of(*replicas: int, brokers: Sequence[int] = (1, 2, 3)) -> Cluster:
    cluster = Cluster(*brokers)
    cluster.create("orders", list(replicas))
    return cluster


def orders(cluster: Cluster) -> bytes:
    return cluster.state.catalog.topic("orders").topic_id


def refused(answer: PartitionAnswer, error: type[TidelogError], reason: str) -> None:
    assert answer.error is not None
    assert type(from_wire(answer.error)) is error
    assert reason in answer.error.message


def elect(cluster: Cluster, *, accept_data_loss: bool = False) -> PartitionAnswer:
    command = ElectLeaders([(orders(cluster), 0)], accept_data_loss)
    return cluster.answer(PartitionAnswers, command).answers[0]


def reassign(cluster: Cluster, replicas: list[int] | None) -> PartitionAnswer:
    command = ReassignReplicas([Reassignment(orders(cluster), 0, replicas)])
    return cluster.answer(PartitionAnswers, command).answers[0]


def test_a_leader_removes_a_follower_from_the_isr_and_adds_it_again() -> None:
    cluster = cluster_of(1, 2, 3)

    assert cluster.in_sync(1, 3).in_sync_replicas == (1, 3)
    partition = cluster.in_sync(3, 2, 1)

    assert partition.in_sync_replicas == (1, 2, 3), "in the order of the replicas"
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 2)


def test_a_follower_removed_below_min_insync_replicas_stays_eligible() -> None:
    cluster = cluster_of(1, 2, 3)

    assert cluster.in_sync(1, 2).eligible_leader_replicas == ()
    assert cluster.in_sync(1).eligible_leader_replicas == (2,)
    assert cluster.in_sync(1, 3).eligible_leader_replicas == ()


def test_a_repeated_isr_change_succeeds() -> None:
    cluster = cluster_of(1, 2, 3)
    change = cluster.change(1, 2)
    cluster.ask(1, change)

    (answer,) = cluster.ask(1, change)

    assert answer.error is None
    assert answer.partition is not None
    assert answer.partition.partition_epoch == 1


@pytest.mark.invariant("I39")
def test_a_request_for_the_current_isr_fences_earlier_requests() -> None:
    """I39: a leader that lost an answer can make sure that the request has no effect any more."""
    cluster = cluster_of(1, 2, 3)
    cluster.in_sync(1, 2)
    lost = cluster.change(1, 2, 3)
    before = cluster.partition()

    after = cluster.in_sync(1, 2)
    assert after == replace(before, partition_epoch=before.partition_epoch + 1)

    (answer,) = cluster.ask(1, lost)
    refused(answer, StalePartitionEpochError, "its partition epoch is 2, not 1")


@pytest.mark.invariant("I44")
def test_an_isr_change_with_a_stale_partition_epoch_is_refused() -> None:
    """I44."""
    cluster = cluster_of(1, 2, 3)
    change = cluster.change(1, 2)
    cluster.fence(3)

    (answer,) = cluster.ask(1, replace(change, in_sync_replicas=change.in_sync_replicas[:1]))

    refused(answer, StalePartitionEpochError, "its partition epoch is 1, not 0")
    assert answer.partition == cluster.partition(), "the leader gets the current registration"


@pytest.mark.invariant("I44")
def test_an_isr_change_of_a_deposed_leader_is_refused() -> None:
    """I44."""
    cluster = cluster_of(1, 2, 3)
    change = cluster.change(1, 2)
    cluster.fence(1)
    cluster.unfence(1)

    (answer,) = cluster.ask(1, change)

    refused(answer, FencedLeaderEpochError, "has leader epoch 1, later than 0")


@pytest.mark.invariant("I44")
def test_a_leader_with_newer_epochs_is_sent_to_the_controller() -> None:
    """I44."""
    cluster = cluster_of(1, 2, 3)
    change = cluster.change(1, 2)

    answers = cluster.ask(1, replace(change, leader_epoch=1), replace(change, partition_epoch=1))

    for answer in answers:
        refused(answer, NotControllerError, "send the request to the current controller")


def test_an_isr_change_of_a_follower_is_refused() -> None:
    cluster = cluster_of(1, 2, 3)

    (answer,) = cluster.ask(2, cluster.change(2))

    refused(answer, NotLeaderError, "broker 2 does not lead partition 0")


def test_an_isr_change_with_a_stale_broker_epoch_is_refused() -> None:
    cluster = cluster_of(1, 2, 3)
    change, epoch = cluster.change(1), cluster.broker(1).broker_epoch
    cluster.start(1)

    with pytest.raises(StaleBrokerEpochError):
        cluster.do(AlterPartitions(1, epoch, [change]))


@pytest.mark.invariant("I42")
def test_a_late_isr_change_does_not_add_a_fenced_broker() -> None:
    """I42, KIP-841."""
    cluster = cluster_of(1, 2, 3)
    cluster.fence(3)

    (answer,) = cluster.ask(1, cluster.change(1, 2, 3))

    refused(answer, IneligibleReplicaError, "broker 3 is fenced")


@pytest.mark.invariant("I42")
def test_a_late_isr_change_does_not_add_a_broker_with_an_empty_disk() -> None:
    """I42, KIP-903: 3 catches up, its leader asks, 3 loses its disk; then the request arrives."""
    cluster = cluster_of(1, 2, 3)
    cluster.in_sync(1, 2)
    late = cluster.change(1, 2, 3)
    cluster.fence(3)
    cluster.register(3, disk_id="empty")
    cluster.unfence(3)

    (answer,) = cluster.ask(1, late)

    refused(answer, StalePartitionEpochError, "partition 0 was changed")
    epoch = cluster.partition().partition_epoch
    (answer,) = cluster.ask(1, replace(late, partition_epoch=epoch))
    refused(answer, IneligibleReplicaError, "broker 3 has restarted: its broker epoch is 4, not 3")


@pytest.mark.invariant("I42")
def test_a_broker_in_shutdown_does_not_join_the_isr() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.shut_down(3)

    (answer,) = cluster.ask(1, cluster.change(1, 2, 3))

    refused(answer, IneligibleReplicaError, "broker 3 is shutting down")


@pytest.mark.invariant("I44")
@pytest.mark.parametrize(
    ("in_sync", "reason"),
    [
        ((2, 3), "the leader, broker 1, must be in sync with itself"),
        ((1, 2, 2), "brokers stand twice"),
        ((1, 4), "broker 4 has no replica"),
    ],
)
def test_an_invalid_isr_is_refused(in_sync: tuple[int, ...], reason: str) -> None:
    cluster = cluster_of(1, 2, 3, brokers=(1, 2, 3, 4))

    (answer,) = cluster.ask(1, cluster.change(*in_sync))

    refused(answer, InvalidRequestError, reason)


def test_an_unknown_broker_does_not_join_the_isr() -> None:
    cluster = cluster_of(1, 2, 3)
    change = replace(cluster.change(1), in_sync_replicas=[InSyncReplica(1, 1), InSyncReplica(9, 1)])

    (answer,) = cluster.ask(1, change)

    refused(answer, InvalidRequestError, "broker 9 has no replica")


def test_a_refused_partition_does_not_fail_the_others() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2, 3], [1, 2, 3])
    good = cluster.change(1, 2, number=1)

    answers = cluster.ask(
        1,
        replace(good, topic_id=b"?" * 16),
        replace(good, partition=7),
        replace(good, partition=0, partition_epoch=5),
        good,
    )

    refused(answers[0], UnknownTopicIdError, "no topic has the id 3f3f")
    refused(answers[1], UnknownPartitionError, "no partition 7; topic 'orders' has partitions 0 to")
    refused(answers[2], NotControllerError, "current controller")
    assert answers[3].error is None
    assert [(answer.topic_id, answer.number) for answer in answers][3] == (topic_id, 1)
    assert cluster.partition(number=1).in_sync_replicas == (1, 2)


def test_two_isr_changes_of_one_partition_in_one_command_are_applied_in_order() -> None:
    cluster = cluster_of(1, 2, 3)
    first = cluster.change(1, 2)

    answers = cluster.ask(1, first, replace(cluster.change(1), partition_epoch=1))

    assert [answer.error for answer in answers] == [None, None]
    assert cluster.partition().in_sync_replicas == (1,)
    assert cluster.partition().partition_epoch == 1, "one record raises the epoch once"


def test_the_preferred_leader_leads_again_when_it_is_in_the_isr() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.start(1)
    refused(
        elect(cluster), LeaderNotAvailableError, "broker 1, the preferred leader of partition 0"
    )
    assert cluster.partition().leader == 2
    cluster.in_sync(1, 2, 3)

    assert elect(cluster).error is None

    assert cluster.partition().leader == 1
    assert cluster.partition().leader_epoch == 2
    assert elect(cluster).error is None, "a repetition changes nothing"
    assert cluster.partition().leader_epoch == 2


def test_a_loss_of_data_must_be_accepted_and_is_recorded() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.fence(3, 2, 1)
    cluster.start(3)
    refused(elect(cluster), LeaderNotAvailableError, "broker 1")
    assert cluster.partition().leader is None

    assert elect(cluster, accept_data_loss=True).error is None

    partition = cluster.partition()
    assert (partition.leader, partition.in_sync_replicas) == (3, (3,))
    assert partition.eligible_leader_replicas == ()
    assert partition.data_loss_epoch == partition.leader_epoch == 2
    loss = DataLossAccepted(orders(cluster), 0, 3, 2, 1, (1, 2), NOW_MS)
    assert list(cluster.state.data_losses) == [loss]


def test_an_unclean_election_prefers_the_last_known_leader() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], overrides={"durability": "replicated"})
    cluster.fence(1, 3)
    cluster.start(3, unclean=True)
    cluster.start(2, unclean=True)
    cluster.start(1)
    assert cluster.partition().leader is None

    elect(cluster, accept_data_loss=True)

    assert cluster.partition().leader == 2


def test_a_data_loss_is_accepted_for_the_leader_epoch_seen_by_the_administrator() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.fence(3, 2, 1)
    cluster.start(3)
    command = ElectLeaders([(orders(cluster), 0)], True, [cluster.partition().leader_epoch])
    (done,) = cluster.answer(PartitionAnswers, command).answers
    assert done.error is None
    (again,) = cluster.answer(PartitionAnswers, command).answers
    assert again.error is None, "there is a leader"
    cluster.fence(3)
    cluster.start(1)
    before = cluster.partition()
    assert (before.leader, before.eligible_leader_replicas) == (None, (3,))

    (late,) = cluster.answer(PartitionAnswers, command).answers

    refused(late, StalePartitionEpochError, "check the partition again")
    assert cluster.partition() == before
    checked = ElectLeaders([(orders(cluster), 0)], True, [before.leader_epoch])
    (done,) = cluster.answer(PartitionAnswers, checked).answers
    assert done.error is None
    assert cluster.partition().leader == 1


def test_an_unclean_election_is_clean_if_a_replica_has_all_records() -> None:
    cluster = cluster_of(1, 2, 3)

    assert elect(cluster, accept_data_loss=True).error is None

    assert cluster.partition().data_loss_epoch is None
    assert cluster.partition().partition_epoch == 0
    assert list(cluster.state.data_losses) == []


@pytest.mark.invariant("I60")
def test_an_unclean_election_without_a_live_replica_is_refused() -> None:
    cluster = cluster_of(1, 2)
    cluster.fence(1, 2)

    answer = elect(cluster, accept_data_loss=True)

    refused(answer, LeaderNotAvailableError, "no replica of partition 0 is alive; it has replicas")


@pytest.mark.invariant("I61")
def test_a_reassignment_removes_the_old_replica_when_the_new_one_is_in_sync() -> None:
    """I61, KIP-455."""
    cluster = cluster_of(1, 2, 3, brokers=(1, 2, 3, 4))

    reassign(cluster, [4, 2, 3])
    partition = cluster.partition()
    assert partition.replicas == (4, 2, 3, 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((4,), (1,))
    assert (partition.leader, partition.in_sync_replicas) == (1, (2, 3, 1))

    partition = cluster.in_sync(1, 2, 3, 4)
    assert partition.replicas == partition.in_sync_replicas == (4, 2, 3)
    assert not partition.is_reassigning
    assert (partition.leader, partition.leader_epoch) == (4, 1)


@pytest.mark.invariant("I61")
def test_the_leader_epoch_rises_when_a_replica_is_removed_though_the_leader_stays() -> None:
    """I61: later requests of the removed replica are fenced."""
    cluster = cluster_of(1, 2, 3)

    reassign(cluster, [1, 2])

    assert cluster.partition().replicas == (1, 2)
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 1)


def test_adding_replicas_do_not_raise_the_minimum_during_a_reassignment() -> None:
    cluster = cluster_of(1)

    reassign(cluster, [1, 2, 3])
    assert cluster.partition().replication_factor == 1

    cluster.in_sync(1, 2, 3)
    assert cluster.partition().replication_factor == 3


def test_a_repeated_reassignment_changes_nothing() -> None:
    cluster = cluster_of(1, 2, brokers=(1, 2, 3))
    command = ReassignReplicas([Reassignment(orders(cluster), 0, [3, 2])])
    cluster.do(command)
    assert cluster.handle(command).records == []
    cluster.in_sync(1, 2, 3)
    assert cluster.handle(command).records == []


def test_a_cancelled_reassignment_restores_the_replicas() -> None:
    cluster = cluster_of(1, 2, 3, brokers=(1, 2, 3, 4, 5))
    reassign(cluster, [4, 5, 3])
    cluster.in_sync(1, 2, 3, 4)

    assert reassign(cluster, None).error is None

    partition = cluster.partition()
    assert set(partition.replicas) == {1, 2, 3}
    assert (partition.leader, set(partition.in_sync_replicas)) == (1, {1, 2, 3})
    assert partition.leader_epoch == 1
    assert reassign(cluster, None).error is None, "there is none to cancel any more"


@pytest.mark.invariant("I61")
def test_a_reassignment_is_not_cancelled_when_the_new_replicas_have_the_only_copies() -> None:
    cluster = cluster_of(1, 2, 3, brokers=(1, 2, 3, 4, 5))
    reassign(cluster, [4, 5, 3])
    cluster.in_sync(1, 4)
    cluster.fence(1)
    before = cluster.partition()

    refused(reassign(cluster, None), NotEnoughReplicasError, "would have 1 replicas with all")
    assert cluster.partition() == before


def test_a_reassignment_replaces_an_earlier_one() -> None:
    cluster = cluster_of(1, 2, brokers=(1, 2, 3, 4))
    reassign(cluster, [3, 2])

    assert reassign(cluster, [4, 2]).error is None

    partition = cluster.partition()
    assert partition.replicas == (4, 2, 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((4,), (1,))


def test_a_new_order_of_the_same_replicas_completes_at_once() -> None:
    cluster = cluster_of(1, 2, 3)

    reassign(cluster, [3, 2, 1])

    partition = cluster.partition()
    assert partition.replicas == partition.in_sync_replicas == (3, 2, 1)
    assert (partition.leader, partition.leader_epoch) == (1, 0), "only a request moves the leader"


def test_a_reassignment_to_one_eligible_replica_is_complete_as_soon_as_that_one_leads() -> None:
    """Found by a random run."""
    cluster = cluster_of(1, 2, 3)
    cluster.fence(3, 2)
    reassign(cluster, [2])
    cluster.fence(1)
    assert cluster.partition().is_reassigning

    cluster.start(2)

    assert cluster.partition().replicas == cluster.partition().in_sync_replicas == (2,)


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        ([], "must have at least one replica"),
        ([2, 2], "two replicas on one broker"),
        ([1, 9], "broker 9: there are brokers 1, 2, 3"),
        ([1], "1 replicas are too few: min_insync_replicas of topic 'orders' is 2"),
    ],
)
def test_an_invalid_reassignment_is_refused(replicas: list[int], reason: str) -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], overrides={"min_insync_replicas": "2"})

    refused(reassign(cluster, replicas), InvalidTopicError, reason)


def test_a_reassignment_above_the_maximum_replication_factor_is_refused() -> None:
    cluster = cluster_of(1, brokers=range(1, 18))

    answer = reassign(cluster, list(range(1, 17)))

    refused(answer, InvalidTopicError, "16 replicas are too many, 15 are the most")
