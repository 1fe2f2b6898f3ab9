"""Elections after an unclean end of all in-sync replicas: logs are compared before one leads."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.cluster_config import RECOVERY_ELECTION_WAIT_MS
from tidelog.coordinator.metadata.commands import (
    AlterClusterConfig,
    ElectLeaders,
    ElectRecovered,
    Reassignment,
    ReassignReplicas,
    ReportedLog,
    ReportLogEnds,
)
from tidelog.coordinator.metadata.recovery_elections import RecoveryElections
from tidelog.wire.errors import StaleBrokerEpochError


def killed(*, minimum: str = "2") -> Cluster:
    """Return a cluster whose brokers were killed at once; it fences broker 1 first."""
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], overrides={"min_insync_replicas": minimum})
    cluster.fence(1)
    return cluster


def test_a_damaged_tail_does_not_lead() -> None:
    cluster = killed()
    for node in (2, 3, 1):
        cluster.start(node, unclean=True)
    assert cluster.partition().leader is None

    cluster.report_log_end(2, 0, 585)
    partition = cluster.report_log_end(3, 0, 600)

    assert (partition.leader, partition.in_sync_replicas) == (3, (3,))
    assert [each.node_id for each in partition.unverified_replicas] == [1, 2]
    assert not any(each.log_end for each in partition.unverified_replicas)


def test_the_last_epoch_counts_before_the_log_end() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)

    cluster.report_log_end(2, 3, 900)

    assert cluster.report_log_end(3, 4, 600).leader == 3


def test_a_log_that_ends_before_deleted_records_does_not_lead() -> None:
    """Broker 2 has deleted all its records, and does not know which epoch wrote the last one."""
    cluster = killed()
    for node in (1, 2, 3):
        cluster.start(node, unclean=True)

    cluster.report_log_end(1, 0, 585)
    cluster.report_log_end(2, -1, 600)

    assert cluster.report_log_end(3, 4, 599).leader == 2


def test_a_log_with_records_leads_before_an_empty_log_at_or_before_its_end() -> None:
    for end in (600, 601):
        cluster = killed()
        for node in (2, 3):
            cluster.start(node, unclean=True)

        cluster.report_log_end(2, -1, 600)

        assert cluster.report_log_end(3, 0, end).leader == 3


def test_the_end_of_a_log_that_has_lost_all_records_proves_nothing() -> None:
    """Damage up to the base offset of a segment may include records that were never committed."""
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)

    cluster.report_log_end(2, -1, 600, is_whole=False)

    assert cluster.report_log_end(3, 0, 585).leader == 3


def test_a_whole_log_leads_before_a_damaged_one_with_the_same_end() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)

    cluster.report_log_end(2, 0, 600, is_whole=False)

    assert cluster.report_log_end(3, 0, 600).leader == 3


def test_the_first_assigned_of_equal_eligible_replicas_leads() -> None:
    cluster = killed()
    for node in (1, 2, 3):
        cluster.start(node, unclean=True)

    for node in (3, 1, 2):
        cluster.report_log_end(node, 0, 600)

    assert cluster.partition().leader == 2


def test_a_replica_that_left_the_isr_in_silence_leads_when_it_has_more() -> None:
    cluster = killed(minimum="1")
    cluster.fence(2)
    for node in (3, 2, 1):
        cluster.start(node, unclean=True)
    assert cluster.partition().eligible_leader_replicas == (3,)

    cluster.report_log_end(3, 0, 585)
    assert cluster.partition().leader is None, "broker 3 has no other eligible one to compare with"
    cluster.report_log_end(2, 0, 600)

    assert cluster.report_log_end(1, 0, 600).leader == 1


def test_a_replica_that_the_leader_removed_leads_when_it_has_more() -> None:
    """The removal arrives late: its sender has died, and the disk has lost the end of the log."""
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], overrides={"min_insync_replicas": "1"})
    cluster.in_sync(1)
    for node in (1, 2, 3):
        cluster.start(node, unclean=True)
    assert cluster.partition().eligible_leader_replicas == (1,)

    cluster.report_log_end(1, 0, 585)
    cluster.report_log_end(2, 0, 600)

    assert cluster.report_log_end(3, 0, 590).leader == 2


def test_a_replica_whose_process_has_not_ended_leads_at_once() -> None:
    cluster = killed()
    cluster.fence(2)
    cluster.start(2, unclean=True)
    assert cluster.partition().in_sync_replicas == (3,)
    cluster.fence(3)
    assert cluster.partition().leader is None

    cluster.unfence(3)

    assert cluster.partition().leader == 3


def test_a_clean_stop_needs_no_comparison() -> None:
    cluster = killed()
    cluster.fence(3)
    cluster.start(2)

    assert cluster.partition().leader == 2


def test_the_replica_with_most_is_awaited_until_it_is_unfenced() -> None:
    cluster = killed()
    cluster.start(2, unclean=True)
    cluster.register(3, unclean=True)
    cluster.report_log_end(2, 0, 585)
    assert cluster.report_log_end(3, 0, 600).leader is None

    cluster.unfence(3)

    assert cluster.partition().leader == 3


def test_a_report_of_an_earlier_process_does_not_count() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)
    cluster.report_log_end(3, 0, 600)
    cluster.start(3, unclean=True)

    assert cluster.report_log_end(2, 0, 585).leader is None


def test_a_report_of_an_earlier_leader_epoch_does_not_count() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)
    late = cluster.partition().leader_epoch - 1
    cluster.report_log_end(2, 0, 585)
    end = cluster.partition().unverified_replicas[-1]
    assert end.log_end is None
    key = next(iter(cluster.state.index.awaiting_reports))
    reported = cluster.partition().unverified_replicas[1].log_end
    assert reported is not None

    cluster.do(
        ReportLogEnds(3, cluster.broker(3).broker_epoch, [ReportedLog(*key, late, reported)])
    )

    assert cluster.partition().leader is None


def test_a_report_of_an_earlier_registration_is_refused() -> None:
    cluster = killed()
    cluster.start(2, unclean=True)

    with pytest.raises(StaleBrokerEpochError):
        cluster.do(ReportLogEnds(2, cluster.broker(2).broker_epoch - 1, []))


def test_a_lost_disk_is_not_awaited() -> None:
    cluster = killed()
    for node in (1, 2, 3):
        cluster.start(node, unclean=True)
    cluster.report_log_end(1, 0, 570)
    cluster.report_log_end(2, 0, 600)
    cluster.fence(3)
    assert cluster.partition().leader is None

    cluster.register(3, disk_id="disk-new")

    assert cluster.partition().leader == 2


def test_an_accepted_loss_elects_the_greatest_reported_end() -> None:
    cluster = killed()
    for node in (1, 2):
        cluster.start(node, unclean=True)
    cluster.fence(3)
    cluster.report_log_end(1, 0, 600)
    cluster.report_log_end(2, 0, 585)
    key = next(iter(cluster.state.index.awaiting_reports))

    cluster.do(ElectLeaders([key], accept_data_loss=True))

    partition = cluster.partition()
    assert (partition.leader, partition.data_loss_epoch) == (1, partition.leader_epoch)


def test_an_accepted_loss_elects_no_log_that_ends_before_deleted_records() -> None:
    cluster = killed()
    for node in (1, 2):
        cluster.start(node, unclean=True)
    cluster.fence(3)
    cluster.report_log_end(1, 0, 585)
    cluster.report_log_end(2, -1, 600)
    key = next(iter(cluster.state.index.awaiting_reports))

    cluster.do(ElectLeaders([key], accept_data_loss=True))

    assert cluster.partition().leader == 2


def test_a_move_to_another_replica_forgets_the_removed_one() -> None:
    cluster = killed()
    cluster.start(1, unclean=True)
    assert [each.node_id for each in cluster.partition().unverified_replicas] == [1]
    topic_id = cluster.change(2, 3).topic_id

    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [2, 3])]))

    assert cluster.partition().unverified_replicas == ()


def test_the_wait_for_a_missing_replica_is_limited() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)
    elections = RecoveryElections()
    assert elections.due(cluster.state, now_ms=0) is None
    cluster.report_log_end(2, 0, 600)

    assert elections.due(cluster.state, now_ms=50) is None
    assert elections.due(cluster.state, now_ms=49 + RECOVERY_ELECTION_WAIT_MS) is None
    due = elections.due(cluster.state, now_ms=50 + RECOVERY_ELECTION_WAIT_MS)
    assert isinstance(due, ElectRecovered)
    cluster.do(due)

    assert cluster.partition().leader == 2
    assert cluster.partition().eligible_leader_replicas == (3,)
    assert elections.due(cluster.state, now_ms=10 * RECOVERY_ELECTION_WAIT_MS) is None


def test_the_wait_is_a_setting() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)
    cluster.do(AlterClusterConfig({"recovery_election_wait_ms": "5s"}, []))
    cluster.report_log_end(2, 0, 600)
    elections = RecoveryElections()

    assert elections.due(cluster.state, now_ms=0) is None
    assert elections.due(cluster.state, now_ms=4999) is None
    assert elections.due(cluster.state, now_ms=5000) is not None


def test_an_election_that_found_no_leader_is_repeated() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)
    cluster.report_log_end(2, 0, 600)
    cluster.fence(2)
    elections = RecoveryElections()
    elections.due(cluster.state, now_ms=0)
    due = elections.due(cluster.state, now_ms=RECOVERY_ELECTION_WAIT_MS)
    assert due is not None
    cluster.do(due)
    assert cluster.partition().leader is None

    assert elections.due(cluster.state, now_ms=RECOVERY_ELECTION_WAIT_MS + 1) is None
    assert elections.due(cluster.state, now_ms=RECOVERY_ELECTION_WAIT_MS + 1000) == due
