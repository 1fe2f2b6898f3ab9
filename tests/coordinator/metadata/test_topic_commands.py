"""Topic commands: creation, placement, growth, settings and deletion."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.catalog import (
    PRODUCER_ID_BLOCK,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TakeProducerIds,
    TopicCreated,
)
from tidelog.coordinator.metadata.commands import (
    AddPartitions,
    AlterClusterConfig,
    CreateReplicatedTopic,
    ProducerIds,
    TopicAnswer,
)
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidTopicError,
    LeaderNotAvailableError,
    TopicExistsError,
    UnknownTopicError,
)

ID = b"0123456789abcdef"
OTHER_ID = b"fedcba9876543210"


def creation(
    *,
    partitions: int = 1,
    factor: int | None = None,
    assignment: list[list[int]] | None = None,
    overrides: dict[str, str] | None = None,
) -> CreateReplicatedTopic:
    return CreateReplicatedTopic("orders", ID, partitions, overrides or {}, factor, assignment)


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_a_topic_has_three_replicas_in_a_cluster_of_three_brokers(
    brokers: int, replicas: int
) -> None:
    cluster = Cluster(*range(1, brokers + 1))

    cluster.do(CreateTopic("orders", ID, 4, {}))

    for number in range(4):
        partition = cluster.partition(number=number)
        assert len(partition.replicas) == replicas
        assert partition.in_sync_replicas == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_the_cluster_default_replication_factor_holds_for_new_topics() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.do(AlterClusterConfig({"default_replication_factor": "2"}, []))

    cluster.do(creation())

    assert len(cluster.partition().replicas) == 2


def test_a_repeated_creation_is_one_topic_after_broker_changes() -> None:
    cluster = Cluster(1, 2, 3)
    assert cluster.do(creation()) == TopicAnswer(ID)
    cluster.fence(1, 2, 3)

    outcome = cluster.handle(creation())

    assert (outcome.records, outcome.reply) == ([], TopicAnswer(ID))


def test_a_late_repeated_creation_does_not_restore_a_deleted_topic() -> None:
    cluster = Cluster(1)
    cluster.do(creation())
    cluster.do(DeleteTopic("orders", ID))

    assert cluster.handle(creation()).records == []


@pytest.mark.invariant("I64")
def test_a_recreated_topic_has_no_state_of_the_old_one() -> None:
    """I64: a topic is its id."""
    cluster = Cluster(1, 2, 3)
    cluster.do(creation(partitions=5, overrides={"retention_ms": "1h"}))
    cluster.fence(1)
    cluster.do(DeleteTopic("orders"))

    cluster.do(CreateTopic("orders", OTHER_ID, 1, {}))

    assert cluster.state.partitions(ID) == ()
    assert len(cluster.state.partitions(OTHER_ID)) == 1
    assert cluster.partition().partition_epoch == 0
    assert cluster.handle(DeleteTopic("orders", ID)).records == []
    assert cluster.state.catalog.topic("orders").topic_id == OTHER_ID


def test_a_repeated_deletion_succeeds_with_the_topic_id() -> None:
    cluster = Cluster(1)
    cluster.do(creation())
    cluster.do(DeleteTopic("orders", ID))

    assert cluster.handle(DeleteTopic("orders", ID)).reply == TopicAnswer(ID)
    with pytest.raises(UnknownTopicError, match="no topic 'orders'"):
        cluster.handle(DeleteTopic("orders"))


def test_a_topic_can_be_created_with_a_manual_assignment() -> None:
    cluster = Cluster(1, 2, 3)

    cluster.do(creation(partitions=2, assignment=[[3, 1], [1, 2]]))

    assert cluster.partition(number=0) == PartitionRegistration((3, 1), (3, 1), leader=3)
    assert cluster.partition(number=1) == PartitionRegistration((1, 2), (1, 2), leader=1)


def test_a_replica_on_a_fenced_broker_starts_outside_the_isr() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.fence(3)

    cluster.do(creation(assignment=[[3, 1, 2]]))

    assert cluster.partition() == PartitionRegistration((3, 1, 2), (1, 2), leader=1)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (creation(factor=4), "4 replicas are not possible: .* of which there are 3"),
        (creation(factor=0), "0 replicas are not possible"),
        (creation(partitions=0), "0 partitions are not possible"),
        (creation(partitions=10**9), "1000000000 partitions are not possible"),
        (creation(factor=1, assignment=[[1]]), "as a number or broker by broker, not both"),
        (creation(assignment=[]), "given for 0 partitions, there are to be 1"),
        (creation(assignment=[[1], [2]]), "given for 2 partitions, there are to be 1"),
        (creation(assignment=[[]]), "partition 0 must have at least one replica"),
        (creation(assignment=[[1, 1]]), "two replicas on one broker: 1, 1"),
        (creation(assignment=[[1, 9]]), "a replica on broker 9: there are brokers 1, 2, 3"),
        (
            creation(partitions=2, assignment=[[1], [1, 2]]),
            "partition 1 has 2 replicas and partition 0 has 1",
        ),
    ],
)
def test_an_invalid_topic_creation_is_refused(command: CreateReplicatedTopic, reason: str) -> None:
    with pytest.raises(InvalidTopicError, match=reason):
        Cluster(1, 2, 3).do(command)


def test_a_topic_without_a_live_broker_is_refused() -> None:
    cluster = Cluster(1, 2)
    cluster.fence(1)

    with pytest.raises(InvalidTopicError, match="none of its replicas is alive, brokers 1"):
        cluster.do(creation(assignment=[[1]]))
    cluster.fence(2)
    with pytest.raises(LeaderNotAvailableError, match="no live broker can lead"):
        cluster.do(creation())


def test_a_cluster_without_brokers_has_no_topics() -> None:
    with pytest.raises(InvalidTopicError, match="of which there are 0"):
        Cluster().do(creation())


def test_a_name_that_is_taken_is_refused() -> None:
    cluster = Cluster(1)
    cluster.do(creation())

    with pytest.raises(TopicExistsError, match="'orders' already"):
        cluster.do(CreateTopic("orders", OTHER_ID, 1, {}))


def test_min_insync_replicas_above_the_replicas_of_a_new_topic_is_refused() -> None:
    cluster = Cluster(1, 2, 3)

    with pytest.raises(InvalidConfigError, match="is 3, it must be at most 2, the number of"):
        cluster.do(creation(factor=2, overrides={"min_insync_replicas": "3"}))
    cluster.do(creation(factor=2, overrides={"min_insync_replicas": "2"}))
    with pytest.raises(InvalidConfigError, match="is 3, it must be at most 2"):
        cluster.do(AlterTopic("orders", {"min_insync_replicas": "3"}, []))


def test_added_partitions_keep_the_existing_ones() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.do(creation(partitions=2, factor=2))
    before = list(cluster.state.partitions(ID))

    cluster.do(AddPartitions("orders", 5))

    assert list(cluster.state.partitions(ID))[:2] == before
    assert [len(partition.replicas) for partition in cluster.state.partitions(ID)] == [2] * 5
    assert cluster.state.catalog.topic("orders").partition_count == 5
    assert cluster.handle(AddPartitions("orders", 5)).records == []
    with pytest.raises(InvalidTopicError, match="has 5 partitions; it cannot have fewer"):
        cluster.do(AddPartitions("orders", 4))
    with pytest.raises(InvalidTopicError, match="1 to 10000 are"):
        cluster.do(AddPartitions("orders", 10_001))


@pytest.mark.invariant("I60")
def test_a_lower_min_insync_replicas_removes_eligibility() -> None:
    """I60: once two of three are enough, the third may miss records that those two committed."""
    cluster = Cluster(1, 2, 3)
    cluster.do(creation(assignment=[[1, 2, 3]], overrides={"min_insync_replicas": "3"}))
    cluster.fence(3)
    assert cluster.partition().eligible_leader_replicas == (3,)

    cluster.do(AlterTopic("orders", {"min_insync_replicas": "2"}, []))

    assert cluster.partition().eligible_leader_replicas == ()
    assert cluster.partition().leader_epoch == 0


def test_a_lower_cluster_min_insync_replicas_removes_eligibility() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.do(creation(assignment=[[1, 2, 3]]))
    cluster.fence(3, 2)
    assert cluster.partition().eligible_leader_replicas == (2,)

    cluster.do(AlterClusterConfig({"min_insync_replicas": "1"}, []))
    assert cluster.partition().eligible_leader_replicas == ()

    cluster.do(AlterClusterConfig({}, ["min_insync_replicas"]))
    assert cluster.state.overrides == {}


def test_a_change_of_settings_that_changes_nothing_writes_nothing() -> None:
    cluster = Cluster(1)
    cluster.do(creation())

    assert cluster.handle(AlterTopic("orders", {}, ["retention_ms"])).records == []
    assert cluster.handle(AlterClusterConfig({}, ["default_replication_factor"])).records == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            AlterClusterConfig({"colour": "red"}, []),
            "no cluster setting 'colour'; there are default_",
        ),
        (AlterClusterConfig({}, ["colour"]), "no cluster setting 'colour'"),
        (AlterClusterConfig({"default_replication_factor": "16"}, []), "it must be at most 15"),
        (AlterClusterConfig({"default_replication_factor": "few"}, []), "it must be a number"),
        (
            AlterClusterConfig({"default_replication_factor": "1"}, ["default_replication_factor"]),
            "set and reset",
        ),
    ],
)
def test_a_wrong_setting_of_the_cluster_is_refused(
    command: AlterClusterConfig, reason: str
) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        Cluster(1).do(command)


def test_producer_ids_are_given_in_blocks() -> None:
    cluster = Cluster()

    first = cluster.do(TakeProducerIds())
    second = cluster.do(TakeProducerIds())

    assert first == ProducerIds(1, 1 + PRODUCER_ID_BLOCK)
    assert second == ProducerIds(1 + PRODUCER_ID_BLOCK, 1 + 2 * PRODUCER_ID_BLOCK)


def test_topics_of_a_single_node_are_assigned_to_the_first_broker_of_the_cluster() -> None:
    """A single node's log is the start of a cluster's log."""
    cluster = Cluster()
    for machine in (cluster.machine, cluster.image, cluster.follower):
        machine.apply(TopicCreated("orders", ID, 2, {"retention_ms": "1h"}))

    cluster.start(1)

    expected = PartitionRegistration((1,), (1,), leader=1, leader_epoch=1, partition_epoch=1)
    assert list(cluster.state.partitions(ID)) == [expected, expected]
    cluster.start(2)
    assert list(cluster.state.partitions(ID)) == [expected, expected]
