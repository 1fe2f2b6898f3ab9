"""What the cluster's state machine can be asked to do, and what it answers.

Pure: declarations. Each command may be given again when its answer was lost: what makes the second
one harmless is said with it. The commands of `coordinator.metadata.catalog` are taken as well.
"""

from typing import TypeVar

import msgspec

from tidelog.coordinator.metadata import catalog
from tidelog.coordinator.metadata.records import PartitionRegistration, Record
from tidelog.coordinator.metadata.transactions import AppendedPart
from tidelog.wire.errors import ErrorDetail, WireFormatError
from tidelog.wire.messages.transactions import StagedPart, TransactionStatus

Message = TypeVar("Message")


class RegisterBroker(msgspec.Struct, frozen=True, array_like=True, tag="register-broker"):
    """A broker's process has started. The same incarnation is registered once."""

    node_id: int
    disk_id: str
    incarnation_id: str
    host: str
    port: int
    rack: str = ""
    clean_stop_epoch: int | None = None
    """Broker epoch of the process that stopped last on this disk, if it wrote all to it (KIP-966).

    Not just whether the last stop was clean: between the process that is known here and this one
    there may have been another, which stopped cleanly but did not get to register.
    """
    known_epoch: int | None = None
    """Broker epoch of the last registration of this node that the process has heard of, 0 for none.

    Refused if there was another one meanwhile, so that a command of an earlier process, which was
    long on its way, does not take the place of a later one; `None` is not looked at.
    """


class UnfenceBroker(msgspec.Struct, frozen=True, array_like=True, tag="unfence-broker"):
    """A broker has caught up with the metadata, and may lead and be in sync."""

    node_id: int
    broker_epoch: int


class FenceBroker(msgspec.Struct, frozen=True, array_like=True, tag="fence-broker"):
    """A broker was silent for too long, or has stopped."""

    node_id: int
    broker_epoch: int
    """Nothing happens to a broker that has registered anew since."""


class BeginShutdown(msgspec.Struct, frozen=True, array_like=True, tag="begin-shutdown"):
    """A broker is about to stop: others take over what they can."""

    node_id: int
    broker_epoch: int


class UnregisterBroker(msgspec.Struct, frozen=True, array_like=True, tag="unregister-broker"):
    """A broker will not come back. One that is not there is no error."""

    node_id: int


class DrainBroker(msgspec.Struct, frozen=True, array_like=True, tag="drain-broker"):
    """A broker is to have no replicas: it gets none any more. Those that it has are moved apart."""

    node_id: int
    is_drained: bool = True
    """`False` takes it back."""


class CreateReplicatedTopic(
    msgspec.Struct, frozen=True, array_like=True, tag="create-replicated-topic"
):
    """Make a topic. The same topic id is made once."""

    name: str
    topic_id: bytes
    """16 bytes, random; drawn by whoever gives the command."""
    partition_count: int
    overrides: dict[str, str]
    replication_factor: int | None = None
    """`None` for the cluster's default."""
    assignment: list[list[int]] | None = None
    """Node ids for each partition, first the preferred leader; `None` to have them chosen."""


class AddPartitions(msgspec.Struct, frozen=True, array_like=True, tag="add-partitions"):
    """Let a topic have more partitions. It is no error when it has so many already."""

    name: str
    partition_count: int
    """Of the topic afterwards."""
    topic_id: bytes | None = None


class CreateQueue(msgspec.Struct, frozen=True, array_like=True, tag="create-queue"):
    """Make a queue, and its topic if there is none. The same queue id is made once.

    A queue of this name that is what is asked for already is no error.
    """

    name: str
    queue_id: bytes
    """16 bytes, random; drawn by whoever gives the command, as the next two."""
    receipt_key: bytes
    """32 bytes, random."""
    new_topic_id: bytes
    """16 bytes, random; of the topic if it has to be made."""
    created_at_ms: int
    """Wall clock of whoever gives the command."""
    topic: str
    """Whose records are the messages."""
    topic_id: bytes | None
    """Of the topic in which `start_offsets` were looked up; `None` if there was none."""
    start_offsets: list[int]
    """One for each partition; empty if there was no topic."""
    is_fifo: bool
    overrides: dict[str, str]
    """Settings of the queue."""
    partition_count: int | None = None
    """Of the topic; `None` for what it has, or one. Without it, only a topic of the queue's own
    name is made."""
    topic_overrides: dict[str, str] = {}
    """Settings of the topic if it has to be made."""


class AlterQueue(msgspec.Struct, frozen=True, array_like=True, tag="alter-queue"):
    """Change settings of a queue."""

    name: str
    set_overrides: dict[str, str]
    reset_overrides: list[str]


class DeleteQueue(msgspec.Struct, frozen=True, array_like=True, tag="delete-queue"):
    """Make a queue go away; the records stay. With its id, a command given again does nothing."""

    name: str
    queue_id: bytes | None = None
    """Which queue of this name is meant, `None` for the one that is there now."""
    with_topic: bool = False
    """Delete the topic and its records, too; refused if other queues stand on it."""
    detach_sources: bool = False
    """Queues whose dead-letter queue it is have none any more; else it is not deleted."""


class InSyncReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica that its leader takes to be in sync."""

    node_id: int
    broker_epoch: int
    """Of the process whose fetches the leader has seen (KIP-903)."""


class ProposedIsr(msgspec.Struct, frozen=True, array_like=True):
    """The in-sync replicas that a leader wants for one partition."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    """The state that the leader decided on; refused when it was changed since."""
    in_sync_replicas: list[InSyncReplica]
    """If this is so already, and nothing was changed since, only the partition epoch rises: nothing
    that was asked for before is carried out any more."""


class AlterPartitions(msgspec.Struct, frozen=True, array_like=True, tag="alter-partitions"):
    """A leader changes in-sync replicas. What was carried out already succeeds again."""

    node_id: int
    broker_epoch: int
    changes: list[ProposedIsr]


class ElectLeaders(msgspec.Struct, frozen=True, array_like=True, tag="elect-leaders"):
    """Let the preferred replicas lead, or anybody who can."""

    partitions: list[tuple[bytes, int]]
    accept_data_loss: bool = False
    """Where nobody is left who has all committed records, take somebody who may not."""
    leader_epochs: list[int] | None = None
    """Those of the partitions when the loss was accepted, in the same order. Where another one was
    elected since and is gone as well, nobody has accepted what would be lost now. `None`: whatever
    they are."""


class Reassignment(msgspec.Struct, frozen=True, array_like=True):
    """Where the replicas of one partition shall be."""

    topic_id: bytes
    partition: int
    replicas: list[int] | None
    """Node ids, first the preferred leader; `None` cancels a reassignment under way."""


class ReassignReplicas(msgspec.Struct, frozen=True, array_like=True, tag="reassign-replicas"):
    """Move replicas. What is under way or done already succeeds again."""

    reassignments: list[Reassignment]


class FailedReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica that its own broker reports as failed."""

    topic_id: bytes
    partition: int
    may_lack_records: bool
    """Whether committed records may be damaged or gone; else it only cannot take more of them."""
    is_offline: bool = False
    """Whether its log serves nothing before its broker is started anew, and then what it had."""
    is_lost: bool = False
    """Whether files are gone, and nobody can tell what was in them: it is removed in any case."""


class RemoveFromIsr(msgspec.Struct, frozen=True, array_like=True, tag="remove-from-isr"):
    """Remove replicas of a broker from the in-sync replicas, as long as others can lead.

    Where it is so already, or nobody else could lead what is not lost, nothing happens.
    """

    node_id: int
    broker_epoch: int
    replicas: list[FailedReplica]


class AlterClusterConfig(msgspec.Struct, frozen=True, array_like=True, tag="alter-cluster-config"):
    """Change settings of the cluster."""

    set_overrides: dict[str, str]
    reset_overrides: list[str]


class BeginTransaction(msgspec.Struct, frozen=True, array_like=True, tag="begin-transaction"):
    """Open a transaction, or keep it open for longer.

    Given again it finds the transaction open under the same number, or committed.
    """

    name: str
    transaction_id: int
    timeout_ms: int
    """So long it stays open from now on."""
    topics: list[str]
    """Which are to have a staging log."""
    staging_ids: list[bytes]
    """One for each topic, for a staging log that has to be made; 16 bytes each, random."""


class CommitTransaction(msgspec.Struct, frozen=True, array_like=True, tag="commit-transaction"):
    """Have what was staged appended, all of it. The same transaction is committed once."""

    name: str
    transaction_id: int
    number: int
    parts: list[StagedPart]


class AbortTransaction(msgspec.Struct, frozen=True, array_like=True, tag="abort-transaction"):
    """Close a transaction without anything; one that is committed stays so."""

    name: str
    transaction_id: int
    number: int
    """0 for whichever is open."""


class ExpireTransactions(msgspec.Struct, frozen=True, array_like=True, tag="expire-transactions"):
    """Close what is open for too long, and forget what was not used for too long."""


class FinishedPart(msgspec.Struct, frozen=True, array_like=True):
    """A part of a commit of which a leader has seen to the end."""

    part: AppendedPart
    leader_epoch: int
    """Of the partition."""


class FinishParts(msgspec.Struct, frozen=True, array_like=True, tag="finish-parts"):
    """Parts of commits are readable, or lost. Those that are done already are left out."""

    node_id: int
    parts: list[FinishedPart]


class CatchUp(msgspec.Struct, frozen=True, array_like=True, tag="catch-up"):
    """Nothing shall change: who asks wants to know all that was decided before."""


BrokerCommand = (
    RegisterBroker | UnfenceBroker | FenceBroker | BeginShutdown | UnregisterBroker | DrainBroker
)
TopicCommand = catalog.Command | CreateReplicatedTopic | AddPartitions | AlterClusterConfig
QueueCommand = CreateQueue | AlterQueue | DeleteQueue
PartitionCommand = AlterPartitions | ElectLeaders | ReassignReplicas | RemoveFromIsr
TransactionCommand = (
    BeginTransaction | CommitTransaction | AbortTransaction | ExpireTransactions | FinishParts
)
Command = (
    BrokerCommand | TopicCommand | QueueCommand | PartitionCommand | TransactionCommand | CatchUp
)


class Registered(msgspec.Struct, frozen=True, array_like=True, tag="registered"):
    """A broker is registered."""

    broker_epoch: int


class ShutdownProgress(msgspec.Struct, frozen=True, array_like=True, tag="shutdown-progress"):
    """What a broker that is about to stop still leads, because nobody else can."""

    leader_count: int


class TopicAnswer(msgspec.Struct, frozen=True, array_like=True, tag="topic-answer"):
    """The topic that a command was about."""

    topic_id: bytes


class QueueAnswer(msgspec.Struct, frozen=True, array_like=True, tag="queue-answer"):
    """The queue that a command was about."""

    queue_id: bytes
    topic_id: bytes
    """Of the topic whose records are the messages; empty if the queue is gone by now."""


class ProducerIds(msgspec.Struct, frozen=True, array_like=True, tag="producer-ids"):
    """Producer ids that nobody else gets."""

    first: int
    end: int
    """Exclusive."""


class PartitionAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What became of one partition of a command."""

    topic_id: bytes
    number: int
    partition: PartitionRegistration | None
    """As it is now, `None` when there is none."""
    error: ErrorDetail | None = None
    """Why nothing was changed."""


class PartitionAnswers(msgspec.Struct, frozen=True, array_like=True, tag="partition-answers"):
    """One answer for each partition of a command, in its order."""

    answers: list[PartitionAnswer]


class TransactionAnswer(msgspec.Struct, frozen=True, array_like=True, tag="transaction-answer"):
    """The transaction that a command was about."""

    number: int
    """Of the open transaction, or of the one that is committed by this; else 0."""
    status: TransactionStatus
    """Of the transaction; `OPEN` also for one that nobody knows (any more)."""


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """There is nothing more to say."""


Reply = (
    Registered
    | ShutdownProgress
    | TopicAnswer
    | QueueAnswer
    | ProducerIds
    | PartitionAnswers
    | TransactionAnswer
    | Done
)


class CommandOutcome(msgspec.Struct, frozen=True):
    """What a command comes to."""

    records: list[Record]
    """To be agreed on, then applied, all of them or none."""
    reply: Reply
    """To be given when the records are committed."""


def encode_command(command: Command) -> bytes:
    """Return the bytes of a command on its way to the node that decides."""
    return msgspec.msgpack.encode(command)


def decode_command(data: bytes | memoryview) -> Command:
    """Return the command in these bytes.

    Raises:
        WireFormatError: They are none, or one of a newer version.
    """
    return _decode(_command_decoder, data)


def encode_reply(reply: Reply) -> bytes:
    """Return the bytes of the answer to a command."""
    return msgspec.msgpack.encode(reply)


def decode_reply(data: bytes | memoryview) -> Reply:
    """Return the answer in these bytes.

    Raises:
        WireFormatError: They are none, or one of a newer version.
    """
    return _decode(_reply_decoder, data)


def _decode(decoder: msgspec.msgpack.Decoder[Message], data: bytes | memoryview) -> Message:
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"not a command, or its answer: {error}") from error


_command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
