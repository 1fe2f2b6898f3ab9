"""Broker commands: registration, fencing, unfencing, shutdown, draining, unregistration."""

import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tidelog.coordinator.controller.log_entries import decode_entry, encode_entry
from tidelog.coordinator.metadata.catalog import AlterTopic, TopicCreated
from tidelog.coordinator.metadata.commands import (
    AddPartitions,
    AlterClusterConfig,
    BeginShutdown,
    CreateReplicatedTopic,
    DrainBroker,
    FenceBroker,
    PartitionAnswers,
    Reassignment,
    ReassignReplicas,
    ShutdownProgress,
    UnfenceBroker,
    UnregisterBroker,
)
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    FeatureLevelSet,
    PartitionRegistration,
    PartitionsAdded,
    PartitionsChanged,
)
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.wire.errors import (
    InvalidRequestError,
    InvalidTopicError,
    StaleBrokerEpochError,
)

REPLICATED = {"durability": "replicated"}


def three_replicas(overrides: dict[str, str] | None = None) -> Cluster:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], overrides=overrides)
    return cluster


def test_a_quick_restart_moves_the_leaderships_of_a_broker() -> None:
    cluster = three_replicas()

    cluster.register(1)

    partition = cluster.partition()
    assert (partition.leader, partition.in_sync_replicas) == (2, (2, 3))
    assert partition.leader_epoch == 1


def test_commands_with_a_stale_broker_epoch_are_refused_or_ignored() -> None:
    cluster = three_replicas()
    old = cluster.broker(1).broker_epoch
    cluster.start(1)

    assert cluster.handle(FenceBroker(1, old)).records == []
    for command in (UnfenceBroker(1, old), BeginShutdown(1, old)):
        with pytest.raises(StaleBrokerEpochError, match=r"registered with epoch 4 after epoch 1"):
            cluster.handle(command)


def test_an_unknown_broker_must_register() -> None:
    cluster = Cluster()

    assert cluster.handle(FenceBroker(7, 1)).records == []
    with pytest.raises(StaleBrokerEpochError, match="broker 7 is not registered"):
        cluster.do(UnfenceBroker(7, 1))


def test_fencing_elects_leaders_and_removes_the_broker_from_the_isr() -> None:
    cluster = three_replicas()

    cluster.fence(1)

    partition = cluster.partition()
    assert partition.leader == 2
    assert partition.in_sync_replicas == (2, 3)
    assert partition.eligible_leader_replicas == ()
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)


def test_fencing_again_does_nothing() -> None:
    cluster = three_replicas()
    cluster.fence(1)

    assert cluster.handle(FenceBroker(1, cluster.broker(1).broker_epoch)).records == []


def test_fencing_many_leaderships_takes_two_records() -> None:
    cluster = Cluster(1, 2, 3)
    for name in ("a", "b", "c"):
        cluster.create(name, *([1, 2, 3] for _ in range(20)))

    outcome = cluster.handle(FenceBroker(1, cluster.broker(1).broker_epoch))

    changed, partitions = outcome.records
    assert changed == BrokerChanged(1, is_fenced=True, is_shutting_down=False)
    assert isinstance(partitions, PartitionsChanged)
    assert [len(topic.partitions) for topic in partitions.topics] == [20, 20, 20]


def very_many_partitions(level: int) -> MetadataStateMachine:
    """Return the state of three brokers with 1,000 topics, in which broker 1 leads."""
    cluster = Cluster(1, 2, 3)
    cluster.machine.apply(FeatureLevelSet(level))
    for number in range(1_000):
        topic_id = number.to_bytes(16, "big")
        partition = PartitionRegistration((1, 2, 3), (1, 2, 3), (), 1, 500, 500)
        cluster.machine.apply(TopicCreated(f"topic-{number}", topic_id, 1, {}))
        cluster.machine.apply(PartitionsAdded(topic_id, [partition]))
    return cluster.machine


def test_a_broker_with_very_many_partitions_is_fenced_and_unfenced_by_one_payload_each() -> None:
    """More than Raft takes at once, and the broker could never start again."""
    machine = very_many_partitions(5)
    epoch = machine.state.brokers[1].broker_epoch

    for command, leader in ((FenceBroker(1, epoch), 2), (UnfenceBroker(1, epoch), 2)):
        records = machine.handle(command, now_ms=NOW_MS).records
        size_of_each = len(encode_entry(records)) / 1_000
        assert size_of_each * 350_000 < RaftConfig().max_payload_bytes
        for record in decode_entry(encode_entry(records)).cluster:
            machine.apply(record)
        partition = machine.state.partition(bytes(16), 0)
        assert partition is not None
        assert partition.leader == leader
    assert machine.state.used_level == 5


def test_an_older_feature_level_has_no_records_of_equal_partitions() -> None:
    machine = very_many_partitions(4)

    command = FenceBroker(1, machine.state.brokers[1].broker_epoch)
    _, partitions = machine.handle(command, now_ms=NOW_MS).records

    assert isinstance(partitions, PartitionsChanged)
    assert len(partitions.topics) == 1_000


def test_unfencing_again_does_nothing() -> None:
    cluster = three_replicas()

    assert cluster.handle(UnfenceBroker(1, cluster.broker(1).broker_epoch)).records == []


@pytest.mark.invariant("I59")
def test_the_last_isr_members_stay_eligible_when_they_leave() -> None:
    """I59, I60, KIP-966: a replica that leaves a small ISR has all committed records."""
    cluster = three_replicas()

    cluster.fence(3)
    assert cluster.partition().eligible_leader_replicas == ()
    cluster.fence(2)
    assert cluster.partition().eligible_leader_replicas == (2,)
    cluster.fence(1)

    partition = cluster.partition()
    assert (partition.leader, partition.last_known_leader) == (None, 1)
    assert partition.in_sync_replicas == ()
    assert partition.eligible_leader_replicas == (1, 2)


@pytest.mark.invariant("I60")
def test_an_eligible_replica_leads_after_unfencing_and_an_ineligible_one_waits() -> None:
    cluster = three_replicas()
    cluster.fence(3, 2, 1)

    cluster.start(3)
    assert cluster.partition().leader is None

    cluster.start(2)
    partition = cluster.partition()
    assert (partition.leader, partition.in_sync_replicas) == (2, (2,))
    assert partition.eligible_leader_replicas == (1,)
    assert partition.last_known_leader is None


@pytest.mark.invariant("I59")
def test_the_last_isr_member_does_not_lead_after_an_unclean_stop() -> None:
    """I59: ISR {1, 2, 3} became {1}; 1 crashes and loses its tail; 2 has the records."""
    cluster = three_replicas(REPLICATED)
    cluster.fence(3, 2, 1)

    cluster.start(1, unclean=True)
    assert cluster.partition().leader is None
    assert cluster.partition().eligible_leader_replicas == (2,)

    cluster.start(2)
    assert cluster.partition().leader == 2


def test_under_fsync_an_unclean_stop_keeps_eligibility() -> None:
    cluster = three_replicas()
    cluster.fence(3, 2, 1)

    cluster.start(1, unclean=True)

    assert cluster.partition().eligible_leader_replicas == (1, 2)
    assert cluster.partition().leader is None
    assert cluster.report_log_end(1, 0, 5).leader is None, "broker 2 may have more"
    assert cluster.end_wait().leader == 1


@pytest.mark.invariant("I16")
def test_a_clean_stop_of_an_unregistered_process_does_not_cover_the_process_before() -> None:
    cluster = three_replicas(REPLICATED)
    cluster.fence(3, 2, 1)
    crashed = cluster.broker(1).broker_epoch

    cluster.do(replace(cluster.registration(1), clean_stop_epoch=crashed - 1))

    assert cluster.partition().eligible_leader_replicas == (2,)


def test_an_unclean_stop_before_fencing_counts_as_well() -> None:
    cluster = three_replicas(REPLICATED)
    cluster.fence(3)

    cluster.register(2, unclean=True)

    assert cluster.partition().in_sync_replicas == (1,)
    assert cluster.partition().eligible_leader_replicas == ()


def test_a_broker_with_another_disk_is_eligible_nowhere() -> None:
    cluster = three_replicas()
    cluster.fence(3, 2, 1)

    cluster.register(1, disk_id="replaced")
    cluster.unfence(1)

    assert cluster.partition().leader is None
    assert cluster.partition().eligible_leader_replicas == (2,)


def test_a_disk_that_was_replaced_and_comes_back_is_another_disk_again() -> None:
    cluster = three_replicas()
    cluster.fence(3, 1)
    cluster.register(1, disk_id="replaced")
    cluster.unfence(1)
    cluster.in_sync(1, 2)
    cluster.fence(2, 1)

    cluster.register(1, disk_id="disk-1")
    cluster.unfence(1)

    assert cluster.partition().leader is None
    assert cluster.partition().eligible_leader_replicas == (2,)


def test_the_only_replica_leads_again_after_an_unclean_stop_but_not_on_an_empty_disk() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1], overrides=REPLICATED)

    cluster.start(1, unclean=True)
    assert cluster.partition().leader == 1

    cluster.fence(1)
    cluster.register(1, disk_id="empty")
    cluster.unfence(1)
    assert cluster.partition().leader is None


def test_the_only_replica_leads_again_during_a_reassignment() -> None:
    cluster = Cluster(1, 2)
    topic_id = cluster.create("orders", [1], overrides=REPLICATED)
    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [1, 2])]))

    cluster.start(1, unclean=True)

    assert cluster.partition().eligible_leader_replicas == (1,)
    assert cluster.report_log_end(1, 0, 5).leader == 1


def test_a_new_replica_in_the_isr_leads_before_one_with_an_unclean_stop() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1], overrides=REPLICATED)
    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [1, 2, 3])]))
    cluster.in_sync(1, 2)

    cluster.start(1, unclean=True)

    partition = cluster.partition()
    assert (partition.leader, partition.in_sync_replicas) == (2, (2,))
    assert partition.eligible_leader_replicas == ()


def test_a_change_to_fsync_does_not_make_earlier_records_durable() -> None:
    cluster = three_replicas(REPLICATED)
    alter = {"durability": "fsync"}
    cluster.do(alter_topic("orders", alter))
    cluster.fence(3, 2, 1)

    cluster.register(1, unclean=True)
    assert cluster.partition().eligible_leader_replicas == (2,)

    cluster.start(2)
    cluster.start(1)
    cluster.in_sync(2, 1)
    cluster.fence(2, 1)
    cluster.start(1, unclean=True)
    assert 1 in cluster.partition().eligible_leader_replicas, "its last process began later"


def alter_topic(name: str, overrides: dict[str, str]) -> AlterTopic:
    return AlterTopic(name, overrides, [])


def test_a_controlled_shutdown_moves_leaderships_first() -> None:
    cluster = three_replicas()

    progress = cluster.shut_down(1)

    assert progress == ShutdownProgress(0)
    partition = cluster.partition()
    assert (partition.leader, partition.in_sync_replicas) == (2, (2, 3))


def test_a_repeated_controlled_shutdown_changes_nothing() -> None:
    cluster = three_replicas()
    cluster.shut_down(1)

    command = BeginShutdown(1, cluster.broker(1).broker_epoch)

    assert cluster.handle(command).records == []


def test_a_controlled_shutdown_keeps_leaderships_without_another_candidate() -> None:
    cluster = three_replicas()
    cluster.in_sync(1)
    cluster.fence(2, 3)

    assert cluster.shut_down(1) == ShutdownProgress(1)
    assert cluster.partition().leader == 1

    cluster.start(2)
    assert cluster.partition().leader == 2, "it was eligible, and takes over"
    assert cluster.shut_down(1) == ShutdownProgress(0)


def test_a_leader_in_shutdown_hands_over_to_a_follower_that_catches_up() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2])
    cluster.in_sync(1)
    cluster.shut_down(1)
    assert cluster.partition().leader == 1

    partition = cluster.in_sync(1, 2)

    assert (partition.leader, partition.in_sync_replicas) == (2, (2,))


def test_a_broker_in_shutdown_is_not_unfenced() -> None:
    cluster = three_replicas()
    cluster.shut_down(1)
    cluster.fence(1)

    cluster.unfence(1)
    assert cluster.broker(1).is_fenced

    cluster.start(1)
    assert cluster.broker(1).can_lead


def test_a_stopped_broker_without_replicas_can_be_unregistered() -> None:
    cluster = three_replicas()
    cluster.start(4)

    with pytest.raises(InvalidRequestError, match="broker 1 is alive at host-1:8433; stop it"):
        cluster.do(UnregisterBroker(1))
    cluster.fence(1)
    with pytest.raises(InvalidRequestError, match="broker 1 still has 1 replicas; move them"):
        cluster.do(UnregisterBroker(1))
    topic_id = cluster.state.catalog.topic("orders").topic_id
    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [4, 2, 3])]))
    cluster.in_sync(4, 2, 3)
    cluster.do(UnregisterBroker(1))

    assert 1 not in cluster.state.brokers
    assert cluster.handle(UnregisterBroker(1)).records == []


def test_a_disk_of_an_unregistered_broker_may_get_another_node_id() -> None:
    cluster = Cluster(1)
    cluster.fence(1)
    cluster.do(UnregisterBroker(1))

    cluster.register(2, disk_id="disk-1")

    assert cluster.broker(2).broker_epoch == 2


def test_a_drained_broker_stays_drained_through_restarts_until_cancelled() -> None:
    cluster = three_replicas()

    cluster.do(DrainBroker(2))
    cluster.start(2)

    assert list(cluster.state.drained_node_ids) == [2]
    assert ClusterState.from_snapshot(cluster.state.snapshot()).drained_node_ids == {2}
    assert cluster.handle(DrainBroker(2)).records == []
    cluster.do(DrainBroker(2, is_drained=False))
    assert not cluster.state.drained_node_ids
    assert cluster.handle(DrainBroker(2, is_drained=False)).records == []


def test_a_broker_that_registers_after_unregistration_is_not_drained() -> None:
    cluster = Cluster(1, 2)
    cluster.do(DrainBroker(2))
    cluster.fence(2)
    cluster.do(UnregisterBroker(2))

    cluster.start(2)

    assert not cluster.state.drained_node_ids


def test_settings_of_an_unregistered_broker_are_removed() -> None:
    cluster = Cluster(1, 2)
    both = {"log_flush_interval_ms@1": "1s", "log_flush_interval_ms@2": "2s"}
    cluster.do(AlterClusterConfig(both, []))
    assert cluster.state.config.by_node[2] == {"log_flush_interval_ms": 2000}
    cluster.fence(2)
    cluster.do(UnregisterBroker(2))

    cluster.start(2)

    assert cluster.state.overrides == {"log_flush_interval_ms@1": "1s"}
    assert ClusterState.from_snapshot(cluster.state.snapshot()).config == cluster.state.config


def test_a_stopping_broker_is_unregistered_when_its_session_has_ended() -> None:
    cluster = Cluster(1, 2)
    with pytest.raises(InvalidRequestError, match=r"broker 2 is alive at .*; stop it first"):
        cluster.do(UnregisterBroker(2))
    cluster.shut_down(2)
    with pytest.raises(InvalidRequestError, match=r"is stopping at .*; try again when its session"):
        cluster.do(UnregisterBroker(2))

    cluster.fence(2)
    cluster.do(UnregisterBroker(2))

    assert list(cluster.state.brokers) == [1]


def test_an_unknown_broker_and_the_last_undrained_one_are_not_drained() -> None:
    cluster = Cluster(1, 2)

    with pytest.raises(InvalidRequestError, match="there is no broker 9; there are 1, 2"):
        cluster.do(DrainBroker(9))
    cluster.do(DrainBroker(2))
    with pytest.raises(InvalidRequestError, match="; end the draining of another broker first"):
        cluster.do(DrainBroker(1))
    cluster.do(DrainBroker(2, is_drained=False))
    cluster.do(DrainBroker(1))


def test_a_drained_broker_gets_no_replicas_of_new_topics_partitions_and_moves() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2])
    cluster.do(DrainBroker(3))

    cluster.do(CreateReplicatedTopic("payments", b"p" * 16, 6, {}))
    cluster.do(AddPartitions("orders", 4))
    used = {
        node
        for topic in cluster.state.catalog.topics
        for partition in cluster.state.partitions(topic.topic_id)
        for node in partition.replicas
    }
    assert used == {1, 2}

    (answer,) = cluster.answer(
        PartitionAnswers, ReassignReplicas([Reassignment(topic_id, 0, [1, 3])])
    ).answers
    assert answer.error is not None
    assert "broker 3 is drained and gets no replicas" in answer.error.message
    with pytest.raises(InvalidTopicError, match="brokers that are not drained, of which there a"):
        cluster.do(CreateReplicatedTopic("three", b"3" * 16, 1, {}, 3))
    with pytest.raises(InvalidTopicError, match="broker 3 is drained"):
        cluster.do(CreateReplicatedTopic("there", b"t" * 16, 1, {}, assignment=[[3]]))


def test_replicas_that_a_drained_broker_has_may_stay_while_others_move() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 3])
    cluster.do(DrainBroker(3))

    (answer,) = cluster.answer(
        PartitionAnswers, ReassignReplicas([Reassignment(topic_id, 0, [2, 3])])
    ).answers

    assert answer.error is None
