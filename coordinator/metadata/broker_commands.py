"""Commands about brokers: registration, fencing, shutdown, draining.

Pure: no clock, no I/O. Each function takes the state and a command, and returns the outcome.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_config import without_node
from tidelog.coordinator.metadata.cluster_events import ClusterEventKind, EventRecorder
from tidelog.coordinator.metadata.commands import (
    BeginShutdown,
    BrokerCommand,
    CommandOutcome,
    Done,
    DrainBroker,
    FenceBroker,
    RegisterBroker,
    Registered,
    ShutdownProgress,
    UnfenceBroker,
    UnregisterBroker,
)
from tidelog.coordinator.metadata.feature_commands import check_node
from tidelog.coordinator.metadata.leader_election import PartitionEvent
from tidelog.coordinator.metadata.partition_changes import PartitionChangeBuilder
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerDrained,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    ClusterConfigSet,
    PartitionRegistration,
    PartitionsAdded,
    Record,
)
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import DuplicateBrokerError, InvalidRequestError, StaleBrokerEpochError
from tidelog.wire.messages.features import SupportedLevels

REPLACED_INCARNATIONS_KEPT = 8
_PORT_MAX = 0xFFFF


def handle_broker_command(
    state: ClusterState, command: BrokerCommand, *, now_ms: int
) -> CommandOutcome:
    """Return the outcome of a command of or about a broker.

    Raises:
        BrokerError: The command is refused.
    """
    match command:
        case RegisterBroker():
            return _register(state, command, now_ms)
        case UnfenceBroker():
            return _unfence(state, command)
        case FenceBroker():
            return _fence(state, command)
        case BeginShutdown():
            return _begin_shutdown(state, command)
        case UnregisterBroker():
            return _unregister(state, command)
        case DrainBroker():
            return _drain(state, command)


def current_broker(state: ClusterState, node_id: int, broker_epoch: int) -> BrokerRegistration:
    """Return the registration of a broker with this broker epoch.

    Raises:
        StaleBrokerEpochError: It is not the last registration of this broker.
    """
    broker = state.brokers.get(node_id)
    if broker is None:
        raise StaleBrokerEpochError(f"broker {node_id} is not registered; it must register first")
    if broker.broker_epoch != broker_epoch:
        raise StaleBrokerEpochError(
            f"broker {node_id} was registered with epoch {broker.broker_epoch} after epoch"
            f" {broker_epoch}; the older process must register again, or stop"
        )
    return broker


def is_old_directory(known_epoch: int | None, found_epoch: int | None) -> bool:
    """Return whether a data directory is older than the one that the cluster knows.

    Args:
        known_epoch: Epoch that the directory is known to have held, `None` if none is known.
        found_epoch: Epoch that it holds now, 0 for none, `None` if the broker does not report one.
    """
    return known_epoch is not None and found_epoch is not None and found_epoch < known_epoch


def _register(state: ClusterState, command: RegisterBroker, now_ms: int) -> CommandOutcome:
    check_node(state, command.node_id, command.supported_levels)
    previous = state.brokers.get(command.node_id)
    if previous is not None and previous.incarnation_id == command.incarnation_id:
        return CommandOutcome([], Registered(previous.broker_epoch, previous.directory_epoch))
    _check_identity(state, command, previous)
    replaced: tuple[str, ...] = ()
    directory_epoch: int | None = None
    if previous is not None:
        replaced = (previous.incarnation_id, *previous.replaced_incarnation_ids)
        # Kept until this process reports a later one: a process may die before it writes its own.
        if previous.disk_id == command.disk_id:
            directory_epoch = previous.directory_epoch
    broker = BrokerRegistration(
        command.node_id,
        command.disk_id,
        command.incarnation_id,
        state.next_broker_epoch,
        command.host,
        command.port,
        command.rack,
        replaced_incarnation_ids=replaced[:REPLACED_INCARNATIONS_KEPT],
        directory_epoch=directory_epoch,
        supported_levels=command.supported_levels,
    )
    records: list[Record] = [BrokerRegistered(broker)]
    if is_old_directory(directory_epoch, command.directory_epoch):
        events = EventRecorder(state.events, now_ms=now_ms)
        events.record(
            ClusterEventKind.OLD_DIRECTORY,
            f"broker {command.node_id} came back with an older data directory (epoch"
            f" {command.directory_epoch}, known {directory_epoch}), such as a backup: it counts as"
            " a broker with a lost disk, and copies its records from other replicas",
            node_id=command.node_id,
        )
        records += events.records()
    if previous is not None:
        records += _after_restart(state, command, previous, broker=broker)
    else:
        records += _adopted(state, broker)
    return CommandOutcome(records, Registered(broker.broker_epoch, directory_epoch))


def _check_identity(
    state: ClusterState, command: RegisterBroker, previous: BrokerRegistration | None
) -> None:
    if command.node_id < 1 or not command.disk_id or not command.incarnation_id:
        raise InvalidRequestError(
            f"the registration of broker {command.node_id} is incomplete; it must have a node id"
            " from 1 on, the id of the disk and the incarnation of the process"
        )
    if not command.host or not 1 <= command.port <= _PORT_MAX:
        raise InvalidRequestError(
            f"broker {command.node_id} cannot be reached at {command.host!r} port {command.port};"
            " its registration must have a host, and a port from 1 to 65535"
        )
    for broker in state.brokers.values():
        if broker.disk_id == command.disk_id and broker.node_id != command.node_id:
            raise DuplicateBrokerError(
                f"this data directory belongs to broker {broker.node_id}; start it with that node"
                f" id instead of {command.node_id}, or give broker {command.node_id} an empty one"
            )
    if previous is None:
        return
    if command.incarnation_id in previous.replaced_incarnation_ids:
        raise DuplicateBrokerError(
            f"a newer process of broker {command.node_id} has registered; this one must stop"
        )
    if command.known_epoch is not None and command.known_epoch < previous.broker_epoch:
        raise StaleBrokerEpochError(
            f"broker {command.node_id} was registered with epoch {previous.broker_epoch}, which"
            " this process does not know yet; it must register again when it does"
        )
    if previous.disk_id != command.disk_id and not previous.is_fenced:
        raise DuplicateBrokerError(
            f"node id {command.node_id} belongs to a live broker at {previous.host}:{previous.port}"
            " with another data directory; choose an unused node id, or stop that broker"
        )


def _after_restart(
    state: ClusterState,
    command: RegisterBroker,
    previous: BrokerRegistration,
    *,
    broker: BrokerRegistration,
) -> list[Record]:
    """Remove the process before from all partitions, with the records that it may have lost."""
    changes = PartitionChangeBuilder(state, broker=broker)
    is_new_disk = previous.disk_id != broker.disk_id
    has_less = is_new_disk or is_old_directory(broker.directory_epoch, command.directory_epoch)
    is_clean = previous.broker_epoch == command.clean_stop_epoch
    own = (broker.node_id,)
    events: dict[tuple[bool, bool], PartitionEvent] = {}
    for topic in _hosted_topics(state, broker.node_id):
        has_lost = not is_clean and state.may_lose_committed(topic, previous)
        for number, partition in enumerate(state.partitions(topic.topic_id)):
            if broker.node_id not in partition.replicas:
                continue
            # Without an ISR of others, a topic with one replica in memory has no better leader. New
            # replicas of a reassignment lead once they are in the ISR, and have less until then.
            is_lost = has_less or (has_lost and partition.replication_factor > 1)
            has_lost_memory = has_lost and not is_lost and partition.is_reassigning
            event = events.get((is_lost, has_lost_memory))
            if event is None:
                event = events[is_lost, has_lost_memory] = PartitionEvent(
                    lost=own if is_lost else (),
                    wiped=own if has_less else (),
                    started=own,
                    unclean=() if is_clean else own,
                    has_lost_memory=has_lost_memory,
                )
            changes.apply_event(topic, number, event)
    return changes.records()


def _adopted(state: ClusterState, broker: BrokerRegistration) -> list[Record]:
    """Assign the topics of a node without a cluster so far to it, the first broker of a cluster.

    Later there are no topics without replicas.
    """
    partition = PartitionRegistration((broker.node_id,), (), (broker.node_id,))
    return [
        PartitionsAdded(topic.topic_id, [partition] * topic.partition_count)
        for topic in state.catalog.topics
        if not state.partitions(topic.topic_id)
    ]


def _unfence(state: ClusterState, command: UnfenceBroker) -> CommandOutcome:
    broker = current_broker(state, command.node_id, command.broker_epoch)
    written = command.directory_epoch if has_newer_epoch(broker, command.directory_epoch) else None
    levels = (
        command.supported_levels if has_other_levels(broker, command.supported_levels) else None
    )
    if not broker.is_fenced or broker.is_shutting_down:
        if written is None and levels is None:
            return CommandOutcome([], Done())
        record = BrokerChanged(
            broker.node_id, broker.is_fenced, broker.is_shutting_down, written, levels
        )
        return CommandOutcome([record], Done())
    after = replace(broker, is_fenced=False)
    changed = _changed(state, after, directory_epoch=written, supported_levels=levels)
    return CommandOutcome(changed, Done())


def has_newer_epoch(broker: BrokerRegistration, directory_epoch: int | None) -> bool:
    """Return whether the data directory of a broker holds a later epoch than the known one."""
    return directory_epoch is not None and directory_epoch > (broker.directory_epoch or 0)


def has_other_levels(broker: BrokerRegistration, supported: SupportedLevels | None) -> bool:
    """Return whether a broker reports other feature levels than those in its registration.

    A controller without feature levels has registered it.
    """
    return supported is not None and supported != broker.supported_levels


def _fence(state: ClusterState, command: FenceBroker) -> CommandOutcome:
    broker = state.brokers.get(command.node_id)
    if broker is None or broker.is_fenced or broker.broker_epoch != command.broker_epoch:
        return CommandOutcome([], Done())
    return CommandOutcome(_changed(state, replace(broker, is_fenced=True)), Done())


def _begin_shutdown(state: ClusterState, command: BeginShutdown) -> CommandOutcome:
    broker = current_broker(state, command.node_id, command.broker_epoch)
    stopping = replace(broker, is_shutting_down=True)
    changes = _over_hosted(state, stopping)
    records: list[Record] = []
    if not broker.is_shutting_down:
        records.append(BrokerChanged(broker.node_id, broker.is_fenced, is_shutting_down=True))
    records += changes.records()
    return CommandOutcome(records, ShutdownProgress(_leader_count(state, changes, broker.node_id)))


def _unregister(state: ClusterState, command: UnregisterBroker) -> CommandOutcome:
    broker = state.brokers.get(command.node_id)
    if broker is None:
        return CommandOutcome([], Done())
    if not broker.is_fenced:
        status, advice = ("alive", "stop it first")
        if broker.is_shutting_down:
            status, advice = ("stopping", "try again when its session has ended")
        raise InvalidRequestError(
            f"broker {broker.node_id} is {status} at {broker.host}:{broker.port}; {advice}"
        )
    replica_count = state.index.load(broker.node_id).replica_count
    if replica_count:
        raise InvalidRequestError(
            f"broker {broker.node_id} still has {replica_count} replicas; move them to other"
            f" brokers first: tidelog broker drain {broker.node_id}"
        )
    records: list[Record] = [BrokerUnregistered(broker.node_id)]
    overrides = without_node(state.overrides, broker.node_id)
    if overrides != state.overrides:
        records.append(ClusterConfigSet(overrides))  # A later broker of this id is another one.
    return CommandOutcome(records, Done())


def _drain(state: ClusterState, command: DrainBroker) -> CommandOutcome:
    node_id = command.node_id
    check_known(state, [node_id])
    if (node_id in state.drained_node_ids) == command.is_drained:
        return CommandOutcome([], Done())
    if command.is_drained and all(
        other in state.drained_node_ids or other == node_id for other in state.brokers
    ):
        raise InvalidRequestError(
            f"broker {node_id} is the last one that is not drained; end the draining of another"
            " broker first"
        )
    return CommandOutcome([BrokerDrained(node_id, command.is_drained)], Done())


def check_known(state: ClusterState, node_ids: Iterable[int]) -> None:
    """Check that brokers are registered.

    Raises:
        InvalidRequestError: A broker is not; the text names the registered ones.
    """
    for node_id in node_ids:
        if node_id not in state.brokers:
            raise InvalidRequestError(
                f"there is no broker {node_id}; there are"
                f" {', '.join(map(str, sorted(state.brokers)))}"
            )


def _changed(
    state: ClusterState,
    broker: BrokerRegistration,
    *,
    directory_epoch: int | None = None,
    supported_levels: SupportedLevels | None = None,
) -> list[Record]:
    """Return the records of a broker that is fenced or unfenced."""
    record = BrokerChanged(
        broker.node_id,
        broker.is_fenced,
        broker.is_shutting_down,
        directory_epoch,
        supported_levels,
    )
    return [record, *_over_hosted(state, broker).records()]


def _over_hosted(state: ClusterState, broker: BrokerRegistration) -> PartitionChangeBuilder:
    changes = PartitionChangeBuilder(state, broker=broker)
    for topic in _hosted_topics(state, broker.node_id):
        for number, partition in enumerate(state.partitions(topic.topic_id)):
            if broker.node_id in partition.in_sync_or_eligible or any(
                each.node_id == broker.node_id for each in partition.unverified_replicas
            ):
                changes.apply_event(topic, number)
    return changes


def _hosted_topics(state: ClusterState, node_id: int) -> list[Topic]:
    topics: list[Topic] = []
    for topic_id in state.index.topic_ids(node_id):
        topic = state.catalog.topic_by_id(topic_id)
        assert topic is not None
        topics.append(topic)
    return topics


def _leader_count(state: ClusterState, changes: PartitionChangeBuilder, node_id: int) -> int:
    count = state.index.load(node_id).leader_count
    for topic_id, number, after in changes.changed():
        before = state.partition(topic_id, number)
        assert before is not None
        count += (after.leader == node_id) - (before.leader == node_id)
    return count
