"""Commands about partitions: ISR changes, leader elections and reassignments.

Pure: no clock, no I/O. Each function takes the state and a command, and returns the outcome. A
refused partition has an error in its own answer; the other partitions of the command are decided
without it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tidelog.coordinator.metadata.broker_commands import current_broker
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_events import EventRecorder
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    CommandOutcome,
    ElectLeaders,
    ElectRecovered,
    FailedReplica,
    InSyncReplica,
    PartitionAnswer,
    PartitionAnswers,
    PartitionCommand,
    ProposedIsr,
    Reassignment,
    ReassignReplicas,
    RefusedTruncation,
    RefuseTruncation,
    RemoveFromIsr,
    ReportLogEnds,
)
from tidelog.coordinator.metadata.election_events import record_loss, record_refusal
from tidelog.coordinator.metadata.leader_election import Assignment, Election, PartitionEvent
from tidelog.coordinator.metadata.partition_changes import PartitionChangeBuilder
from tidelog.coordinator.metadata.placement import check_not_drained, check_replicas
from tidelog.coordinator.metadata.records import DataLossAccepted, PartitionRegistration, Record
from tidelog.coordinator.metadata.recovery_commands import handle_recovery_command
from tidelog.coordinator.metadata.replica_removal import should_remove_from_isr
from tidelog.coordinator.metadata.replication_plan import check_minimum
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.truncation_refusal import event_of_refusal
from tidelog.wire.errors import (
    BrokerError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    NotControllerError,
    NotEnoughReplicasError,
    NotLeaderError,
    StalePartitionEpochError,
    UnknownPartitionError,
    UnknownTopicIdError,
)

_Change = TypeVar("_Change")


def handle_partition_command(
    state: ClusterState, command: PartitionCommand, *, now_ms: int
) -> CommandOutcome:
    """Return the outcome of a command about partitions.

    Raises:
        BrokerError: The command is refused as a whole.
    """
    match command:
        case AlterPartitions():
            return _alter_partitions(state, command)
        case ElectLeaders():
            return _elect_leaders(state, command, now_ms)
        case ReassignReplicas():
            return _reassign(state, command)
        case RemoveFromIsr():
            return _remove_from_isr(state, command)
        case ReportLogEnds() | ElectRecovered():
            return handle_recovery_command(state, command, now_ms=now_ms)
        case RefuseTruncation():
            return _refuse_truncation(state, command, now_ms)


def _alter_partitions(state: ClusterState, command: AlterPartitions) -> CommandOutcome:
    current_broker(state, command.node_id, command.broker_epoch)
    changes = PartitionChangeBuilder(state)

    def alter(change: ProposedIsr) -> None:
        topic, partition = _find(state, changes, change.topic_id, number=change.partition)
        wanted = [replica.node_id for replica in change.in_sync_replicas]
        _check_leader(command.node_id, change, partition)
        is_so = sorted(wanted) == sorted(partition.in_sync_replicas)
        if is_so and change.partition_epoch < partition.partition_epoch:
            return  # A retry: this change was perhaps applied, and its answer lost.
        _check_partition_epoch(change, partition)
        _check_in_sync(state, command.node_id, change.in_sync_replicas, partition=partition)
        if is_so:
            # The new epoch fences copies of earlier requests that are still on their way.
            changes.bump_partition_epoch(topic, change.partition)
        else:
            changes.apply_event(topic, change.partition, PartitionEvent(in_sync_replicas=wanted))

    def place(change: ProposedIsr) -> tuple[bytes, int]:
        return change.topic_id, change.partition

    answers = _answers(changes, command.changes, place, act=alter)
    return CommandOutcome(changes.records(), answers)


def _check_leader(node_id: int, change: ProposedIsr, partition: PartitionRegistration) -> None:
    """Check that the requester leads, by the newest epochs that it or this node knows. KIP-497."""
    if (
        change.leader_epoch > partition.leader_epoch
        or change.partition_epoch > partition.partition_epoch
    ):
        raise NotControllerError(
            f"this node knows partition {change.partition} only up to leader epoch"
            f" {partition.leader_epoch} and partition epoch {partition.partition_epoch}; send the"
            " request to the current controller"
        )
    if change.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpochError(
            f"partition {change.partition} has leader epoch {partition.leader_epoch}, later than"
            f" {change.leader_epoch}"
        )
    if partition.leader != node_id:
        raise NotLeaderError(f"broker {node_id} does not lead partition {change.partition}")


def _check_partition_epoch(change: ProposedIsr, partition: PartitionRegistration) -> None:
    """Check that the requester knows the last change. KIP-497."""
    if change.partition_epoch != partition.partition_epoch:
        raise StalePartitionEpochError(
            f"partition {change.partition} was changed: its partition epoch is"
            f" {partition.partition_epoch}, not {change.partition_epoch}"
        )


def _check_in_sync(
    state: ClusterState,
    leader: int,
    wanted: Sequence[InSyncReplica],
    *,
    partition: PartitionRegistration,
) -> None:
    node_ids = [replica.node_id for replica in wanted]
    if leader not in node_ids:
        raise InvalidRequestError(f"the leader, broker {leader}, must be in sync with itself")
    if len(set(node_ids)) != len(node_ids):
        raise InvalidRequestError(f"brokers stand twice in the proposed ISR: {node_ids}")
    for replica in wanted:
        if replica.node_id not in partition.replicas:
            raise InvalidRequestError(f"broker {replica.node_id} has no replica of this partition")
        broker = state.brokers[replica.node_id]
        if broker.broker_epoch != replica.broker_epoch:
            # The leader judged by fetches of an earlier process of this broker. KIP-903.
            raise IneligibleReplicaError(
                f"broker {replica.node_id} has restarted: its broker epoch is"
                f" {broker.broker_epoch}, not {replica.broker_epoch}"
            )
        if broker.is_fenced:
            raise IneligibleReplicaError(f"broker {replica.node_id} is fenced")
        if broker.is_shutting_down and replica.node_id not in partition.in_sync_replicas:
            raise IneligibleReplicaError(f"broker {replica.node_id} is shutting down")


def _elect_leaders(state: ClusterState, command: ElectLeaders, now_ms: int) -> CommandOutcome:
    changes = PartitionChangeBuilder(state)
    losses: list[Record] = []
    events = EventRecorder(state.events, now_ms=now_ms)
    epochs = dict(zip(command.partitions, command.leader_epochs or (), strict=False))

    def elect(key: tuple[bytes, int]) -> None:
        topic_id, number = key
        topic, before = _find(state, changes, topic_id, number=number)
        if command.accept_data_loss:
            is_at_stake = before.leader is None or bool(before.refusing_replicas)
            if is_at_stake and epochs.get(key, before.leader_epoch) < before.leader_epoch:
                raise StalePartitionEpochError(
                    f"partition {number} has had another leader since the loss was accepted; check"
                    " the partition again before accepting"
                )
            after = changes.apply_event(topic, number, PartitionEvent(election=Election.UNCLEAN))
            if after.leader is None:
                raise LeaderNotAvailableError(
                    f"no replica of partition {number} is alive; it has replicas on brokers"
                    f" {_listed(before.replicas)}{_told_offline(before)}"
                )
            if after.data_loss_epoch != before.data_loss_epoch:
                losses.append(_loss(topic_id, number, before, after=after, now_ms=now_ms))
                record_loss(events, topic, number, before=before, after=after)
            return
        first = before.replicas[0]
        after = changes.apply_event(topic, number, PartitionEvent(election=Election.PREFERRED))
        if after.leader != first:
            raise LeaderNotAvailableError(
                f"broker {first}, the preferred leader of partition {number}, is not in the ISR or"
                " is shutting down"
            )

    answers = _answers(changes, command.partitions, lambda key: key, act=elect)
    return CommandOutcome([*losses, *events.records(), *changes.records()], answers)


def _loss(
    topic_id: bytes,
    number: int,
    before: PartitionRegistration,
    *,
    after: PartitionRegistration,
    now_ms: int,
) -> DataLossAccepted:
    assert after.leader is not None
    return DataLossAccepted(
        topic_id,
        number,
        after.leader,
        after.leader_epoch,
        before.last_known_leader,
        before.eligible_leader_replicas,
        now_ms,
    )


def _reassign(state: ClusterState, command: ReassignReplicas) -> CommandOutcome:
    changes = PartitionChangeBuilder(state)

    def reassign(change: Reassignment) -> None:
        topic, partition = _find(state, changes, change.topic_id, number=change.partition)
        _check_may_move(state, topic)
        if change.replicas is None:
            target = _before_reassignment(partition)
        else:
            check_replicas(change.partition, change.replicas, state.brokers)
            check_minimum(topic, len(change.replicas))
            new = [node for node in change.replicas if node not in partition.replicas]
            check_not_drained(new, state.drained_node_ids)
            target = tuple(change.replicas)
        event = PartitionEvent(assignment=_toward(target, partition))
        _check_enough_copies_stay(changes, topic, change.partition, event=event)
        changes.apply_event(topic, change.partition, event)

    def place(change: Reassignment) -> tuple[bytes, int]:
        return change.topic_id, change.partition

    answers = _answers(changes, command.reassignments, place, act=reassign)
    return CommandOutcome(changes.records(), answers)


def _check_may_move(state: ClusterState, topic: Topic) -> None:
    """Refuse to move an internal topic alone: its replicas are where those of its source are."""
    if topic.is_internal:
        source = state.catalog.topic_by_id(topic.source_id)
        assert source is not None, "an internal topic is deleted before its source"
        what = f"the journal of queue {topic.queue_name!r}" if topic.queue else "a staging log"
        raise InvalidTopicError(f"{what} moves with its topic {source.name!r}; move that one")


def _before_reassignment(partition: PartitionRegistration) -> tuple[int, ...]:
    return tuple(node for node in partition.replicas if node not in partition.adding_replicas)


def _toward(target: tuple[int, ...], partition: PartitionRegistration) -> Assignment:
    """Return the assignment during a move: old replicas stay until all new ones are in sync."""
    original = _before_reassignment(partition)
    removing = tuple(node for node in original if node not in target)
    adding = tuple(node for node in target if node not in original)
    return Assignment((*target, *removing), adding, removing)


def _check_enough_copies_stay(
    changes: PartitionChangeBuilder, topic: Topic, number: int, *, event: PartitionEvent
) -> None:
    """Refuse to remove replicas if too few others have all committed records."""
    for step in changes.preview(topic, number, event):
        before, after = step.before, step.after
        had = {*before.in_sync_replicas, *before.eligible_leader_replicas}
        have = {*after.in_sync_replicas, *after.eligible_leader_replicas}
        minimum = changes.minimum(step.topic, after.replication_factor)
        if len(have) < min(len(had), minimum):
            of_queue = f" of the journal of {step.topic.queue_name!r}" if step.topic.queue else ""
            raise NotEnoughReplicasError(
                f"partition {number}{of_queue} would have {len(have)} replicas with all committed"
                f" records, min_insync_replicas is {minimum}; wait until more of brokers"
                f" {_listed(after.replicas)} are in sync"
            )


def _remove_from_isr(state: ClusterState, command: RemoveFromIsr) -> CommandOutcome:
    node_id = command.node_id
    broker = current_broker(state, node_id, command.broker_epoch)
    changes = PartitionChangeBuilder(state)

    def remove(replica: FailedReplica) -> None:
        topic, partition = _find(state, changes, replica.topic_id, number=replica.partition)
        if not should_remove_from_isr(partition, node_id, state.brokers, replica=replica):
            return
        # Records that were only in memory may be missing when the log is opened again.
        in_memory = replica.is_offline and state.may_lose_committed(topic, broker)
        if replica.may_lack_records or replica.is_lost or in_memory:
            event = PartitionEvent(lost=(node_id,), wiped=(node_id,) if replica.is_lost else ())
        elif replica.is_offline:
            event = PartitionEvent(offline=(node_id,))
        else:
            others = [node for node in partition.in_sync_replicas if node != node_id]
            event = PartitionEvent(in_sync_replicas=others)
        changes.apply_event(topic, replica.partition, event)

    def place(replica: FailedReplica) -> tuple[bytes, int]:
        return replica.topic_id, replica.partition

    answers = _answers(changes, command.replicas, place, act=remove)
    return CommandOutcome(changes.records(), answers)


def _refuse_truncation(
    state: ClusterState, command: RefuseTruncation, now_ms: int
) -> CommandOutcome:
    node_id = command.node_id
    current_broker(state, node_id, command.broker_epoch)
    changes = PartitionChangeBuilder(state)
    events = EventRecorder(state.events, now_ms=now_ms)

    def refuse(refused: RefusedTruncation) -> None:
        topic, before = _find(state, changes, refused.topic_id, number=refused.partition)
        event = event_of_refusal(before, node_id, state.brokers, refused=refused)
        if event is not None:
            after = changes.apply_event(topic, refused.partition, event)
            record_refusal(events, topic, refused, node_id=node_id, before=before, after=after)

    def place(refused: RefusedTruncation) -> tuple[bytes, int]:
        return refused.topic_id, refused.partition

    answers = _answers(changes, command.partitions, place, act=refuse)
    return CommandOutcome([*events.records(), *changes.records()], answers)


def _told_offline(partition: PartitionRegistration) -> str:
    offline = partition.offline_replicas
    return f"; restart {_listed(offline)}, where its log is offline" if offline else ""


def _find(
    state: ClusterState, changes: PartitionChangeBuilder, topic_id: bytes, *, number: int
) -> tuple[Topic, PartitionRegistration]:
    topic = state.catalog.topic_by_id(topic_id)
    if topic is None:
        raise UnknownTopicIdError(f"no topic has the id {topic_id.hex()}")
    partition = changes.partition(topic_id, number)
    if partition is None:
        raise UnknownPartitionError(
            f"there is no partition {number}; topic {topic.name!r} has partitions 0 to"
            f" {topic.partition_count - 1}"
        )
    return topic, partition


def _answers(
    builder: PartitionChangeBuilder,
    changes: Iterable[_Change],
    place: Callable[[_Change], tuple[bytes, int]],
    *,
    act: Callable[[_Change], None],
) -> PartitionAnswers:
    """Apply each request by itself, and return an answer for each."""
    answers: list[PartitionAnswer] = []
    for change in changes:
        error = None
        try:
            act(change)
        except BrokerError as refusal:
            error = refusal.to_wire()
        topic_id, number = place(change)
        partition = builder.partition(topic_id, number)
        answers.append(PartitionAnswer(topic_id, number, partition, error))
    return PartitionAnswers(answers)


def _listed(node_ids: Sequence[int]) -> str:
    return ", ".join(str(node_id) for node_id in node_ids)
