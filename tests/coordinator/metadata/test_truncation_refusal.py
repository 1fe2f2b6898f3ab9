"""Followers that refuse to truncate committed records: the leader steps down, or goes on."""

import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tidelog.coordinator.metadata.catalog import AlterTopic
from tidelog.coordinator.metadata.commands import (
    ElectLeaders,
    FailedReplica,
    PartitionAnswer,
    PartitionAnswers,
    Reassignment,
    ReassignReplicas,
    RefusedTruncation,
    RefuseTruncation,
    RemoveFromIsr,
)
from tidelog.coordinator.metadata.records import (
    DataLossAccepted,
    PartitionRegistration,
    RefusingReplica,
)
from tidelog.wire.errors import StaleBrokerEpochError, StalePartitionEpochError, from_wire


def after_an_outage(*order: int) -> Cluster:
    """Return a cluster whose brokers all ended; the first one leads, and may lack records.

    The others came back after the wait for them. With this minimum all of them stay eligible.
    """
    cluster = Cluster(1, 2, 3)
    overrides = {"durability": "fsync", "min_insync_replicas": "3"}
    cluster.create("orders", [1, 2, 3], overrides=overrides)
    cluster.fence(2, 3, 1)
    cluster.start(order[0], unclean=True)
    cluster.report_log_end(order[0], 0, 555)
    cluster.end_wait()
    for node_id in order[1:]:
        cluster.start(node_id, unclean=True)
    return cluster


def orders(cluster: Cluster) -> bytes:
    return cluster.state.catalog.topic("orders").topic_id


def refused(cluster: Cluster) -> RefusedTruncation:
    epoch = cluster.partition().leader_epoch
    return RefusedTruncation(orders(cluster), 0, epoch, 555, 600, 610, 1)


def refuse(
    cluster: Cluster, node_id: int, truncation: RefusedTruncation | None = None
) -> PartitionRegistration:
    """Report a refused truncation, by default one in the current leader epoch."""
    truncation = truncation or refused(cluster)
    command = RefuseTruncation(node_id, cluster.broker(node_id).broker_epoch, [truncation])
    (answer,) = cluster.answer(PartitionAnswers, command).answers
    assert answer.error is None
    assert answer.partition == cluster.partition()
    return cluster.partition()


def accept(cluster: Cluster, epoch: int | None = None) -> PartitionAnswer:
    epochs = None if epoch is None else [epoch]
    command = ElectLeaders([(orders(cluster), 0)], True, epochs)
    return cluster.answer(PartitionAnswers, command).answers[0]


def an_outsider() -> Cluster:
    """Return a cluster with a replica that was not in the ISR, and refuses."""
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.in_sync(1, 2)
    refuse(cluster, 3)
    return cluster


def test_a_leader_steps_down_for_an_eligible_replica_that_has_more() -> None:
    cluster = after_an_outage(2, 1, 3)
    before = cluster.partition()
    assert (before.leader, before.in_sync_replicas) == (2, (2,))
    assert before.eligible_leader_replicas == (1, 3)

    after = refuse(cluster, 1)

    assert (after.leader, after.in_sync_replicas) == (1, (1,))
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.eligible_leader_replicas == (3,), "the old leader may lack committed records"
    assert after.refusing_replicas == ()
    assert after.data_loss_epoch is None
    event = cluster.state.events.unacknowledged[-1]
    assert (event.kind, event.topic, event.partition) == ("leader_lacks_records", "orders", 0)
    assert (event.node_id, event.first_offset, event.end_offset) == (1, 555, 600)
    assert event.detail.endswith("broker 1 leads instead")


def test_another_eligible_replica_may_have_more_again() -> None:
    cluster = after_an_outage(2, 1, 3)
    refuse(cluster, 1)

    after = refuse(cluster, 3)

    assert (after.leader, after.in_sync_replicas) == (3, (3,))
    assert after.eligible_leader_replicas == ()


def test_a_replica_of_the_isr_replaces_the_leader_and_the_replicas_in_sync_with_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])

    after = refuse(cluster, 3)

    assert (after.leader, after.in_sync_replicas) == (3, (3,))
    assert after.eligible_leader_replicas == ()


def test_a_leader_stays_if_the_replica_with_more_is_not_known_to_have_all_records() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.in_sync(1, 2)
    before = cluster.partition()

    after = refuse(cluster, 3)

    assert after == replace(
        before,
        refusing_replicas=(RefusingReplica(3, 555, 600),),
        partition_epoch=before.partition_epoch + 1,
    )
    assert refuse(cluster, 3) == after, "a repetition changes nothing"
    (event,) = cluster.state.events.unacknowledged
    assert (event.kind, event.node_id) == ("leader_lacks_records", 3)
    assert "broker 3 stays out of the ISR" in event.detail


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_damaged_replica_does_not_replace_the_leader(*, is_whole: bool) -> None:
    cluster = after_an_outage(2, 1, 3)

    after = refuse(cluster, 1, replace(refused(cluster), is_whole=is_whole))

    assert after.leader == (1 if is_whole else 2)


def test_a_replica_with_an_offline_log_does_not_replace_the_leader() -> None:
    cluster = after_an_outage(2, 1, 3)
    offline = FailedReplica(orders(cluster), 0, may_lack_records=False, is_offline=True)
    cluster.do(RemoveFromIsr(1, cluster.broker(1).broker_epoch, [offline]))
    assert cluster.partition().offline_replicas == (1,)

    after = refuse(cluster, 1)

    assert after.leader == 2
    assert after.refusing_replicas == (RefusingReplica(1, 555, 600),)


def test_a_broker_that_is_fenced_does_not_replace_the_leader() -> None:
    cluster = after_an_outage(2)
    cluster.register(1, unclean=True)

    assert refuse(cluster, 1).leader == 2
    cluster.unfence(1)

    assert refuse(cluster, 1).leader == 1


def test_an_outdated_refusal_changes_nothing() -> None:
    cluster = after_an_outage(2, 1, 3)
    outdated = refused(cluster)
    refuse(cluster, 1)
    before = cluster.partition()

    assert refuse(cluster, 3, outdated) == before
    assert refuse(cluster, 1) == before, "it leads"
    cluster.fence(1, 3)
    assert cluster.partition().leader is None
    leaderless = cluster.partition()
    assert refuse(cluster, 2) == leaderless


def test_an_earlier_process_of_a_broker_cannot_refuse() -> None:
    cluster = after_an_outage(2, 1, 3)
    command = RefuseTruncation(1, cluster.broker(1).broker_epoch - 1, [refused(cluster)])

    with pytest.raises(StaleBrokerEpochError):
        cluster.do(command)


def test_a_replica_that_joins_the_isr_refuses_no_more() -> None:
    cluster = an_outsider()

    assert cluster.in_sync(1, 2, 3).refusing_replicas == ()


def test_a_replica_that_loses_its_files_refuses_no_more() -> None:
    cluster = an_outsider()
    lost = FailedReplica(orders(cluster), 0, may_lack_records=True, is_lost=True)

    cluster.do(RemoveFromIsr(3, cluster.broker(3).broker_epoch, [lost]))

    assert cluster.partition().wiped_replicas == (3,)
    assert cluster.partition().refusing_replicas == ()


def test_a_replica_that_leaves_the_assignment_refuses_no_more() -> None:
    cluster = an_outsider()

    cluster.do(ReassignReplicas([Reassignment(orders(cluster), 0, [1, 2])]))

    assert cluster.partition().replicas == (1, 2)
    assert cluster.partition().refusing_replicas == ()


def test_an_administrator_accepts_the_loss_of_the_refused_records() -> None:
    cluster = an_outsider()
    before = cluster.partition()

    assert accept(cluster).error is None

    after = cluster.partition()
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert after.in_sync_replicas == before.in_sync_replicas
    assert after.data_loss_epoch == after.leader_epoch
    assert after.refusing_replicas == ()
    loss = DataLossAccepted(orders(cluster), 0, 1, after.leader_epoch, None, (), NOW_MS)
    assert list(cluster.state.data_losses) == [loss]
    assert accept(cluster).error is None
    assert cluster.partition() == after, "a repetition changes nothing"
    event = cluster.state.events.unacknowledged[-1]
    assert (event.kind, event.record_count) == ("data_loss_accepted", 45)
    assert "broker 3 may remove committed records" in event.detail


def test_the_loss_of_refused_records_is_accepted_for_the_leader_that_lacks_them() -> None:
    cluster = an_outsider()
    seen = cluster.partition().leader_epoch
    cluster.start(1)
    assert cluster.partition().leader == 2
    before = cluster.partition()

    answer = accept(cluster, seen)

    assert answer.error is not None
    assert isinstance(from_wire(answer.error), StalePartitionEpochError)
    assert cluster.partition() == before


def test_a_sole_replica_that_lost_its_memory_lets_added_replicas_truncate() -> None:
    """The added replica may know committed records which are gone: no other replica had them."""
    cluster = Cluster(1, 2)
    cluster.create("orders", [1], overrides={"durability": "replicated"})
    cluster.do(ReassignReplicas([Reassignment(orders(cluster), 0, [1, 2])]))
    cluster.start(1)
    assert cluster.partition().data_loss_epoch is None
    epoch = cluster.partition().leader_epoch

    cluster.start(1, unclean=True)
    cluster.report_log_end(1, 0, 5)

    assert cluster.partition().leader == 1
    loss_epoch = cluster.partition().data_loss_epoch
    assert loss_epoch is not None
    assert epoch < loss_epoch < cluster.partition().leader_epoch
    cluster.do(AlterTopic("orders", {"durability": "fsync"}, []))
