"""Commands about topics, their partitions, settings of the cluster and producer ids.

Pure: no clock, no I/O. Each function takes the state and a command, and returns the outcome.
"""

from collections.abc import Mapping

from tidelog.coordinator.metadata.broker_commands import check_known
from tidelog.coordinator.metadata.catalog import (
    PRODUCER_ID_BLOCK,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TakeProducerIds,
    Topic,
    TopicAltered,
    TopicDeleted,
    TopicGrown,
    altered_topic,
    check_partition_count,
)
from tidelog.coordinator.metadata.cluster_config import (
    cluster_config,
    default_replication_factor,
    setting_and_node,
)
from tidelog.coordinator.metadata.commands import (
    AddPartitions,
    AlterClusterConfig,
    CommandOutcome,
    CreateReplicatedTopic,
    Done,
    ProducerIds,
    TopicAnswer,
    TopicCommand,
)
from tidelog.coordinator.metadata.count_quotas import check_counts, owned
from tidelog.coordinator.metadata.internal_topics import (
    check_compaction,
    check_retention,
    internal_topic_overrides,
    listed_queues,
)
from tidelog.coordinator.metadata.labels import change_labels
from tidelog.coordinator.metadata.partition_changes import PartitionChangeBuilder
from tidelog.coordinator.metadata.placement import (
    PlacementCandidate,
    check_assignment,
    check_not_drained,
    place_replicas,
)
from tidelog.coordinator.metadata.records import (
    ClusterConfigSet,
    PartitionRegistration,
    PartitionsAdded,
    Record,
)
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.topic_config import REPLICATION_FACTOR_MAX, topic_config
from tidelog.wire.config.durations import portable_settings
from tidelog.wire.errors import InvalidConfigError, InvalidRequestError, InvalidTopicError


def handle_topic_command(state: ClusterState, command: TopicCommand) -> CommandOutcome:
    """Return the outcome of a command about topics or settings.

    Raises:
        BrokerError: The command is refused.
    """
    match command:
        case CreateTopic() | CreateReplicatedTopic():
            return create_topic(state, command)
        case AddPartitions():
            return _add_partitions(state, command)
        case AlterTopic():
            return _alter(state, command)
        case DeleteTopic():
            return _delete(state, command)
        case AlterClusterConfig():
            return _alter_cluster_config(state, command)
        case TakeProducerIds():
            return _take_producer_ids(state, command)


def create_topic(
    state: ClusterState, command: CreateTopic | CreateReplicatedTopic
) -> CommandOutcome:
    """Return the outcome of the creation of a topic.

    Raises:
        BrokerError: The command is refused.
    """
    if isinstance(command, CreateTopic):
        command = CreateReplicatedTopic(
            command.name, command.topic_id, command.partition_count, command.overrides
        )
    answer = TopicAnswer(command.topic_id)
    if state.catalog.knows(command.topic_id):
        return CommandOutcome([], answer)
    replication_factor = _replication_factor(state, command)
    create = CreateTopic(command.name, command.topic_id, command.partition_count, command.overrides)
    records: list[Record] = [*state.catalog.handle(create, replication_factor=replication_factor)]
    if command.assignment is None:
        assignment = _place(state, command.partition_count, replication_factor)
    else:
        is_live = {broker.node_id: broker.can_lead for broker in state.brokers.values()}
        check_assignment(command.assignment, command.partition_count, is_live)
        for replicas in command.assignment:
            check_not_drained(replicas, state.drained_node_ids)
        assignment = [tuple(replicas) for replicas in command.assignment]
    partitions = [_new_partition(state, replicas) for replicas in assignment]
    check_counts(state, command.created_by, partitions=len(partitions))
    records += owned(state, command.topic_id, command.created_by)
    records += change_labels(command.topic_id, {}, set_labels=command.labels)
    return CommandOutcome([*records, PartitionsAdded(command.topic_id, partitions)], answer)


def _replication_factor(state: ClusterState, command: CreateReplicatedTopic) -> int:
    if command.assignment is not None:
        if command.replication_factor is not None:
            raise InvalidTopicError(
                "replicas can be given as a number or broker by broker, not both"
            )
        return max(1, len(command.assignment[0])) if command.assignment else 1
    broker_count = len(state.undrained_brokers)
    wanted = command.replication_factor
    if wanted is None:
        wanted = default_replication_factor(state.config, broker_count)
    if not 1 <= wanted <= min(broker_count, REPLICATION_FACTOR_MAX):
        are_drained = " that are not drained" if state.drained_node_ids else ""
        raise InvalidTopicError(
            f"{wanted} replicas are not possible: there can be 1 to {REPLICATION_FACTOR_MAX},"
            f" and not more than brokers{are_drained}, of which there are {broker_count}; start"
            " more brokers, or ask for fewer replicas"
        )
    return wanted


def _place(
    state: ClusterState, partition_count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    candidates = [
        PlacementCandidate(
            broker.node_id,
            broker.rack,
            is_live=broker.can_lead,
            replica_count=state.index.load(broker.node_id).replica_count,
            preferred_count=state.index.load(broker.node_id).preferred_count,
        )
        for broker in state.undrained_brokers
    ]
    return place_replicas(
        candidates, partition_count=partition_count, replication_factor=replication_factor
    )


def _new_partition(state: ClusterState, replicas: tuple[int, ...]) -> PartitionRegistration:
    in_sync = tuple(node_id for node_id in replicas if state.brokers[node_id].can_lead)
    return PartitionRegistration(replicas, in_sync, leader=in_sync[0])


def _add_partitions(state: ClusterState, command: AddPartitions) -> CommandOutcome:
    topic = state.catalog.topic(command.name, command.topic_id)
    check_partition_count(command.partition_count)
    answer = TopicAnswer(topic.topic_id)
    missing = command.partition_count - topic.partition_count
    if missing == 0:
        return CommandOutcome([], answer)
    if missing < 0:
        raise InvalidTopicError(
            f"topic {topic.name!r} has {topic.partition_count} partitions; it cannot have fewer"
        )
    _check_no_groups(state, topic)
    journals = state.catalog.journals_of(topic.topic_id)
    for owner in dict.fromkeys(each.owner for each in (topic, *journals)):
        count = sum(each.owner == owner for each in (topic, *journals))
        check_counts(state, owner, partitions=missing * count)
    replication_factor = len(state.partitions(topic.topic_id)[0].target_replicas)
    assignment = _place(state, missing, replication_factor)
    partitions = [_new_partition(state, replicas) for replicas in assignment]
    records: list[Record] = []
    for grown in (topic, *state.catalog.internal_topics_of(topic.topic_id)):
        records += [
            TopicGrown(grown.topic_id, command.partition_count),
            PartitionsAdded(grown.topic_id, partitions),
        ]
    return CommandOutcome(records, answer)


def _check_no_groups(state: ClusterState, topic: Topic) -> None:
    """Check that no FIFO queue stands on a topic.

    More partitions would move a key to another partition. Its messages there would be delivered
    beside the older ones in the previous partition, and their duplicates would not be detected.

    Raises:
        InvalidTopicError: The topic has FIFO queues; the text names them.
    """
    fifo = [
        journal
        for journal in state.catalog.journals_of(topic.topic_id)
        if journal.queue is not None and journal.queue.is_fifo
    ]
    if fifo:
        raise InvalidTopicError(
            f"topic {topic.name!r} keeps its {topic.partition_count} partitions as long as it has"
            f" FIFO queues: {listed_queues(fifo)}. With more, messages of a group would be in two"
            " partitions, and not in order; create a queue with more partitions, send to it, and"
            " drain this one"
        )


def _alter(state: ClusterState, command: AlterTopic) -> CommandOutcome:
    topic = state.catalog.topic(command.name, command.topic_id)
    replication_factor = min(
        partition.replication_factor for partition in state.partitions(topic.topic_id)
    )
    records: list[Record] = [*state.catalog.handle(command, replication_factor=replication_factor)]
    queues = {
        each.queue_name: each.queue
        for each in state.catalog.journals_of(topic.topic_id)
        if each.queue is not None
    }
    for record in list(records):
        assert isinstance(record, TopicAltered)
        check_compaction(topic.name, record.overrides, queues=list(queues))
        if _is_shorter(record.overrides, than=topic.overrides):
            check_retention(topic.name, record.overrides, queues.items())
        records += _altered_companions(state, record)
    changes = PartitionChangeBuilder(state)
    for record in records:
        assert isinstance(record, TopicAltered)
        known = state.catalog.topic_by_id(record.topic_id)
        assert known is not None
        _settle(state, changes, altered_topic(known, record))
    labels = change_labels(
        topic.topic_id,
        topic.labels,
        set_labels=command.set_labels,
        remove_labels=command.remove_labels,
    )
    return CommandOutcome([*records, *changes.records(), *labels], TopicAnswer(topic.topic_id))


def _is_shorter(overrides: Mapping[str, str], *, than: Mapping[str, str]) -> bool:
    """Return whether a topic keeps records for less time than under other settings."""
    kept_ms, before_ms = (topic_config(each).log.retention_ms for each in (overrides, than))
    return kept_ms is not None and (before_ms is None or kept_ms < before_ms)


def _altered_companions(state: ClusterState, altered: TopicAltered) -> list[TopicAltered]:
    """Return the changes of internal topics, which share settings of their source topic."""
    return [
        TopicAltered(internal.topic_id, overrides)
        for internal in state.catalog.internal_topics_of(altered.topic_id)
        if (overrides := internal_topic_overrides(internal, altered.overrides))
        != internal.overrides
    ]


def _delete(state: ClusterState, command: DeleteTopic) -> CommandOutcome:
    records: list[Record] = [*state.catalog.handle(command)]
    topic_id = command.topic_id or state.catalog.topic(command.name).topic_id
    journals = state.catalog.journals_of(topic_id)
    if journals:
        raise InvalidRequestError(
            f"topic {command.name!r} has queues: {listed_queues(journals)}; delete them first:"
            f" tidelog queue delete {min(each.queue_name for each in journals)}"
        )
    staging = state.catalog.staging_of(topic_id)
    if staging is not None:
        records.insert(0, TopicDeleted(staging.topic_id))
    return CommandOutcome(records, TopicAnswer(topic_id))


def _alter_cluster_config(state: ClusterState, command: AlterClusterConfig) -> CommandOutcome:
    overrides = {**state.overrides, **command.set_overrides}
    for name in command.set_overrides:
        _, node_id = setting_and_node(name)
        if node_id is not None:
            check_known(state, [node_id])
    for name in command.reset_overrides:
        setting_and_node(name)
        if name in command.set_overrides:
            raise InvalidConfigError(f"{name} cannot be set and reset at the same time")
        overrides.pop(name, None)
    config = cluster_config(overrides)
    overrides = portable_settings(overrides)
    if overrides == state.overrides:
        return CommandOutcome([], Done())
    changes = PartitionChangeBuilder(state, config=config)
    if config.min_insync_replicas != state.config.min_insync_replicas:
        for topic in state.catalog.topics:
            _settle(state, changes, topic)
    return CommandOutcome([ClusterConfigSet(overrides), *changes.records()], Done())


def _take_producer_ids(state: ClusterState, command: TakeProducerIds) -> CommandOutcome:
    # A retry takes two blocks: the first one stays unused, and there are plenty.
    first = state.catalog.next_producer_id
    reply = ProducerIds(first, first + PRODUCER_ID_BLOCK)
    return CommandOutcome([*state.catalog.handle(command)], reply)


def _settle(state: ClusterState, changes: PartitionChangeBuilder, topic: Topic) -> None:
    """Remove eligibility where the ISR is large enough for a lower minimum.

    The removal is in the same entry as the lower minimum, by which records may be committed
    without the eligible replicas.
    """
    for number, partition in enumerate(state.partitions(topic.topic_id)):
        if partition.eligible_leader_replicas:
            changes.apply_event(topic, number)
