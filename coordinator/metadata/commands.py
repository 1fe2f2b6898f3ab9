"""The commands of the cluster's state machine, and its replies.

Pure: declarations. Each command may be sent again when its answer was lost: each docstring says why
the second one is harmless. The commands of `coordinator.metadata.catalog` are accepted as well.
"""

from typing import TypeVar

import msgspec

from tidelog.coordinator.metadata import catalog
from tidelog.coordinator.metadata.records import LogEnd, PartitionRegistration, Record
from tidelog.coordinator.metadata.transactions import AppendedPart
from tidelog.coordinator.security.commands import SecurityCommand
from tidelog.wire.errors import ErrorDetail, WireFormatError
from tidelog.wire.messages.features import FeatureLevel, SupportedLevels
from tidelog.wire.messages.field_types import (
    BrokerEpoch,
    Epoch,
    NodeId,
    Offset,
    PartitionNumber,
    Port,
)
from tidelog.wire.messages.transactions import NameForgotten, StagedPart, TransactionStatus

Message = TypeVar("Message")


class RegisterBroker(msgspec.Struct, frozen=True, array_like=True, tag="register-broker"):
    """A broker's process has started. The same incarnation is registered once."""

    node_id: NodeId
    disk_id: str
    incarnation_id: str
    host: str
    port: Port
    rack: str = ""
    clean_stop_epoch: BrokerEpoch | None = None
    """Broker epoch of the last process on this disk if it stopped with all on disk (KIP-966).

    Not just whether the last stop was clean: between the last registered process and this one there
    may have been another, which stopped cleanly without registering.
    """
    known_epoch: BrokerEpoch | None = None
    """Broker epoch of this node's last registration that the process knows, 0 for none.

    The command is refused if the node has registered since. So a delayed command of an earlier
    process does not replace a later registration. `None` skips the check.
    """
    directory_epoch: BrokerEpoch | None = None
    """Broker epoch in the data directory, 0 for none.

    The data is old if the cluster knows that the directory held a later one. `None` skips the
    check.
    """
    supported_levels: SupportedLevels | None = None
    """Feature levels of the process; `None` from a version without any."""


class UnfenceBroker(msgspec.Struct, frozen=True, array_like=True, tag="unfence-broker"):
    """A broker has caught up with the metadata, and may lead and join ISRs."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    directory_epoch: BrokerEpoch | None = None
    """Broker epoch that its data directory holds, durably; recorded if it is higher than the known
    one, also for a broker that is not fenced."""
    supported_levels: SupportedLevels | None = None
    """Feature levels of the process; recorded if its registration has others."""


class FenceBroker(msgspec.Struct, frozen=True, array_like=True, tag="fence-broker"):
    """A broker was silent for too long, or has stopped."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    """A broker that has registered again since is not fenced."""


class BeginShutdown(msgspec.Struct, frozen=True, array_like=True, tag="begin-shutdown"):
    """A broker is about to stop: its leaderships move where another replica can lead."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class UnregisterBroker(msgspec.Struct, frozen=True, array_like=True, tag="unregister-broker"):
    """A broker will not come back. An unregistered broker is no error."""

    node_id: NodeId


class DrainBroker(msgspec.Struct, frozen=True, array_like=True, tag="drain-broker"):
    """A broker gets no more replicas. Its existing replicas are moved by separate commands."""

    node_id: NodeId
    is_drained: bool = True
    """`False` cancels the draining."""


class CreateReplicatedTopic(
    msgspec.Struct, frozen=True, array_like=True, tag="create-replicated-topic"
):
    """Create a topic. The same topic id is created once."""

    name: str
    topic_id: bytes
    """16 bytes, random; drawn by the sender of the command."""
    partition_count: int
    overrides: dict[str, str]
    replication_factor: int | None = None
    """`None` for the cluster's default."""
    assignment: list[list[NodeId]] | None = None
    """Node ids for each partition, first the preferred leader; `None` for automatic placement."""
    labels: dict[str, str] = {}
    created_by: str = ""
    """Text of the principal that asks for it; empty for none, which has no quotas."""


class AddPartitions(msgspec.Struct, frozen=True, array_like=True, tag="add-partitions"):
    """Raise the number of partitions of a topic. Repeating the same number is no error."""

    name: str
    partition_count: int
    """The number of partitions afterwards."""
    topic_id: bytes | None = None


class CreateQueue(msgspec.Struct, frozen=True, array_like=True, tag="create-queue"):
    """Create a queue, and its topic if there is none. The same queue id is created once.

    An existing queue of this name that matches the request is no error.
    """

    name: str
    queue_id: bytes
    """16 bytes, random; drawn by the sender of the command, as the next two."""
    receipt_key: bytes
    """32 bytes, random."""
    new_topic_id: bytes
    """16 bytes, random; id of the topic if it is created."""
    created_at_ms: int
    """Wall clock of the sender of the command."""
    topic: str
    """The source topic, whose records are the messages."""
    topic_id: bytes | None
    """Id of the topic in which `start_offsets` were looked up; `None` without one."""
    start_offsets: list[int]
    """One for each partition; empty without a topic."""
    is_fifo: bool
    overrides: dict[str, str]
    """Settings of the queue."""
    partition_count: int | None = None
    """Partitions of the topic; `None` for those that it has, or one. With `None`, only a topic with
    the queue's own name is created."""
    topic_overrides: dict[str, str] = {}
    """Settings of the topic if it is created."""
    labels: dict[str, str] = {}
    """Labels of the queue. An existing queue must have the same, if any are given."""
    created_by: str = ""
    """Text of the principal that asks for it; empty for none, which has no quotas."""


class CreateQueues(msgspec.Struct, frozen=True, array_like=True, tag="create-queues"):
    """Create queues in their order, in one entry; each is accepted or refused alone.

    The state machine decides about each with those before it applied. Needs a feature level, for a
    controller of an earlier version does not know the command.
    """

    queues: list[CreateQueue]


class AlterQueue(msgspec.Struct, frozen=True, array_like=True, tag="alter-queue"):
    """Change settings and labels of a queue."""

    name: str
    set_overrides: dict[str, str]
    reset_overrides: list[str]
    set_labels: dict[str, str] = {}
    remove_labels: list[str] = []
    altered_at_ms: int | None = None
    """Wall clock of the sender of the command; `None` from an earlier version."""


class DeleteQueue(msgspec.Struct, frozen=True, array_like=True, tag="delete-queue"):
    """Delete a queue; the records stay. With its id, a repeated command does nothing."""

    name: str
    queue_id: bytes | None = None
    """Id of the queue, `None` for the current queue of this name."""
    with_topic: bool = False
    """Delete the topic and its records, too; refused if other queues stand on it."""
    detach_sources: bool = False
    """Unset the dead-letter queue of its source queues; otherwise these prevent the deletion."""


class InSyncReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica that its leader proposes for the ISR."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    """Broker epoch of the process that sent the fetches (KIP-903)."""


class ProposedIsr(msgspec.Struct, frozen=True, array_like=True):
    """The ISR that a leader proposes for one partition."""

    topic_id: bytes
    partition: PartitionNumber
    leader_epoch: Epoch
    partition_epoch: Epoch
    """The state that the leader decided on; refused if the partition was changed since."""
    in_sync_replicas: list[InSyncReplica]
    """The proposed ISR. If it is the current ISR and the partition was not changed since, only the
    partition epoch rises: no earlier request is applied any more."""


class AlterPartitions(msgspec.Struct, frozen=True, array_like=True, tag="alter-partitions"):
    """A leader changes ISRs. A change that was applied already succeeds again."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    changes: list[ProposedIsr]


class ElectLeaders(msgspec.Struct, frozen=True, array_like=True, tag="elect-leaders"):
    """Elect the preferred leaders, or unclean leaders."""

    partitions: list[tuple[bytes, int]]
    accept_data_loss: bool = False
    """Without a live replica that has all committed records, elect one that may lack some."""
    leader_epochs: list[int] | None = None
    """Leader epochs of the partitions when the loss was accepted, in the same order. A partition
    with a later leader that failed as well is refused: the loss of its records was not accepted.
    `None` skips the check."""


class Reassignment(msgspec.Struct, frozen=True, array_like=True):
    """The target replicas of one partition."""

    topic_id: bytes
    partition: PartitionNumber
    replicas: list[NodeId] | None
    """Node ids, first the preferred leader; `None` cancels the reassignment."""


class ReassignReplicas(msgspec.Struct, frozen=True, array_like=True, tag="reassign-replicas"):
    """Move replicas. A reassignment that is running or complete succeeds again."""

    reassignments: list[Reassignment]


class FailedReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica that its own broker reports as failed."""

    topic_id: bytes
    partition: PartitionNumber
    may_lack_records: bool
    """Whether committed records may be damaged or gone; otherwise it only cannot accept more."""
    is_offline: bool = False
    """Whether its log is offline until its broker restarts, and then complete."""
    is_lost: bool = False
    """Whether files with unknown records are gone: the replica is removed in any case."""


class RemoveFromIsr(msgspec.Struct, frozen=True, array_like=True, tag="remove-from-isr"):
    """Remove replicas of a broker from their ISRs while other replicas can lead.

    A replica that is removed already, or that is the only one with the remaining records, stays as
    it is.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    replicas: list[FailedReplica]


class ReportedLog(msgspec.Struct, frozen=True, array_like=True):
    """The log of an unverified replica, as its own broker found it."""

    topic_id: bytes
    partition: PartitionNumber
    leader_epoch: Epoch
    """Leader epoch of the partition, which has no leader in it; the log does not change."""
    log_end: LogEnd


class ReportLogEnds(msgspec.Struct, frozen=True, array_like=True, tag="report-log-ends"):
    """A broker reports the ends of its logs, for the election of leaders.

    A report is skipped if the partition has got a leader since, or the replica is not among the
    unverified ones.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    logs: list[ReportedLog]


class ElectRecovered(msgspec.Struct, frozen=True, array_like=True, tag="elect-recovered"):
    """Elect leaders from the unverified replicas that have reported, without the missing ones.

    A partition that has another leader epoch since is skipped.
    """

    partitions: list[tuple[bytes, int, int]]
    """Topic id, number and leader epoch."""


class RefusedTruncation(msgspec.Struct, frozen=True, array_like=True):
    """A truncation that a follower refuses: its leader lacks records known to be committed."""

    topic_id: bytes
    partition: PartitionNumber
    leader_epoch: Epoch
    """Leader epoch of the leader that the follower follows."""
    offset: Offset
    """First offset that would be removed."""
    high_watermark: Offset
    """High watermark that the follower knows."""
    log_end_offset: Offset
    """Log end offset of the follower."""
    last_epoch: int | None
    """Leader epoch of the follower's last record."""
    is_whole: bool = True
    """Whether the follower's log has no known damage and accepts appends."""


class RefuseTruncation(msgspec.Struct, frozen=True, array_like=True, tag="refuse-truncation"):
    """A broker refuses to truncate replicas below high watermarks that it knows.

    A report of an earlier leader epoch, or one that is recorded already, changes nothing.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    partitions: list[RefusedTruncation]


class ReportedLoss(msgspec.Struct, frozen=True, array_like=True):
    """Records of a partition that a broker lacks, or had to remove."""

    topic_id: bytes
    partition: PartitionNumber
    leader_epoch: Epoch
    """Leader epoch of the partition in which the broker noticed it."""
    first_offset: Offset
    end_offset: Offset
    """Exclusive."""
    detail: str
    """One line: cause and consequence."""
    kind: str = "records_lost"
    """See `coordinator.metadata.cluster_events.ClusterEventKind`."""


class ReportLoss(msgspec.Struct, frozen=True, array_like=True, tag="report-loss"):
    """A broker reports losses of committed records, each of which becomes an event.

    The same broker, kind, partition, leader epoch and offsets are recorded once. A loss of a topic
    that is deleted by now is skipped.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    losses: list[ReportedLoss]


class AcknowledgeEvents(msgspec.Struct, frozen=True, array_like=True, tag="acknowledge-events"):
    """An administrator acknowledges events. An acknowledged event is skipped."""

    event_ids: list[int]
    up_to_id: int | None = None
    """All events up to this one (inclusive) are acknowledged as well."""


class AlterClusterConfig(msgspec.Struct, frozen=True, array_like=True, tag="alter-cluster-config"):
    """Change settings of the cluster."""

    set_overrides: dict[str, str]
    reset_overrides: list[str]


class BeginTransaction(msgspec.Struct, frozen=True, array_like=True, tag="begin-transaction"):
    """Open a transaction, or keep it open for longer.

    A repeated command finds the transaction open under the same number, or committed.
    """

    name: str
    transaction_id: int
    timeout_ms: int
    """How long the transaction stays open from now on, in milliseconds."""
    topics: list[str]
    """Topics that get a staging log."""
    staging_ids: list[bytes]
    """Ids of the staging logs to create, one for each topic; 16 bytes each, random."""
    number: int = 0
    """Number under which a commit has begun it; 0 without one."""


class FinishedPart(msgspec.Struct, frozen=True, array_like=True):
    """A part of a commit that a leader has appended or found lost."""

    part: AppendedPart
    leader_epoch: Epoch
    """Leader epoch of the partition."""


class FinishParts(msgspec.Struct, frozen=True, array_like=True, tag="finish-parts"):
    """Parts of commits are readable, or lost. Parts that are complete already are skipped."""

    node_id: NodeId
    parts: list[FinishedPart]


class CommitTransaction(msgspec.Struct, frozen=True, array_like=True, tag="commit-transaction"):
    """Append all staged records of a transaction. The same transaction is committed once."""

    name: str
    transaction_id: int
    number: PartitionNumber
    parts: list[StagedPart]
    begins_next: bool = False
    """Begin the next transaction of the name as well."""
    is_last: bool = False
    """No transaction of this name follows."""
    finished: FinishParts | None = None
    """Parts of earlier commits that the sender has appended. They are recorded with the commit, or
    again later if it is refused."""


class AbortTransaction(msgspec.Struct, frozen=True, array_like=True, tag="abort-transaction"):
    """Close a transaction without appending it; a committed transaction stays committed."""

    name: str
    transaction_id: int
    number: PartitionNumber
    """0 for the open transaction of the name, of any number."""


class ExpireTransactions(msgspec.Struct, frozen=True, array_like=True, tag="expire-transactions"):
    """Close transactions whose timeout has passed, and forget names unused for too long."""


class ForgetTransactionNames(
    msgspec.Struct, frozen=True, array_like=True, tag="forget-transaction-names"
):
    """Delete the state of names. A name that is in use is kept, and its result says why."""

    names: list[str]
    unused_for_ms: int
    """A name that was used since is in use."""


class CatchUp(msgspec.Struct, frozen=True, array_like=True, tag="catch-up"):
    """A command without a change: its answer shows that all earlier decisions are applied."""


class SetFeatureLevel(msgspec.Struct, frozen=True, array_like=True, tag="set-feature-level"):
    """Raise or lower the feature level of the cluster. The same level again is no error."""

    level: FeatureLevel
    member_ids: list[NodeId]
    """The nodes that get the metadata log; each must be registered, and know the level."""


BrokerCommand = (
    RegisterBroker | UnfenceBroker | FenceBroker | BeginShutdown | UnregisterBroker | DrainBroker
)
TopicCommand = catalog.Command | CreateReplicatedTopic | AddPartitions | AlterClusterConfig
QueueCommand = CreateQueue | AlterQueue | DeleteQueue
PartitionCommand = (
    AlterPartitions
    | ElectLeaders
    | ElectRecovered
    | ReassignReplicas
    | RefuseTruncation
    | RemoveFromIsr
    | ReportLogEnds
)
EventCommand = ReportLoss | AcknowledgeEvents
TransactionCommand = (
    BeginTransaction
    | CommitTransaction
    | AbortTransaction
    | ExpireTransactions
    | FinishParts
    | ForgetTransactionNames
)
Command = (
    BrokerCommand
    | TopicCommand
    | QueueCommand
    | PartitionCommand
    | EventCommand
    | TransactionCommand
    | SetFeatureLevel
    | SecurityCommand
    | CatchUp
)
AnyCommand = Command | CreateQueues
"""What a controller carries out: one command, or several in one entry."""


class Registered(msgspec.Struct, frozen=True, array_like=True, tag="registered"):
    """The answer to a registration."""

    broker_epoch: BrokerEpoch
    directory_epoch: BrokerEpoch | None = None
    """Epoch that the data directory is known to have held before; with a lower one it is older."""


class ShutdownProgress(msgspec.Struct, frozen=True, array_like=True, tag="shutdown-progress"):
    """The leaderships that a broker in shutdown still has, because no other replica can lead."""

    leader_count: int


class TopicAnswer(msgspec.Struct, frozen=True, array_like=True, tag="topic-answer"):
    """The topic of a command."""

    topic_id: bytes


class QueueAnswer(msgspec.Struct, frozen=True, array_like=True, tag="queue-answer"):
    """The queue of a command."""

    queue_id: bytes
    topic_id: bytes
    """Id of the source topic; empty if the queue is deleted by now."""


class QueueResult(msgspec.Struct, frozen=True, array_like=True):
    """The queue of one item of a command, or why it is refused."""

    answer: QueueAnswer | None
    """`None` with an error."""
    error: ErrorDetail | None = None


class QueueResults(msgspec.Struct, frozen=True, array_like=True, tag="queue-results"):
    """One result for each queue of a command, in its order."""

    results: list[QueueResult]


class ProducerIds(msgspec.Struct, frozen=True, array_like=True, tag="producer-ids"):
    """A block of producer ids that is given out once."""

    first: int
    end: int
    """Exclusive."""


class PartitionAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The result of a command for one partition."""

    topic_id: bytes
    number: PartitionNumber
    partition: PartitionRegistration | None
    """The current registration, `None` without one."""
    error: ErrorDetail | None = None
    """Why the partition was refused."""


class PartitionAnswers(msgspec.Struct, frozen=True, array_like=True, tag="partition-answers"):
    """One answer for each partition of a command, in its order."""

    answers: list[PartitionAnswer]


class TransactionAnswer(msgspec.Struct, frozen=True, array_like=True, tag="transaction-answer"):
    """The transaction of a command."""

    number: PartitionNumber
    """Number of the open transaction, or of the one that this command commits; else 0."""
    status: TransactionStatus
    """Status of the transaction; `OPEN` also for an unknown or forgotten one."""
    expires_in_ms: int = 0
    """Time until the open transaction expires, or that a commit has begun; 0 for the timeout of the
    request."""
    next_number: int = 0
    """Number of the transaction that a commit has begun; 0 without one."""


class ForgottenNames(msgspec.Struct, frozen=True, array_like=True, tag="forgotten-names"):
    """One result for each name of a command, in its order."""

    results: list[NameForgotten]


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """An empty answer."""


Reply = (
    Registered
    | ShutdownProgress
    | TopicAnswer
    | QueueAnswer
    | QueueResults
    | ProducerIds
    | PartitionAnswers
    | TransactionAnswer
    | ForgottenNames
    | Done
)


class CommandOutcome(msgspec.Struct, frozen=True):
    """The result of a command."""

    records: list[Record]
    """Records to commit, then to apply, all of them or none."""
    reply: Reply
    """The reply to send when the records are committed."""


def encode_command(command: AnyCommand) -> bytes:
    """Return the bytes of a command for the controller."""
    return msgspec.msgpack.encode(command)


def decode_command(data: bytes | memoryview) -> AnyCommand:
    """Return the command in these bytes.

    Raises:
        WireFormatError: The bytes are no command, or one of a newer version.
    """
    return _decode(_command_decoder, data)


def encode_reply(reply: Reply) -> bytes:
    """Return the bytes of the answer to a command."""
    return msgspec.msgpack.encode(reply)


def decode_reply(data: bytes | memoryview) -> Reply:
    """Return the answer in these bytes.

    Raises:
        WireFormatError: The bytes are no answer, or one of a newer version.
    """
    return _decode(_reply_decoder, data)


def _decode(decoder: msgspec.msgpack.Decoder[Message], data: bytes | memoryview) -> Message:
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"not a command, or its answer: {error}") from error


_command_decoder: msgspec.msgpack.Decoder[AnyCommand] = msgspec.msgpack.Decoder(AnyCommand)
_reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
