"""Queue commands: creation, colocation of journals, settings and deletion."""

import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tests.coordinator.metadata.queues import KEY, creation, make
from tidelog.coordinator.metadata.catalog import AlterTopic, Catalog, CreateTopic, DeleteTopic
from tidelog.coordinator.metadata.commands import (
    AddPartitions,
    AlterClusterConfig,
    AlterQueue,
    CommandOutcome,
    DeleteQueue,
    QueueAnswer,
)
from tidelog.isr.durability import Durability
from tidelog.wire.config.queue_config import ReceiveAcks
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    QueueExistsError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
)


def test_a_queue_is_colocated_with_its_topic_and_starts_at_its_start_offsets() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2, 3], [3, 1, 2])

    journal = make(cluster, creation(cluster, "billing", "orders", visibility_timeout_ms="1min"))

    assert (journal.name, journal.queue_name) == ("queue@billing", "billing")
    assert journal.queue is not None
    assert (journal.queue.source_topic_id, journal.queue.start_offsets) == (topic_id, (7, 7))
    assert (journal.queue.created_at_ms, journal.queue.receipt_key) == (NOW_MS, KEY)
    assert journal.queue_config is not None
    assert journal.queue_config.visibility_timeout_ms == 60_000
    assert journal.config.log.retention_ms is None
    partitions = cluster.state.partitions(journal.topic_id)
    assert [each.replicas for each in partitions] == [(1, 2, 3), (3, 1, 2)]
    assert [each.leader for each in partitions] == [1, 3]
    assert all(each.in_sync_replicas == each.replicas for each in partitions)


def test_metadata_have_durations_in_forms_that_older_versions_read() -> None:
    """An older broker would stop at `1w`, and so would its clients."""
    cluster = Cluster(1)
    cluster.create("orders", [1], overrides={"retention_ms": "1w"})
    command = creation(cluster, "billing", "orders", retention_ms="1week", retry_backoff="1m30s")
    make(cluster, command)
    cluster.do(AlterTopic("orders", {"segment_ms": "1d12h"}, []))
    cluster.do(AlterQueue("billing", {"visibility_timeout_ms": "1h30m"}, []))
    cluster.do(AlterClusterConfig({"recovery_election_wait_ms": "1m1s"}, []))

    expected = {"retention_ms": "7d", "segment_ms": "36h"}
    assert cluster.state.catalog.topic("orders").overrides == expected
    (journal,) = cluster.state.catalog.journals
    assert journal.queue is not None
    assert journal.queue.overrides == {
        "retention_ms": "7d",
        "retry_backoff": "90s",
        "visibility_timeout_ms": "90min",
    }
    assert cluster.state.overrides == {"recovery_election_wait_ms": "61s"}
    again = replace(command, queue_id=bytes(range(16)), topic_id=journal.source_id)
    with pytest.raises(QueueExistsError, match="visibility_timeout_ms is 90min, not 30s"):
        cluster.do(again)


def test_a_queue_creates_its_topic_if_there_is_none() -> None:
    cluster = Cluster(1, 2, 3)
    command = replace(
        creation(cluster, "orders", partitions=4), topic_overrides={"durability": "replicated"}
    )

    outcome = cluster.handle(command)
    journal = make(cluster, command)

    assert len(outcome.records) == 4, "topic, its partitions, journal, its partitions"
    topic = cluster.state.catalog.topic("orders")
    assert (topic.topic_id, topic.partition_count) == (command.new_topic_id, 4)
    assert journal.queue is not None
    assert journal.queue.start_offsets == (0, 0, 0, 0)
    assert topic.config.durability is journal.config.durability is Durability.REPLICATED


def test_a_topic_created_with_a_queue_has_one_partition_by_default() -> None:
    cluster = Cluster(1)

    make(cluster, creation(cluster, "orders"))

    assert cluster.state.catalog.topic("orders").partition_count == 1


def test_a_topic_created_with_a_queue_has_the_retention_of_the_queue() -> None:
    cluster = Cluster(1)

    make(cluster, creation(cluster, "short", retention_ms="1min"))
    make(cluster, creation(cluster, "long", retention_ms="14d"))
    make(cluster, creation(cluster, "endless", retention_ms="unlimited"))

    catalog = cluster.state.catalog
    assert catalog.topic("short").overrides == {}
    assert catalog.topic("long").config.log.retention_ms == 14 * 86_400_000
    assert catalog.topic("endless").config.log.retention_ms is None


@pytest.mark.statement("b97")
def test_a_topic_created_with_a_queue_keeps_records_for_delay_and_retention() -> None:
    cluster = Cluster(1)

    make(cluster, creation(cluster, "late", retention_ms="4d", delivery_delay_ms="10d"))

    topic = cluster.state.catalog.topic("late")
    assert topic.config.log.retention_ms == 14 * 86_400_000


@pytest.mark.statement("b97")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"retention_ms": "3d"}, "has retention_ms 3d, and topic 'orders' .* retention_ms 2d:"),
        ({"delivery_delay_ms": "2d"}, "has delivery_delay_ms 2d, and .* retention_ms 2d"),
        (
            {"delivery_delay_ms": "1d", "retention_ms": "25h"},
            "has delivery_delay_ms 1d and retention_ms 25h, and topic 'orders' .* 2d",
        ),
    ],
)
def test_a_queue_cannot_promise_more_than_its_topic_keeps(
    settings: dict[str, str], text: str
) -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1], overrides={"retention_ms": "2d"})
    make(cluster, creation(cluster, "billing", "orders"))

    with pytest.raises(InvalidConfigError, match=text):
        cluster.handle(replace(creation(cluster, "shipping", "orders"), overrides=settings))
    with pytest.raises(InvalidConfigError, match=text):
        cluster.handle(AlterQueue("billing", settings, []))

    cluster.do(AlterTopic("orders", {"retention_ms": "30d"}, []))
    cluster.do(AlterQueue("billing", settings, []))
    with pytest.raises(InvalidConfigError, match=text):
        cluster.handle(AlterTopic("orders", {"retention_ms": "2d"}, []))


@pytest.mark.statement("b97")
@pytest.mark.parametrize("settings", [{}, {"retention_ms": "unlimited"}, {"retention_ms": "2d"}])
def test_a_queue_without_a_longer_retention_follows_its_topic(settings: dict[str, str]) -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1], overrides={"retention_ms": "2d"})

    make(cluster, replace(creation(cluster, "billing", "orders"), overrides=settings))

    cluster.do(AlterTopic("orders", {"segment_bytes": "1MiB"}, []))


def test_a_topic_with_queues_cannot_be_compacted() -> None:
    cluster = Cluster(1)
    cluster.create("states", [1], overrides={"cleanup_policy": "compact"})
    compacted = {"cleanup_policy": "delete,compact"}

    with pytest.raises(InvalidConfigError, match=r"'states' cannot be compacted and have queues"):
        cluster.handle(creation(cluster, "billing", "states"))
    with pytest.raises(InvalidConfigError, match=r"and have queues \(orders\)"):
        cluster.handle(replace(creation(cluster, "orders"), topic_overrides=compacted))
    make(cluster, creation(cluster, "jobs"))
    with pytest.raises(InvalidConfigError, match=r"'jobs' cannot be .* queues \(jobs\)"):
        cluster.handle(AlterTopic("jobs", compacted, []))

    cluster.do(AlterTopic("states", {}, ["cleanup_policy"]))
    make(cluster, creation(cluster, "billing", "states"))


def test_a_named_topic_is_created_only_with_a_partition_count() -> None:
    cluster = Cluster(1)

    with pytest.raises(UnknownTopicError, match="no topic 'ordres'; create it first"):
        cluster.handle(creation(cluster, "billing", "ordres"))
    make(cluster, creation(cluster, "billing", "orders", partitions=2))

    assert cluster.state.catalog.topic("orders").partition_count == 2


def test_a_repeated_creation_is_one_queue_and_does_not_restore_a_deleted_one() -> None:
    cluster = Cluster(1)
    command = creation(cluster, "orders")
    first = cluster.do(command)

    again = cluster.handle(command)
    cluster.do(DeleteQueue("orders"))
    late = cluster.handle(command)

    assert (again.records, again.reply) == ([], first)
    assert late == CommandOutcome([], QueueAnswer(command.queue_id, b""))


@pytest.mark.statement("b68")
def test_an_existing_queue_that_matches_the_request_is_accepted() -> None:
    """Of queue semantics, statement 68."""
    cluster = Cluster(1)
    cluster.create("orders", [1])
    journal = make(cluster, creation(cluster, "q", "orders", visibility_timeout_ms="1min"))

    same = cluster.answer(
        QueueAnswer, creation(cluster, "q", "orders", visibility_timeout_ms="60s", partitions=1)
    )

    assert same == QueueAnswer(journal.topic_id, journal.source_id)


@pytest.mark.statement("b68")
@pytest.mark.parametrize(
    ("topic", "fifo", "partitions", "overrides", "difference"),
    [
        (
            "orders",
            False,
            None,
            {"priority_weights": "2"},
            "and its priority_weights is none, not 2",
        ),
        ("other", False, None, {}, "and its topic is 'orders', not 'other'"),
        ("orders", True, None, {}, "and it is not FIFO"),
        ("orders", False, 2, {}, "and it has 1 partitions, not 2"),
    ],
)
def test_an_existing_queue_that_differs_is_refused_with_the_difference(
    topic: str, *, fifo: bool, partitions: int | None, overrides: dict[str, str], difference: str
) -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    make(cluster, creation(cluster, "q", "orders"))

    with pytest.raises(QueueExistsError, match=difference):
        cluster.handle(creation(cluster, "q", topic, fifo=fifo, partitions=partitions, **overrides))


def test_a_fifo_queue_is_compared_by_its_deduplication_scope() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1], [1])
    make(cluster, creation(cluster, "q", "orders", fifo=True))

    cluster.do(creation(cluster, "q", "orders", fifo=True))
    cluster.do(creation(cluster, "q", "orders", fifo=True, deduplication_scope="group"))

    journal = cluster.state.catalog.journal("q")
    assert journal.queue is not None
    assert (journal.queue.frozen, journal.queue.overrides) == (
        {"deduplication_scope": "group"},
        {},
    )
    with pytest.raises(QueueExistsError, match="it is FIFO"):
        cluster.handle(creation(cluster, "q", "orders"))


def test_start_offsets_from_another_topic_are_refused() -> None:
    cluster = Cluster(1)
    before = creation(cluster, "q", "orders", partitions=1)
    cluster.create("orders", [1])
    known = creation(cluster, "q", "orders")

    with pytest.raises(TopicExistsError, match="exists; give its id"):
        cluster.handle(before)
    with pytest.raises(InvalidTopicError, match="has 1 partitions, not 3"):
        cluster.handle(replace(known, partition_count=3))
    with pytest.raises(InvalidRequestError, match="2 start offsets were given"):
        cluster.handle(replace(known, start_offsets=[0, 0]))
    with pytest.raises(InvalidRequestError, match="cannot be below 0"):
        cluster.handle(replace(known, start_offsets=[-1]))
    cluster.do(DeleteTopic("orders"))
    with pytest.raises(UnknownTopicError, match="no topic 'orders'"):
        cluster.handle(known)
    cluster.create("orders", [1])
    with pytest.raises(UnknownTopicError, match="another topic has the name now"):
        cluster.handle(known)


def test_ids_and_keys_have_their_lengths() -> None:
    cluster = Cluster(1)
    command = creation(cluster, "q")

    for wrong in (
        replace(command, queue_id=b"short"),
        replace(command, receipt_key=b"short"),
        replace(command, new_topic_id=command.queue_id),
    ):
        with pytest.raises(InvalidRequestError, match="receipt keys have 32"):
            cluster.handle(wrong)
    with pytest.raises(InvalidRequestError, match="cannot be the name of a queue"):
        cluster.handle(replace(command, name="queue@q"))


def test_a_journal_is_led_by_the_leader_of_its_topic() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.fence(1)
    cluster.start(1)

    journal = make(cluster, creation(cluster, "q", "orders"))

    (partition,) = cluster.state.partitions(journal.topic_id)
    assert partition.leader == cluster.partition("orders").leader == 2
    assert partition.in_sync_replicas == (1, 2, 3)


def test_a_journal_without_a_live_replica_is_not_created() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [2])
    cluster.fence(2)

    with pytest.raises(LeaderNotAvailableError, match="none of its replicas is alive"):
        cluster.handle(creation(cluster, "q", "orders"))


def test_topic_commands_refuse_a_journal() -> None:
    cluster = Cluster(1)
    make(cluster, creation(cluster, "q"))

    for command in (
        AlterTopic("queue@q", {"retention_ms": "1h"}, []),
        DeleteTopic("queue@q"),
        AddPartitions("queue@q", 3),
    ):
        with pytest.raises(InvalidTopicError, match="which only brokers read and write; see"):
            cluster.handle(command)
    with pytest.raises(InvalidTopicError, match="1 to 249 of the characters"):
        cluster.handle(CreateTopic("queue@x", bytes(16), 1, {}))


def test_a_topic_with_queues_is_not_deleted() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    for name in ("b", "a"):
        make(cluster, creation(cluster, name, "orders"))

    with pytest.raises(InvalidRequestError, match="'orders' has queues: a, b; delete them first"):
        cluster.handle(DeleteTopic("orders"))


def test_queues_grow_with_their_topic_and_start_new_partitions_at_zero() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2, 3])
    before = [make(cluster, creation(cluster, name, "orders")) for name in ("b", "a")]

    cluster.do(AddPartitions("orders", 3))

    for known in before:
        journal = cluster.state.catalog.journal(known.queue_name)
        assert journal.queue is not None
        assert (journal.partition_count, journal.queue.start_offsets) == (3, (7, 0, 0))
        beside = cluster.state.partitions(journal.topic_id)
        assert [each.replicas for each in beside] == [
            each.replicas for each in cluster.state.partitions(topic_id)
        ]
        assert all(each.leader is not None for each in beside)
    restored = Catalog.from_snapshot(cluster.state.catalog.snapshot())
    assert restored.journal("a") == cluster.state.catalog.journal("a")


def test_a_topic_with_fifo_queues_gets_no_partitions() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    make(cluster, creation(cluster, "any", "orders"))
    make(cluster, replace(creation(cluster, "ordered", "orders"), is_fifo=True))

    with pytest.raises(
        InvalidTopicError, match="keeps its 1 partitions as long as it has FIFO queues: ordered"
    ):
        cluster.handle(AddPartitions("orders", 2))

    assert cluster.handle(AddPartitions("orders", 1)).records == []


def test_shared_topic_settings_change_with_the_journals_in_one_entry() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    make(cluster, creation(cluster, "q", "orders", priority_weights="2"))
    cluster.fence(2, 3)
    assert cluster.partition("queue@q", 0).eligible_leader_replicas == (3,)

    outcome = cluster.handle(
        AlterTopic("orders", {"min_insync_replicas": "1", "durability": "replicated"}, [])
    )
    cluster.do(AlterTopic("orders", {"min_insync_replicas": "1", "durability": "replicated"}, []))

    assert len(outcome.records) == 3, "topic, journal, and the partitions of both"
    journal = cluster.state.catalog.journal("q")
    assert journal.config.durability is Durability.REPLICATED
    assert journal.config.min_insync_replicas == 1
    assert journal.queue_config is not None
    assert journal.queue_config.priority_weights == (2,)
    assert cluster.partition("queue@q", 0).eligible_leader_replicas == ()
    cluster.do(AlterTopic("orders", {"retention_ms": "1h"}, ["durability"]))
    journal = cluster.state.catalog.journal("q")
    assert journal.config.durability is Durability.FSYNC
    assert journal.config.log.retention_ms is None


def test_queue_settings_are_changed_and_reset() -> None:
    cluster = Cluster(1)
    make(cluster, creation(cluster, "q", priority_weights="2"))

    cluster.do(AlterQueue("q", {"max_receive_count": "5"}, ["priority_weights"]))

    journal = cluster.state.catalog.journal("q")
    assert journal.queue is not None
    assert journal.queue.overrides == {"max_receive_count": "5"}
    assert journal.queue.receipt_key == KEY
    assert journal.queue_config is not None
    assert (journal.queue_config.max_receive_count, journal.queue_config.priority_weights) == (
        5,
        (),
    )
    assert cluster.handle(AlterQueue("q", {"max_receive_count": "5"}, [])).records == []


@pytest.mark.parametrize(
    ("changes", "resets", "reason"),
    [
        ({"deduplication_scope": "group"}, [], "cannot be changed: it is set when a queue"),
        ({}, ["deduplication_scope"], "cannot be changed"),
        ({"fifo": "on"}, [], "fifo cannot be changed: it is set when"),
        ({"priority_weights": "2"}, ["priority_weights"], "set and reset at the same time"),
        ({"colour": "red"}, [], "no queue setting 'colour'"),
        ({}, ["colour"], "no queue setting 'colour'"),
        ({"retention_ms": "1s"}, [], "at least 60000"),
    ],
)
def test_an_immutable_queue_setting_is_refused(
    changes: dict[str, str], resets: list[str], reason: str
) -> None:
    cluster = Cluster(1)
    make(cluster, creation(cluster, "q"))

    with pytest.raises(InvalidConfigError, match=reason):
        cluster.handle(AlterQueue("q", changes, resets))


def test_a_command_for_an_unknown_queue_is_refused() -> None:
    cluster = Cluster(1)

    for command in (AlterQueue("nope", {}, []), DeleteQueue("nope")):
        with pytest.raises(UnknownQueueError, match="no queue 'nope'; create it first"):
            cluster.handle(command)


@pytest.mark.statement("b37")
def test_a_dead_letter_queue_is_of_the_same_kind() -> None:
    """Of queue semantics, statement 37."""
    cluster = Cluster(1)
    make(cluster, creation(cluster, "dead"))

    journal = make(cluster, creation(cluster, "q", dead_letter_queue="dead"))

    assert journal.queue_config is not None
    assert journal.queue_config.receive_acks is ReceiveAcks.ALL
    with pytest.raises(UnknownQueueError, match="no dead-letter queue 'nope'; create"):
        cluster.handle(creation(cluster, "r", dead_letter_queue="nope"))
    with pytest.raises(InvalidConfigError, match="'r' is a FIFO queue and 'dead' is none"):
        cluster.handle(creation(cluster, "r", fifo=True, dead_letter_queue="dead"))


@pytest.mark.statement("b58")
def test_a_cycle_of_dead_letter_queues_is_refused() -> None:
    cluster = Cluster(1)
    for topic in ("orders", "attic"):
        cluster.create(topic, [1])
    make(cluster, creation(cluster, "a", "orders"))
    make(cluster, creation(cluster, "dead", "attic"))
    cluster.do(AlterQueue("a", {"dead_letter_queue": "dead"}, []))

    def loop(queue: str, target: str) -> AlterQueue:
        return AlterQueue(queue, {"dead_letter_queue": target}, [])

    with pytest.raises(InvalidConfigError, match="of 'a' would come back: from 'a', which is on"):
        cluster.handle(loop("a", "a"))
    with pytest.raises(
        InvalidConfigError, match="would come back: from 'a' to 'dead', which is on the"
    ):
        cluster.handle(loop("dead", "a"))
    # Another queue on the same topic sees them again, and they are dead letters again.
    with pytest.raises(InvalidConfigError, match="of 'b' would come back: from 'a', which"):
        cluster.handle(creation(cluster, "b", "orders", dead_letter_queue="a"))
    with pytest.raises(InvalidConfigError, match="of 'c' would come back: from 'a' to 'dead'"):
        cluster.handle(creation(cluster, "c", "attic", dead_letter_queue="a"))
    cluster.do(creation(cluster, "b", "orders", dead_letter_queue="dead"))


def test_deleting_a_queue_leaves_the_topic_and_its_other_queues() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    journals = [make(cluster, creation(cluster, name, "orders")) for name in ("a", "b")]

    cluster.do(DeleteQueue("a", journals[0].topic_id))

    catalog = cluster.state.catalog
    assert [each.queue_name for each in catalog.journals] == ["b"]
    assert catalog.has_topic("orders")
    assert cluster.handle(DeleteQueue("a", journals[0].topic_id)).records == []
    make(cluster, creation(cluster, "c", "orders"))
    with pytest.raises(InvalidRequestError, match="has other queues: c"):
        cluster.handle(DeleteQueue("b", with_topic=True))
    cluster.do(DeleteQueue("c"))
    cluster.do(DeleteQueue("b", with_topic=True))
    assert catalog.topics == []


def test_a_late_deletion_does_not_delete_a_recreated_queue() -> None:
    cluster = Cluster(1)
    make(cluster, creation(cluster, "q"))

    with pytest.raises(InvalidRequestError, match="another queue has the name 'q' now"):
        cluster.handle(DeleteQueue("q", bytes(16)))


def test_a_dead_letter_queue_in_use_is_deleted_only_with_detach() -> None:
    cluster = Cluster(1)
    make(cluster, creation(cluster, "dead"))
    for name in ("b", "a"):
        make(cluster, creation(cluster, name, dead_letter_queue="dead", priority_weights="2"))

    with pytest.raises(InvalidRequestError, match="'dead' is the dead-letter queue of a, b; set"):
        cluster.handle(DeleteQueue("dead"))
    cluster.do(DeleteQueue("dead", detach_sources=True, with_topic=True))

    for name in ("a", "b"):
        spec = cluster.state.catalog.journal(name).queue
        assert spec is not None
        assert spec.overrides == {"priority_weights": "2"}
    assert not cluster.state.catalog.has_topic("dead")
