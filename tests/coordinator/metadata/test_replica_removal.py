"""Removal of damaged replicas, and of those on a full disk, from the ISR."""

from collections.abc import Sequence

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.catalog import AlterTopic
from tidelog.coordinator.metadata.commands import (
    ElectLeaders,
    FailedReplica,
    PartitionAnswer,
    PartitionAnswers,
    RemoveFromIsr,
)
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.replica_removal import should_remove_from_isr
from tidelog.wire.errors import StaleBrokerEpochError, UnknownPartitionError, from_wire


def cluster_of(*replicas: int, brokers: Sequence[int] = (1, 2, 3)) -> Cluster:
    cluster = Cluster(*brokers)
    cluster.create("orders", list(replicas))
    return cluster


def orders(cluster: Cluster) -> bytes:
    return cluster.state.catalog.topic("orders").topic_id


def give_up(
    cluster: Cluster, node_id: int, *, number: int = 0, full: bool = False
) -> PartitionRegistration:
    answer = answer_to(cluster, node_id, number=number, full=full)
    assert answer.error is None
    assert answer.partition == cluster.partition(number=number)
    return cluster.partition(number=number)


def answer_to(
    cluster: Cluster, node_id: int, *, number: int = 0, full: bool = False
) -> PartitionAnswer:
    replica = FailedReplica(orders(cluster), number, may_lack_records=not full)
    command = RemoveFromIsr(node_id, cluster.broker(node_id).broker_epoch, [replica])
    return cluster.answer(PartitionAnswers, command).answers[0]


def test_a_damaged_follower_is_removed_from_the_isr() -> None:
    partition = give_up(cluster_of(1, 2, 3), 2)

    assert partition.in_sync_replicas == (1, 3)
    assert (partition.leader, partition.leader_epoch) == (1, 0)


def test_another_isr_member_leads_instead_of_a_damaged_leader() -> None:
    partition = give_up(cluster_of(1, 2, 3), 1)

    assert partition.in_sync_replicas == (2, 3)
    assert (partition.leader, partition.leader_epoch) == (2, 1)


def test_a_damaged_replica_is_not_eligible_at_any_min_insync_replicas() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.in_sync(1, 2)

    partition = give_up(cluster, 1)

    assert partition.in_sync_replicas == (2,)
    assert partition.eligible_leader_replicas == ()
    assert partition.leader == 2


def test_a_damaged_replica_loses_eligibility() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.fence(3, 2)
    cluster.register(2)
    assert cluster.partition().eligible_leader_replicas == (2,)

    assert give_up(cluster, 2).eligible_leader_replicas == (), "before its broker is unfenced"
    cluster.unfence(2)
    cluster.fence(1)
    assert cluster.partition().leader is None


def test_an_eligible_replica_leads_instead_of_a_damaged_leader_alone_in_the_isr() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.in_sync(1, 2)
    cluster.in_sync(1)

    partition = give_up(cluster, 1)

    assert partition.leader == 2
    assert partition.in_sync_replicas == (2,)
    assert partition.eligible_leader_replicas == ()


def test_a_damaged_leader_without_a_successor_leads_until_there_is_one() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.fence(3, 2)
    before = cluster.partition()

    assert give_up(cluster, 1) is before
    cluster.start(2)

    assert give_up(cluster, 1).leader == 2


def test_the_only_replica_is_never_removed_from_the_isr() -> None:
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


def test_with_all_disks_full_leadership_does_not_rotate() -> None:
    cluster = cluster_of(1, 2, 3)
    for node in (1, 2, 3):
        give_up(cluster, node, full=True)
    settled = cluster.partition()
    assert (settled.leader, settled.in_sync_replicas) == (3, (3,))

    for node in (1, 2, 3):
        give_up(cluster, node, full=True)

    assert cluster.partition() is settled


def test_a_repeated_removal_from_the_isr_changes_nothing() -> None:
    cluster = cluster_of(1, 2, 3)
    before = give_up(cluster, 1)

    assert give_up(cluster, 1) is before


def test_a_removed_replica_rejoins_the_isr_by_its_leader() -> None:
    cluster = cluster_of(1, 2, 3)
    give_up(cluster, 1)

    assert cluster.in_sync(1, 2, 3).in_sync_replicas == (1, 2, 3)


def test_a_removal_with_a_stale_broker_epoch_is_refused() -> None:
    cluster = cluster_of(1, 2, 3)
    replica = FailedReplica(orders(cluster), 0, may_lack_records=True)
    command = RemoveFromIsr(1, cluster.broker(1).broker_epoch, [replica])
    cluster.start(1)

    with pytest.raises(StaleBrokerEpochError):
        cluster.do(command)


def test_an_unknown_partition_does_not_fail_other_removals() -> None:
    cluster = cluster_of(1, 2, 3)
    replicas = [FailedReplica(orders(cluster), number, may_lack_records=True) for number in (7, 0)]
    command = RemoveFromIsr(1, cluster.broker(1).broker_epoch, replicas)

    missing, there = cluster.answer(PartitionAnswers, command).answers

    assert missing.error is not None
    assert isinstance(from_wire(missing.error), UnknownPartitionError)
    assert there.partition is not None
    assert there.partition.leader == 2


def test_a_broker_without_a_replica_removes_nothing() -> None:
    cluster = cluster_of(1, 2, brokers=(1, 2, 3))
    before = cluster.partition()

    assert give_up(cluster, 3) is before


def test_a_replica_is_not_removed_in_favour_of_a_broker_in_shutdown() -> None:
    cluster = cluster_of(1, 2)
    partition = PartitionRegistration((1, 2), (1, 2), leader=1)
    replica = FailedReplica(b"?" * 16, 0, may_lack_records=True)
    assert should_remove_from_isr(partition, 1, cluster.state.brokers, replica=replica)

    cluster.shut_down(2)

    assert not should_remove_from_isr(partition, 1, cluster.state.brokers, replica=replica)


def offline(
    cluster: Cluster, node_id: int, *, may_lack_records: bool = False
) -> PartitionRegistration:
    """Take a log offline; its durable records are in no doubt unless the arguments say so."""
    replica = FailedReplica(orders(cluster), 0, may_lack_records, is_offline=True)
    command = RemoveFromIsr(node_id, cluster.broker(node_id).broker_epoch, [replica])
    (answer,) = cluster.answer(PartitionAnswers, command).answers
    assert answer.error is None
    return cluster.partition()


def two_in_sync(durability: str = "fsync") -> Cluster:
    """Return a cluster in which one more removal would leave too small an ISR."""
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], overrides={"durability": durability})
    cluster.fence(3)
    assert cluster.partition().in_sync_replicas == (1, 2)
    return cluster


def test_a_replica_whose_log_is_offline_stays_eligible_when_too_few_are_left() -> None:
    partition = offline(two_in_sync(), 1)

    assert (partition.leader, partition.in_sync_replicas) == (2, (2,))
    assert partition.eligible_leader_replicas == partition.offline_replicas == (1,)


def test_with_a_large_enough_isr_an_offline_log_is_not_eligible() -> None:
    partition = offline(cluster_of(1, 2, 3), 1)

    assert (partition.leader, partition.in_sync_replicas) == (2, (2, 3))
    assert partition.eligible_leader_replicas == partition.offline_replicas == ()


def test_a_replica_with_an_offline_log_leads_nothing_until_a_restart() -> None:
    cluster = two_in_sync()
    offline(cluster, 1)

    cluster.fence(2)
    assert cluster.partition().leader is None
    cluster.fence(1)
    cluster.unfence(1)
    assert cluster.partition().leader is None, "the process is the same"
    assert cluster.partition().eligible_leader_replicas == (1, 2)
    cluster.start(1, unclean=True)
    cluster.report_log_end(1, 0, 5)

    assert cluster.end_wait().leader == 1
    assert cluster.partition().offline_replicas == ()


def test_with_all_logs_offline_leadership_does_not_rotate() -> None:
    cluster = two_in_sync()
    offline(cluster, 1)
    settled = offline(cluster, 2)
    assert (settled.leader, settled.offline_replicas) == (2, (1,))

    for node in (1, 2):
        assert offline(cluster, node) is settled


def test_an_eligible_replica_leads_instead_of_one_whose_log_is_offline() -> None:
    cluster = two_in_sync()
    cluster.in_sync(1)
    assert cluster.partition().eligible_leader_replicas == (2,)

    partition = offline(cluster, 1)

    assert (partition.leader, partition.in_sync_replicas) == (2, (2,))
    assert partition.eligible_leader_replicas == partition.offline_replicas == (1,)


def test_an_eligible_replica_whose_log_goes_offline_stays_eligible_and_cannot_lead() -> None:
    cluster = two_in_sync()
    cluster.in_sync(1)

    assert offline(cluster, 2).offline_replicas == (2,)
    cluster.fence(1)

    assert cluster.partition().leader is None
    assert cluster.partition().eligible_leader_replicas == (1, 2)


def test_a_replica_that_is_damaged_when_its_log_is_opened_again_is_eligible_no_more() -> None:
    cluster = two_in_sync()
    offline(cluster, 1)
    cluster.register(1, unclean=True)

    assert give_up(cluster, 1).eligible_leader_replicas == ()


def test_a_replica_that_may_lack_records_is_not_eligible_though_its_log_is_only_offline() -> None:
    partition = offline(two_in_sync(), 1, may_lack_records=True)

    assert (partition.leader, partition.eligible_leader_replicas) == (2, ())
    assert offline(two_in_sync("replicated"), 1).eligible_leader_replicas == ()


def test_a_process_that_began_before_the_topic_was_on_disk_may_lack_records_when_offline() -> None:
    cluster = two_in_sync("replicated")
    cluster.do(AlterTopic("orders", {"durability": "fsync"}, []))

    assert offline(cluster, 1).eligible_leader_replicas == ()


def test_a_new_disk_is_not_eligible_in_place_of_an_offline_one() -> None:
    cluster = two_in_sync()
    offline(cluster, 1)
    cluster.fence(1)
    cluster.register(1, disk_id="new")

    partition = cluster.partition()
    assert partition.eligible_leader_replicas == partition.offline_replicas == ()


def test_an_unclean_election_skips_an_offline_log() -> None:
    cluster = two_in_sync()
    offline(cluster, 1)
    cluster.fence(2)
    elect = ElectLeaders([(orders(cluster), 0)], accept_data_loss=True)

    (answer,) = cluster.answer(PartitionAnswers, elect).answers

    assert answer.error is not None
    told = str(from_wire(answer.error))
    assert told.endswith("on brokers 1, 2, 3; restart 1, where its log is offline")
    cluster.unfence(3)
    cluster.answer(PartitionAnswers, elect)
    assert (cluster.partition().leader, cluster.partition().offline_replicas) == (3, ())


def lost(cluster: Cluster, node_id: int) -> PartitionRegistration:
    """Report lost files of a broker's replica."""
    replica = FailedReplica(orders(cluster), 0, may_lack_records=True, is_lost=True)
    command = RemoveFromIsr(node_id, cluster.broker(node_id).broker_epoch, [replica])
    (answer,) = cluster.answer(PartitionAnswers, command).answers
    assert answer.error is None
    return cluster.partition()


def test_a_replica_with_lost_files_is_removed_without_a_successor() -> None:
    cluster = cluster_of(1, 2, 3)
    for node_id in (3, 2, 1):
        cluster.fence(node_id)
    assert set(cluster.partition().in_sync_or_eligible) == {1, 2}
    cluster.start(1)

    partition = lost(cluster, 1)

    assert partition.in_sync_or_eligible == (2,)
    assert partition.leader is None
    cluster.unfence(1)
    assert cluster.partition().leader is None
    cluster.start(2)
    cluster.unfence(2)
    assert cluster.partition().leader == 2


def test_the_only_replica_with_lost_files_leads_after_an_accepted_loss() -> None:
    cluster = cluster_of(1)

    assert lost(cluster, 1).in_sync_or_eligible == ()
    assert cluster.partition().leader is None
    assert lost(cluster, 1) is cluster.partition()
    cluster.answer(PartitionAnswers, ElectLeaders([(orders(cluster), 0)], accept_data_loss=True))

    assert cluster.partition().leader == 1
    assert cluster.partition().wiped_replicas == ()


@pytest.mark.parametrize("is_counted_on", [True, False])
def test_an_unclean_election_takes_a_replica_with_lost_files_last(
    is_counted_on: bool,
) -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2], overrides={"min_insync_replicas": "1"})
    if is_counted_on:
        cluster.in_sync(1)
    else:
        give_up(cluster, 2)
    assert cluster.partition().in_sync_or_eligible == (1,)
    partition = lost(cluster, 1)
    assert (partition.leader, partition.last_known_leader) == (None, 1)
    assert partition.wiped_replicas == (1,)

    cluster.answer(PartitionAnswers, ElectLeaders([(orders(cluster), 0)], accept_data_loss=True))

    assert cluster.partition().leader == 2
    assert cluster.partition().wiped_replicas == (1,)
    assert cluster.in_sync(1, 2).wiped_replicas == ()
