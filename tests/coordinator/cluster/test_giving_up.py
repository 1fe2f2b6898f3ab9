"""A broker gives up replicas for which it cannot vouch: damaged ones, and those on a full disk."""

from collections.abc import Sequence

import pytest

from coordinator.cluster.commands import (
    GivenUpReplica,
    GiveUpReplicas,
    PartitionAnswer,
    PartitionAnswers,
)
from coordinator.cluster.giving_up import should_be_given_up
from coordinator.cluster.records import Partition
from tests.coordinator.cluster.clusters import Cluster
from wire.errors import StaleBrokerEpochError, UnknownPartitionError, from_wire


def cluster_of(*replicas: int, brokers: Sequence[int] = (1, 2, 3)) -> Cluster:
    cluster = Cluster(*brokers)
    cluster.create("orders", list(replicas))
    return cluster


def orders(cluster: Cluster) -> bytes:
    return cluster.state.catalog.topic("orders").topic_id


def give_up(cluster: Cluster, node_id: int, *, number: int = 0, full: bool = False) -> Partition:
    answer = answer_to(cluster, node_id, number=number, full=full)
    assert answer.error is None
    assert answer.partition == cluster.partition(number=number)
    return cluster.partition(number=number)


def answer_to(
    cluster: Cluster, node_id: int, *, number: int = 0, full: bool = False
) -> PartitionAnswer:
    replica = GivenUpReplica(orders(cluster), number, may_lack_records=not full)
    command = GiveUpReplicas(node_id, cluster.broker(node_id).broker_epoch, [replica])
    return cluster.answer(PartitionAnswers, command).answers[0]


def test_a_damaged_follower_is_in_sync_no_more() -> None:
    partition = give_up(cluster_of(1, 2, 3), 2)

    assert partition.in_sync_replicas == (1, 3)
    assert (partition.leader, partition.leader_epoch) == (1, 0)


def test_another_one_in_sync_leads_instead_of_a_damaged_leader() -> None:
    partition = give_up(cluster_of(1, 2, 3), 1)

    assert partition.in_sync_replicas == (2, 3)
    assert (partition.leader, partition.leader_epoch) == (2, 1)


def test_a_damaged_replica_is_not_eligible_either_whatever_the_minimum_says() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.in_sync(1, 2)

    partition = give_up(cluster, 1)

    assert partition.in_sync_replicas == (2,)
    assert partition.eligible_leader_replicas == ()
    assert partition.leader == 2


def test_an_eligible_replica_that_is_damaged_is_eligible_no_more() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.fence(3, 2)
    cluster.register(2)
    assert cluster.partition().eligible_leader_replicas == (2,)

    assert give_up(cluster, 2).eligible_leader_replicas == (), "before it is let in again"
    cluster.unfence(2)
    cluster.fence(1)
    assert cluster.partition().leader is None


def test_an_eligible_replica_leads_instead_of_a_damaged_leader_if_nobody_else_is_in_sync() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.in_sync(1, 2)
    cluster.in_sync(1)

    partition = give_up(cluster, 1)

    assert partition.leader == 2
    assert partition.in_sync_replicas == (2,)
    assert partition.eligible_leader_replicas == ()


def test_whoever_nobody_can_stand_in_for_goes_on_to_lead_until_somebody_can() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.fence(3, 2)
    before = cluster.partition()

    assert give_up(cluster, 1) is before
    cluster.start(2)

    assert give_up(cluster, 1).leader == 2


def test_the_only_replica_of_a_partition_is_never_given_up() -> None:
    cluster = cluster_of(1)

    assert give_up(cluster, 1).leader == 1
    assert give_up(cluster, 1, full=True).leader == 1


def test_a_leader_whose_disk_is_full_stays_eligible_when_too_few_are_left() -> None:
    cluster = cluster_of(1, 2, 3)

    assert give_up(cluster, 1, full=True).eligible_leader_replicas == ()
    partition = cluster.in_sync(2)
    partition = cluster.in_sync(1, 2)
    partition = give_up(cluster, 2, full=True)

    assert (partition.leader, partition.in_sync_replicas) == (1, (1,))
    assert partition.eligible_leader_replicas == (2,)


def test_when_all_disks_are_full_leadership_does_not_go_round() -> None:
    cluster = cluster_of(1, 2, 3)
    for node in (1, 2, 3):
        give_up(cluster, node, full=True)
    settled = cluster.partition()
    assert (settled.leader, settled.in_sync_replicas) == (3, (3,))

    for node in (1, 2, 3):
        give_up(cluster, node, full=True)

    assert cluster.partition() is settled


def test_a_replica_that_is_given_up_again_stays_as_it_is() -> None:
    cluster = cluster_of(1, 2, 3)
    before = give_up(cluster, 1)

    assert give_up(cluster, 1) is before


def test_a_replica_that_was_given_up_comes_back_as_its_leader_wishes() -> None:
    cluster = cluster_of(1, 2, 3)
    give_up(cluster, 1)

    assert cluster.in_sync(1, 2, 3).in_sync_replicas == (1, 2, 3)


def test_nobody_gives_up_in_the_name_of_an_earlier_process() -> None:
    cluster = cluster_of(1, 2, 3)
    replica = GivenUpReplica(orders(cluster), 0, may_lack_records=True)
    command = GiveUpReplicas(1, cluster.broker(1).broker_epoch, [replica])
    cluster.start(1)

    with pytest.raises(StaleBrokerEpochError):
        cluster.do(command)


def test_a_partition_that_is_not_there_harms_no_other_of_the_command() -> None:
    cluster = cluster_of(1, 2, 3)
    replicas = [GivenUpReplica(orders(cluster), number, may_lack_records=True) for number in (7, 0)]
    command = GiveUpReplicas(1, cluster.broker(1).broker_epoch, replicas)

    missing, there = cluster.answer(PartitionAnswers, command).answers

    assert missing.error is not None
    assert isinstance(from_wire(missing.error), UnknownPartitionError)
    assert there.partition is not None
    assert there.partition.leader == 2


def test_who_has_no_replica_gives_up_nothing() -> None:
    cluster = cluster_of(1, 2, brokers=(1, 2, 3))
    before = cluster.partition()

    assert give_up(cluster, 3) is before


def test_nobody_is_given_up_for_somebody_who_is_about_to_stop() -> None:
    cluster = cluster_of(1, 2)
    partition = Partition((1, 2), (1, 2), leader=1)
    assert should_be_given_up(partition, 1, cluster.state.brokers, may_lack_records=True)

    cluster.shut_down(2)

    assert not should_be_given_up(partition, 1, cluster.state.brokers, may_lack_records=True)
