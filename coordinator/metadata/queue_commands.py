"""Commands about queues: creation, settings and deletion.

Pure: no clock, no I/O. Each function takes the state and a command, and returns the outcome. A
queue is a topic, its journal. It has as many partitions as the topic of its messages, on the same
brokers.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tidelog.coordinator.metadata.catalog import (
    RECEIPT_KEY_SIZE,
    TOPIC_ID_SIZE,
    QueueModified,
    QueueSpec,
    Topic,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    check_not_audit,
    journal_name,
)
from tidelog.coordinator.metadata.commands import (
    AlterQueue,
    CommandOutcome,
    CreateQueue,
    CreateReplicatedTopic,
    DeleteQueue,
    QueueAnswer,
    QueueCommand,
)
from tidelog.coordinator.metadata.count_quotas import check_counts, owned
from tidelog.coordinator.metadata.dead_letter_graph import check_dead_letter_queue
from tidelog.coordinator.metadata.features import record_level
from tidelog.coordinator.metadata.internal_topics import (
    check_compaction,
    check_retention,
    colocated_partitions,
    journal_overrides,
    listed_queues,
)
from tidelog.coordinator.metadata.labels import change_labels
from tidelog.coordinator.metadata.partition_changes import PartitionChangeBuilder
from tidelog.coordinator.metadata.records import PartitionRegistration, PartitionsAdded, Record
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.topic_commands import create_topic
from tidelog.coordinator.metadata.topic_config import topic_config
from tidelog.wire.config.durations import portable_settings
from tidelog.wire.config.labels import first_different_label
from tidelog.wire.config.queue_config import (
    FROZEN_SETTINGS,
    check_queue_name,
    check_queue_setting_name,
    check_queue_settings,
    first_difference,
    frozen_settings,
    queue_config,
)
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    QueueExistsError,
    TopicExistsError,
    UnknownTopicError,
)

_KIND_NAMES = {"fifo", "is_fifo"}
_TIMES = ("delivery_delay_ms", "retention_ms")


def handle_queue_command(state: ClusterState, command: QueueCommand) -> CommandOutcome:
    """Return the outcome of a command about queues.

    Raises:
        BrokerError: The command is refused.
    """
    match command:
        case CreateQueue():
            return _create(state, command)
        case AlterQueue():
            return _alter(state, command)
        case DeleteQueue():
            return _delete(state, command)


def _create(state: ClusterState, command: CreateQueue) -> CommandOutcome:
    if state.catalog.knows(command.queue_id):
        made = state.catalog.topic_by_id(command.queue_id)
        return CommandOutcome(
            [], QueueAnswer(command.queue_id, b"" if made is None else made.source_id)
        )
    _check_form(command)
    check_queue_settings(command.overrides, is_fifo=command.is_fifo)
    if state.catalog.has_queue(command.name):
        there = state.catalog.journal(command.name)
        _check_is_what_was_asked_for(state, command, there)
        return CommandOutcome([], QueueAnswer(there.topic_id, there.source_id))
    records, topic_id, partitions = _source(state, command)
    overrides = portable_settings(
        {name: text for name, text in command.overrides.items() if name not in FROZEN_SETTINGS}
    )
    spec = QueueSpec(
        topic_id,
        command.is_fifo,
        tuple(command.start_offsets) or (0,) * len(partitions),
        command.created_at_ms,
        command.receipt_key,
        frozen_settings(
            command.overrides, is_fifo=command.is_fifo, partition_count=len(partitions)
        ),
        overrides,
    )
    _check_dead_letters(state, command.name, spec)
    new_topic = sum(isinstance(each, PartitionsAdded) for each in records)
    check_counts(state, command.created_by, partitions=(new_topic + 1) * len(partitions), queues=1)
    source_overrides = _source_overrides(state, records, topic_id)
    check_compaction(command.topic, source_overrides, queues=[command.name])
    check_retention(command.topic, source_overrides, [(command.name, spec)])
    created = TopicCreated(
        journal_name(command.name),
        command.queue_id,
        len(partitions),
        journal_overrides(source_overrides),
        spec,
    )
    labels = change_labels(command.queue_id, {}, set_labels=command.labels)
    owner = owned(state, command.queue_id, command.created_by)
    records += [created, *owner, *labels, PartitionsAdded(command.queue_id, partitions)]
    return CommandOutcome(records, QueueAnswer(command.queue_id, topic_id))


def _check_form(command: CreateQueue) -> None:
    check_queue_name(command.name)
    ids = (command.queue_id, command.new_topic_id)
    lengths = [*map(len, ids), len(command.receipt_key)]
    if lengths != [TOPIC_ID_SIZE, TOPIC_ID_SIZE, RECEIPT_KEY_SIZE] or ids[0] == ids[1]:
        raise InvalidRequestError(
            f"ids of queues and topics have {TOPIC_ID_SIZE} bytes and differ, receipt keys have"
            f" {RECEIPT_KEY_SIZE}"
        )
    if any(offset < 0 for offset in command.start_offsets):
        raise InvalidRequestError(f"start offsets cannot be below 0: {command.start_offsets}")


def _check_is_what_was_asked_for(state: ClusterState, command: CreateQueue, there: Topic) -> None:
    """Check that an existing queue matches the requested one.

    Raises:
        QueueExistsError: It does not match; the text names the difference.
    """
    spec = there.queue
    source = state.catalog.topic_by_id(there.source_id)
    assert spec is not None
    assert source is not None
    different = None
    if source.name != command.topic:
        different = f"its topic is {source.name!r}, not {command.topic!r}"
    elif spec.is_fifo != command.is_fifo:
        different = "it is FIFO" if spec.is_fifo else "it is not FIFO"
    elif command.partition_count not in {None, there.partition_count}:
        different = f"it has {there.partition_count} partitions, not {command.partition_count}"
    else:
        frozen = frozen_settings(
            command.overrides, is_fifo=spec.is_fifo, partition_count=there.partition_count
        )
        different = first_difference(
            {**command.overrides, **frozen}, spec.settings, is_fifo=spec.is_fifo
        )
    if different is None and command.labels:
        different = first_different_label(command.labels, there.labels)
    if different is not None:
        raise QueueExistsError(f"there is a queue {command.name!r} already, and {different}")


def _source(
    state: ClusterState, command: CreateQueue
) -> tuple[list[Record], bytes, list[PartitionRegistration]]:
    """Return the topic of a new queue's messages, the records that create it, and its replicas.

    Raises:
        BrokerError: The topic does not exist and cannot be created, or does not match the request.
    """
    check_not_audit(command.topic, "cannot have queues")
    if state.catalog.has_topic(command.topic):
        topic = state.catalog.topic(command.topic)
        _check_topic(command, topic)
        return [], topic.topic_id, colocated_partitions(state, topic)
    if command.topic_id is not None or (
        command.topic != command.name and command.partition_count is None
    ):
        raise UnknownTopicError(
            f"there is no topic {command.topic!r}; create it first (`tidelog topic create"
            f" {command.topic}`), or give the number of partitions of a new one"
        )
    outcome = create_topic(
        state,
        CreateReplicatedTopic(
            command.topic,
            command.new_topic_id,
            1 if command.partition_count is None else command.partition_count,
            _topic_overrides(command),
            created_by=command.created_by,
        ),
    )
    if not outcome.records:
        raise UnknownTopicError(f"topic {command.topic!r} was deleted meanwhile; try again")
    added = outcome.records[-1]
    assert isinstance(added, PartitionsAdded)
    return outcome.records, command.new_topic_id, added.partitions


def _topic_overrides(command: CreateQueue) -> dict[str, str]:
    """Return the settings of a topic that is created with a queue, with the queue's retention."""
    if "retention_ms" in command.topic_overrides:
        return dict(command.topic_overrides)
    return retained_for_queue(command.topic_overrides, command.overrides)


def retained_for_queue(
    topic_overrides: Mapping[str, str], queue_overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of a topic, with a retention that suffices for a queue.

    Raises:
        InvalidConfigError: A value is not legal.
    """
    times = {name: queue_overrides[name] for name in _TIMES if name in queue_overrides}
    config = queue_config(times, is_fifo=False)
    wanted, kept = config.retention_ms, topic_config(topic_overrides).log.retention_ms
    if wanted is not None:
        wanted += config.delivery_delay_ms
    if kept is None or (wanted is not None and wanted <= kept):
        return dict(topic_overrides)
    return {**topic_overrides, "retention_ms": "unlimited" if wanted is None else f"{wanted}ms"}


def _check_topic(command: CreateQueue, topic: Topic) -> None:
    """Check that a topic is the one in which start offsets were looked up."""
    if command.topic_id is None:
        raise TopicExistsError(f"topic {topic.name!r} exists; give its id and start offsets in it")
    if command.topic_id != topic.topic_id:
        raise UnknownTopicError(
            f"there is no topic {topic.name!r} with the id {command.topic_id.hex()}; another"
            " topic has the name now"
        )
    if command.partition_count not in {None, topic.partition_count}:
        raise InvalidTopicError(
            f"topic {topic.name!r} has {topic.partition_count} partitions, not"
            f" {command.partition_count}"
        )
    if len(command.start_offsets) != topic.partition_count:
        raise InvalidRequestError(
            f"{len(command.start_offsets)} start offsets were given; topic {topic.name!r} has"
            f" {topic.partition_count} partitions"
        )


def _source_overrides(
    state: ClusterState, records: Sequence[Record], topic_id: bytes
) -> dict[str, str]:
    for record in records:
        if isinstance(record, TopicCreated):
            return record.overrides
    source = state.catalog.topic_by_id(topic_id)
    assert source is not None, "it exists, or was just created"
    return source.overrides


def _check_dead_letters(state: ClusterState, name: str, spec: QueueSpec) -> None:
    target = queue_config(spec.settings, is_fifo=spec.is_fifo).dead_letter_queue
    if target is not None:
        check_dead_letter_queue(
            state, name, spec.source_topic_id, name=target, is_fifo=spec.is_fifo
        )


def _alter(state: ClusterState, command: AlterQueue) -> CommandOutcome:
    journal = state.catalog.journal(command.name)
    spec = journal.queue
    assert spec is not None
    for name in (*command.set_overrides, *command.reset_overrides):
        _check_may_change(name)
    overrides = {**spec.overrides, **command.set_overrides}
    for name in command.reset_overrides:
        if name in command.set_overrides:
            raise InvalidConfigError(f"{name} cannot be set and reset at the same time")
        overrides.pop(name, None)
    check_queue_settings(overrides, is_fifo=spec.is_fifo)
    overrides = portable_settings(overrides)
    answer = QueueAnswer(journal.topic_id, journal.source_id)
    records: list[Record] = []
    if overrides != spec.overrides:
        altered = replace(spec, overrides=overrides)
        _check_dead_letters(state, command.name, altered)
        if any(overrides.get(name) != spec.overrides.get(name) for name in _TIMES):
            source = state.catalog.topic_by_id(spec.source_topic_id)
            assert source is not None, "a topic with queues is not deleted"
            check_retention(source.name, source.overrides, [(command.name, altered)])
        records.append(TopicAltered(journal.topic_id, journal.overrides, overrides))
    records += change_labels(
        journal.topic_id,
        journal.labels,
        set_labels=command.set_labels,
        remove_labels=command.remove_labels,
    )
    if records and command.altered_at_ms is not None:
        modified = QueueModified(journal.topic_id, command.altered_at_ms)
        # A cluster of a lower feature level keeps no such times.
        if record_level(modified) <= state.feature_level:
            records.append(modified)
    return CommandOutcome(records, answer)


def _check_may_change(name: str) -> None:
    if name in _KIND_NAMES:
        raise InvalidConfigError(f"{name} cannot be changed: it is set when a queue is created")
    check_queue_setting_name(name)
    if name in FROZEN_SETTINGS:
        raise InvalidConfigError(f"{name} cannot be changed: it is set when a queue is created")


def _delete(state: ClusterState, command: DeleteQueue) -> CommandOutcome:
    catalog = state.catalog
    if command.queue_id is not None and catalog.was_deleted(command.queue_id):
        return CommandOutcome([], QueueAnswer(command.queue_id, b""))
    journal = catalog.journal(command.name)
    if command.queue_id not in {None, journal.topic_id}:
        raise InvalidRequestError(f"another queue has the name {command.name!r} now")
    records: list[Record] = []
    users = catalog.dead_letter_sources(command.name)
    if users and not command.detach_sources:
        raise InvalidRequestError(
            f"{command.name!r} is the dead-letter queue of {listed_queues(users)}; set another"
            " dead-letter queue, or none, first: tidelog queue alter"
            f" {min(each.queue_name for each in users)} --set dead_letter_queue=none"
        )
    for user in users:
        assert user.queue is not None
        left = {**user.queue.overrides}
        del left["dead_letter_queue"]
        records.append(TopicAltered(user.topic_id, user.overrides, left))
    records.append(TopicDeleted(journal.topic_id))
    if command.with_topic:
        others = [each for each in catalog.journals_of(journal.source_id) if each is not journal]
        if others:
            raise InvalidRequestError(
                f"the topic of {command.name!r} has other queues: {listed_queues(others)}"
            )
        staging = catalog.staging_of(journal.source_id)
        if staging is not None:
            records.append(TopicDeleted(staging.topic_id))
        records.append(TopicDeleted(journal.source_id))
    else:
        records += _no_longer_held_up(state, journal)
    return CommandOutcome(records, QueueAnswer(journal.topic_id, journal.source_id))


def _no_longer_held_up(state: ClusterState, journal: Topic) -> list[Record]:
    """Complete reassignments of a topic that waited only for a journal that is deleted."""
    changes = PartitionChangeBuilder(state, deleted=journal)
    source = state.catalog.topic_by_id(journal.source_id)
    assert source is not None, "a topic with queues is not deleted"
    for number, partition in enumerate(state.partitions(source.topic_id)):
        if partition.is_reassigning:
            changes.apply_event(source, number)
    return changes.records()
