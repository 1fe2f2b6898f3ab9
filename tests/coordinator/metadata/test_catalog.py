"""The catalog: outcomes of commands, and changes by records only."""

from copy import deepcopy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.metadata.catalog import (
    PRODUCER_ID_BLOCK,
    AlterTopic,
    Catalog,
    Command,
    CreateTopic,
    DeleteTopic,
    QueueSpec,
    Record,
    TakeProducerIds,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicGrown,
    journal_name,
    queue_of_journal,
)
from tidelog.wire.errors import (
    BrokerError,
    InvalidConfigError,
    InvalidTopicError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
)
from tidelog.wire.messages.field_types import PARTITION_COUNT_MAX

ID = b"0123456789abcdef"
OTHER_ID = b"fedcba9876543210"
THIRD_ID = b"a third topic ID"


def carry_out(catalog: Catalog, *commands: Command) -> list[Record]:
    done: list[Record] = []
    for command in commands:
        for record in catalog.handle(command):
            catalog.apply(record)
            done.append(record)
    return done


def with_topic(overrides: dict[str, str] | None = None) -> Catalog:
    catalog = Catalog()
    carry_out(catalog, CreateTopic("orders", ID, 3, overrides or {}))
    return catalog


def test_a_created_topic_is_found_by_name_and_by_id() -> None:
    catalog = with_topic({"retention_ms": "1h"})

    topic = catalog.topic("orders")

    assert topic is catalog.topic_by_id(ID)
    assert (topic.name, topic.topic_id, topic.partition_count) == ("orders", ID, 3)
    assert topic.config.log.retention_ms == 3_600_000


def test_topics_are_listed_by_name() -> None:
    catalog = with_topic()

    carry_out(catalog, CreateTopic("a", OTHER_ID, 1, {}))

    assert [topic.name for topic in catalog.topics] == ["a", "orders"]


def test_a_command_changes_nothing_before_its_records_are_applied() -> None:
    catalog = with_topic()
    before = deepcopy(vars(catalog))

    catalog.handle(CreateTopic("more", OTHER_ID, 1, {}))
    catalog.handle(AlterTopic("orders", {"retention_ms": "1h"}, []))
    catalog.handle(DeleteTopic("orders"))
    catalog.handle(TakeProducerIds())

    assert vars(catalog) == before


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-rf", ".hidden", "a/b", "a b", "ä", "x" * 250, "a\n"]
)
def test_an_invalid_topic_name_is_refused_with_the_valid_characters(name: str) -> None:
    with pytest.raises(InvalidTopicError, match="1 to 249 of the characters"):
        Catalog().handle(CreateTopic(name, ID, 1, {}))


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "0..."])
def test_a_valid_topic_name_is_accepted(name: str) -> None:
    catalog = Catalog()

    carry_out(catalog, CreateTopic(name, ID, 1, {}))

    assert catalog.topic(name).topic_id == ID


@pytest.mark.parametrize("count", [0, -1, PARTITION_COUNT_MAX + 1])
def test_a_partition_count_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(InvalidTopicError, match=f"1 to {PARTITION_COUNT_MAX} are"):
        Catalog().handle(CreateTopic("orders", ID, count, {}))


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(TopicExistsError, match="'orders' already"):
        with_topic().handle(CreateTopic("orders", OTHER_ID, 1, {}))


def test_a_topic_with_wrong_settings_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="retention_ms"):
        Catalog().handle(CreateTopic("orders", ID, 1, {"retention_ms": "soon"}))


def test_settings_are_set_and_reset_in_one_step() -> None:
    catalog = with_topic({"retention_ms": "1h", "segment_ms": "1h"})

    carry_out(catalog, AlterTopic("orders", {"retention_ms": "2h"}, ["segment_ms"]))

    assert catalog.topic("orders").overrides == {"retention_ms": "2h"}
    assert catalog.topic_by_id(ID) is catalog.topic("orders")


def test_a_change_that_changes_nothing_writes_nothing() -> None:
    catalog = with_topic({"retention_ms": "1h"})

    assert catalog.handle(AlterTopic("orders", {"retention_ms": "1h"}, ["segment_ms"])) == []


def test_a_setting_cannot_be_set_and_reset_at_once() -> None:
    with pytest.raises(InvalidConfigError, match="set and reset"):
        with_topic().handle(AlterTopic("orders", {"retention_ms": "1h"}, ["retention_ms"]))


def test_resetting_an_unknown_setting_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="no topic setting 'colour'"):
        with_topic().handle(AlterTopic("orders", {}, ["colour"]))


@pytest.mark.parametrize("command", [AlterTopic("nope", {}, []), DeleteTopic("nope")])
def test_a_command_for_an_unknown_topic_is_refused(command: Command) -> None:
    with pytest.raises(UnknownTopicError, match="no topic 'nope'"):
        with_topic().handle(command)


def test_a_recreated_topic_is_another_topic() -> None:
    catalog = with_topic({"retention_ms": "1h"})

    carry_out(catalog, DeleteTopic("orders"), CreateTopic("orders", OTHER_ID, 1, {}))

    assert catalog.topic_by_id(ID) is None
    assert catalog.was_deleted(ID)
    assert not catalog.was_deleted(OTHER_ID)
    assert catalog.topic("orders").topic_id == OTHER_ID
    assert catalog.topic("orders").overrides == {}


def test_producer_ids_are_taken_in_blocks_and_never_twice() -> None:
    catalog = Catalog()

    assert catalog.next_producer_id == 1

    carry_out(catalog, TakeProducerIds(), TakeProducerIds())

    assert catalog.next_producer_id == 1 + 2 * PRODUCER_ID_BLOCK


def test_a_topic_that_is_created_again_with_its_id_is_created_once() -> None:
    catalog = with_topic()

    assert catalog.handle(CreateTopic("orders", ID, 3, {})) == []


def test_a_repeated_creation_does_not_restore_a_deleted_topic() -> None:
    catalog = with_topic()
    carry_out(catalog, DeleteTopic("orders"))

    assert catalog.handle(CreateTopic("orders", ID, 3, {})) == []


def test_a_topic_that_is_deleted_again_with_its_id_is_deleted_once() -> None:
    catalog = with_topic()
    carry_out(catalog, DeleteTopic("orders", ID), CreateTopic("orders", OTHER_ID, 1, {}))

    assert catalog.handle(DeleteTopic("orders", ID)) == []


@pytest.mark.parametrize(
    "command",
    [DeleteTopic("orders", OTHER_ID), AlterTopic("orders", {"retention_ms": "1h"}, [], OTHER_ID)],
)
def test_a_command_for_another_topic_of_the_name_is_refused(command: Command) -> None:
    with pytest.raises(UnknownTopicError, match="another topic has the name now"):
        with_topic().handle(command)


def test_a_topic_id_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidTopicError, match="has 3 bytes, it must have 16"):
        Catalog().handle(CreateTopic("orders", b"abc", 1, {}))


def test_min_insync_replicas_above_the_replication_factor_is_refused() -> None:
    overrides = {"min_insync_replicas": "2"}

    with pytest.raises(InvalidConfigError, match="2, it must be at most 1, the number of"):
        Catalog().handle(CreateTopic("orders", ID, 1, overrides))
    with pytest.raises(InvalidConfigError, match="at most 1"):
        with_topic().handle(AlterTopic("orders", overrides, []))

    assert Catalog().handle(CreateTopic("orders", ID, 1, overrides), replication_factor=3)


def test_a_topic_grows() -> None:
    catalog = with_topic()

    catalog.apply(TopicGrown(ID, 5))

    assert catalog.topic("orders").partition_count == 5
    assert catalog.topic_by_id(ID) is catalog.topic("orders")


def with_queues() -> Catalog:
    catalog = with_topic()
    for name, journal_id in (("queue@b", OTHER_ID), ("queue@a", THIRD_ID)):
        spec = QueueSpec(
            ID, False, (0, 0, 0), 1_700_000_000_000, bytes(32), {}, {"priority_weights": "2"}
        )
        catalog.apply(TopicCreated(name, journal_id, 3, {}, spec))
    return catalog


def test_journals_are_internal_topics() -> None:
    catalog = with_queues()

    assert [topic.name for topic in catalog.record_topics] == ["orders"]
    assert [topic.queue_name for topic in catalog.journals] == ["a", "b"]
    assert [topic.name for topic in catalog.topics] == ["orders", "queue@a", "queue@b"]
    assert {topic.queue_name for topic in catalog.journals_of(ID)} == {"a", "b"}
    assert catalog.has_queue("a")
    assert not catalog.has_queue("orders")
    with pytest.raises(InvalidTopicError, match="which only brokers read and write; see"):
        catalog.topic("queue@a")
    with pytest.raises(UnknownQueueError, match="no queue 'orders'"):
        catalog.journal("orders")


def test_a_journal_knows_its_queue_and_its_source() -> None:
    catalog = with_queues()

    journal = catalog.journal("b")

    assert (journal.topic_id, journal.source_id, journal.queue_name) == (OTHER_ID, ID, "b")
    assert (queue_of_journal("queue@b"), queue_of_journal("orders")) == ("b", None)
    assert journal_name("b") == "queue@b"
    assert journal.queue_config is not None
    assert journal.queue_config.priority_weights == (2,)
    topic = catalog.topic("orders")
    assert (topic.source_id, topic.queue_name, topic.queue_config) == (ID, "", None)


def test_settings_of_a_queue_change_apart_from_those_of_its_journal() -> None:
    catalog = with_queues()

    catalog.apply(TopicAltered(OTHER_ID, {"retention_ms": "1h"}))
    catalog.apply(TopicAltered(OTHER_ID, {"retention_ms": "1h"}, {"max_receive_count": "3"}))

    journal = catalog.journal("b")
    assert journal.overrides == {"retention_ms": "1h"}
    assert journal.queue is not None
    assert journal.queue.settings == {"max_receive_count": "3"}
    assert journal.queue_config is not None
    assert (journal.queue_config.max_receive_count, journal.queue_config.priority_weights) == (
        3,
        (),
    )


def test_a_deleted_journal_is_no_longer_among_those_of_its_topic() -> None:
    catalog = with_queues()

    for journal_id in (OTHER_ID, THIRD_ID):
        catalog.apply(TopicDeleted(journal_id))

    assert catalog.journals_of(ID) == []
    assert vars(catalog)["_internal_topics"] == {}
    assert catalog.was_deleted(OTHER_ID)


def test_a_snapshot_has_the_queues() -> None:
    catalog = with_queues()

    restored = Catalog.from_snapshot(catalog.snapshot())

    assert vars(restored) == vars(catalog)


COMMANDS = st.one_of(
    st.builds(
        CreateTopic,
        name=st.sampled_from("abc"),
        topic_id=st.binary(min_size=16, max_size=16),
        partition_count=st.integers(0, 3),
        overrides=st.dictionaries(
            st.sampled_from(["retention_ms", "segment_ms", "colour"]),
            st.sampled_from(["1h", "2h", "soon"]),
        ),
    ),
    st.builds(
        AlterTopic,
        name=st.sampled_from("abc"),
        set_overrides=st.dictionaries(
            st.sampled_from(["retention_ms", "segment_ms"]), st.sampled_from(["1h", "2h"])
        ),
        reset_overrides=st.lists(st.sampled_from(["retention_ms", "segment_ms"])),
    ),
    st.builds(DeleteTopic, name=st.sampled_from("abc")),
    st.just(TakeProducerIds()),
)


@given(st.lists(COMMANDS, max_size=30))
def test_a_catalog_is_restored_from_its_records(commands: list[Command]) -> None:
    catalog = Catalog()
    model: dict[str, tuple[bytes, dict[str, str]]] = {}
    stored: list[bytes] = []
    seen: set[bytes] = set()

    for command in commands:
        if isinstance(command, CreateTopic) and command.topic_id in seen:
            continue  # Ids are random: no client draws one twice.
        try:
            records = carry_out(catalog, command)
        except BrokerError:
            continue
        stored += [msgspec.msgpack.encode(record) for record in records]
        if isinstance(command, CreateTopic):
            seen.add(command.topic_id)
            model[command.name] = (command.topic_id, dict(command.overrides))
        elif isinstance(command, AlterTopic):
            overrides = model[command.name][1]
            overrides.update(command.set_overrides)
            for name in command.reset_overrides:
                overrides.pop(name, None)
        elif isinstance(command, DeleteTopic):
            del model[command.name]

    replayed = Catalog()
    for data in stored:
        replayed.apply(msgspec.msgpack.decode(data, type=Record))
    assert vars(replayed) == vars(catalog)
    assert vars(Catalog.from_snapshot(catalog.snapshot())) == vars(catalog)
    assert {topic.name: (topic.topic_id, topic.overrides) for topic in catalog.topics} == model
    assert all(catalog.topic_by_id(topic.topic_id) is topic for topic in catalog.topics)
