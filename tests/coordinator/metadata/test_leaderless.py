"""Reasons for which a partition has no leader."""

import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.commands import (
    AlterClusterConfig,
    CreateQueue,
    FailedReplica,
    RemoveFromIsr,
)
from tidelog.coordinator.metadata.leaderless import (
    LeaderlessKind,
    leaderless_reason,
    why_leaderless,
)
from tidelog.coordinator.metadata.records import PartitionRegistration

ACCEPT = "tidelog cluster elect-leaders --topic orders --partition 0 --accept-data-loss"


def why(cluster: Cluster) -> tuple[str, str]:
    """Return kind and text for the first partition, which has no leader."""
    assert cluster.partition().leader is None
    topic = cluster.state.catalog.topic("orders")
    reason = why_leaderless(cluster.state, topic, 0)
    assert reason is not None
    assert "\n" not in reason.text
    return reason.kind, reason.text


def killed() -> Cluster:
    """Return a cluster whose brokers were killed at once; brokers 2 and 3 are eligible."""
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.fence(1, 2, 3)
    return cluster


def test_a_partition_with_a_leader_has_no_reason() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2])
    topic = cluster.state.catalog.topic("orders")

    assert why_leaderless(cluster.state, topic, 0) is None
    assert why_leaderless(cluster.state, topic, 7) is None


def test_without_any_live_replica_the_eligible_brokers_are_named() -> None:
    kind, text = why(killed())

    assert kind == LeaderlessKind.NO_REPLICA_IS_BACK
    assert text == (
        "no replica with all committed records is alive: brokers 2, 3 are fenced; start brokers 2,"
        f" 3, or start any of brokers 1, 2, 3 and accept the loss: {ACCEPT}"
    )


def test_a_sole_replica_leads_without_a_loss_after_a_start() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    cluster.fence(1)

    assert why(cluster)[1] == (
        "no replica with all committed records is alive: broker 1 is fenced; start broker 1"
    )
    cluster.start(1, unclean=True)
    assert cluster.partition().leader == 1


def test_with_a_live_replica_a_loss_can_be_accepted_at_once() -> None:
    cluster = killed()
    cluster.start(1, unclean=True)

    assert why(cluster)[1].endswith(f"start brokers 2, 3, or accept the loss: {ACCEPT}")


def test_a_missing_replica_is_awaited_for_a_limited_time() -> None:
    cluster = killed()
    cluster.start(2, unclean=True)
    cluster.report_log_end(2, 0, 585)

    kind, text = why(cluster)

    assert kind == LeaderlessKind.WAITS_FOR_REPLICAS
    assert text == (
        "the election waits for at most recovery_election_wait_ms = 30 s for broker 3 to come"
        " back: it may have more committed records; start broker 3"
    )
    cluster.do(AlterClusterConfig({"recovery_election_wait_ms": "2h"}, []))
    assert "recovery_election_wait_ms = 7200 s" in why(cluster)[1]


def test_a_single_eligible_replica_waits_for_the_unverified_ones() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], overrides={"min_insync_replicas": "1"})
    cluster.fence(1, 2, 3)
    cluster.start(3, unclean=True)
    cluster.report_log_end(3, 0, 585)

    assert "for brokers 1, 2 to come back: they may have" in why(cluster)[1]


def test_a_replica_that_is_back_has_yet_to_report() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)

    assert why(cluster)[1] == ("the election waits for brokers 2, 3 to report the end of the log")
    cluster.report_log_end(2, 0, 585)
    assert why(cluster)[1] == "the election waits for broker 3 to report the end of the log"


@pytest.mark.parametrize("epoch", [0, -1], ids=["with records", "all records deleted"])
def test_the_replica_with_the_greatest_log_end_is_awaited_when_it_is_fenced(epoch: int) -> None:
    cluster = killed()
    cluster.start(2, unclean=True)
    cluster.register(3, unclean=True)
    cluster.report_log_end(2, 0, 585)
    cluster.report_log_end(3, epoch, 600)

    kind, text = why(cluster)

    assert kind == LeaderlessKind.WAITS_FOR_REPLICAS
    assert "for broker 3 to come back" in text


def test_reports_of_brokers_that_are_gone_again_begin_no_wait() -> None:
    cluster = killed()
    cluster.start(2, unclean=True)
    cluster.report_log_end(2, 0, 585)
    cluster.fence(2)

    kind, text = why(cluster)

    assert kind == LeaderlessKind.NO_REPLICA_IS_BACK
    assert "brokers 2, 3 are fenced; start brokers 2, 3" in text


def test_a_broker_that_stops_is_not_alive() -> None:
    cluster = killed()
    stopping = replace(cluster.broker(2), is_fenced=False, is_shutting_down=True)
    brokers = {**cluster.state.brokers, 2: stopping}

    reason = leaderless_reason(cluster.partition(), brokers, wait_ms=30_000, command=ACCEPT)

    assert "broker 3 is fenced, broker 2 is stopping; start brokers 2, 3" in reason.text


def test_an_offline_log_needs_a_restart_of_its_broker() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2], overrides={"min_insync_replicas": "2"})
    topic_id = cluster.state.catalog.topic("orders").topic_id
    for node in (1, 2):
        failed = FailedReplica(topic_id, 0, may_lack_records=False, is_offline=True)
        cluster.do(RemoveFromIsr(node, cluster.broker(node).broker_epoch, [failed]))
    cluster.fence(2)
    assert cluster.partition().offline_replicas == (1,)

    assert "broker 2 is fenced; start broker 2" in why(cluster)[1]


@pytest.mark.parametrize("is_fenced", [True, False])
def test_an_offline_log_of_the_only_eligible_replica_is_named(*, is_fenced: bool) -> None:
    cluster = Cluster(1, 2)
    brokers = {**cluster.state.brokers, 1: replace(cluster.broker(1), is_fenced=is_fenced)}
    partition = PartitionRegistration((1, 2), (), (1,), offline_replicas=(1,))

    reason = leaderless_reason(partition, brokers, wait_ms=30_000, command=ACCEPT)

    assert reason.kind == LeaderlessKind.LOG_OFFLINE
    assert reason.text == (
        "the log of broker 1 is offline after an error of the disk: check the disk and restart"
        f" broker 1, or accept the loss: {ACCEPT}"
    )


def test_the_only_replica_that_has_lost_its_files_needs_them_back() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2], overrides={"min_insync_replicas": "1"})
    topic_id = cluster.state.catalog.topic("orders").topic_id
    cluster.in_sync(1)
    cluster.do(
        RemoveFromIsr(
            1,
            cluster.broker(1).broker_epoch,
            [FailedReplica(topic_id, 0, may_lack_records=False, is_lost=True)],
        )
    )

    kind, text = why(cluster)

    assert kind == LeaderlessKind.NO_COMPLETE_REPLICA
    assert "lost files (broker 1); accept the loss: tidelog" in text


@pytest.mark.parametrize("nodes", [(1,), (1, 2)])
def test_replicas_that_have_lost_files_are_named(nodes: tuple[int, ...]) -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", list(nodes))
    topic_id = cluster.state.catalog.topic("orders").topic_id
    for node in nodes:
        lost = FailedReplica(topic_id, 0, may_lack_records=True, is_lost=True)
        cluster.do(RemoveFromIsr(node, cluster.broker(node).broker_epoch, [lost]))

    kind, text = why(cluster)

    assert kind == LeaderlessKind.NO_COMPLETE_REPLICA
    these = "this broker" if len(nodes) == 1 else "these brokers"
    listed = "broker 1" if len(nodes) == 1 else "brokers 1, 2"
    assert text == (
        f"all replicas have lost files ({listed}): stop {these}, bring the files back and start"
        f" {these}; then, or without the files, accept the loss: {ACCEPT}"
    )


def test_the_command_for_the_journal_of_a_queue_names_the_topic_of_the_queue() -> None:
    cluster = Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2])
    cluster.do(
        CreateQueue(
            "billing", b"q" * 16, bytes(32), b"n" * 16, 0, "orders", topic_id, [0], False, {}
        )
    )
    cluster.fence(1, 2)
    (journal,) = cluster.state.catalog.journals

    reason = why_leaderless(cluster.state, journal, 0)

    assert reason is not None
    assert reason.text.endswith(f"start any of brokers 1, 2 and accept the loss: {ACCEPT}")
