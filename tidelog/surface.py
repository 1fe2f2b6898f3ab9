"""Every public name of `tidelog`, which hands them out when they are first asked for."""

import os
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from client.admin import Admin
from client.client import Client, connect
from client.cluster_admin import MovingReplica
from client.config import ClientConfig, ConsumerConfig, ProducerConfig
from client.consumer import Consumer
from client.group_description import (
    GroupDescription,
    GroupProgress,
    MemberDescription,
    OffsetMove,
)
from client.metadata import TopicPartition
from client.producer import Producer, ProducerStatistics
from client.queue import Queue
from client.queue_counting import DescribedQueue, MessageCounts
from client.queue_history import EventKind, HistoryEvent
from client.queue_looking import SeenMessage
from client.queue_message import Message, Origin
from client.queue_redrive import RedriveReport
from client.queue_sending import OutgoingMessage
from client.queue_worker import QueueWorker, WorkerConfig, WorkerStatistics
from client.receipt import RangeReceipt, Receipt
from client.record import Record, RecordBatch
from client.record_iterator import BatchIterator, RecordIterator
from client.staging import StagedBatch, StagedTask, StagingTask
from wire.cluster_admin import AcceptedLoss, LeaderElected, NodeDescription, PartitionState
from wire.cluster_admin import DescribeClusterReply as ClusterDescription
from wire.errors import (
    BatchError,
    BrokerError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    CorruptBatchError,
    CorruptRecordError,
    DataDirectoryError,
    DeliveryTimeoutError,
    DiskFullError,
    DuplicateBrokerError,
    DuplicateSequenceError,
    FencedInstanceError,
    FencedLeaderEpochError,
    FencedProducerError,
    GroupNotEmptyError,
    IneligibleReplicaError,
    InvalidBatchError,
    InvalidConfigError,
    InvalidReceiptError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    LogOfflineError,
    MessageBodyLostError,
    MessageGoneError,
    NoPositionError,
    NotControllerError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    OverloadedError,
    PartitionFullError,
    PartitionNotOwnedError,
    QueueExistsError,
    ReceiptExpiredError,
    RecordTooLargeError,
    RequestTimedOutError,
    RetriableError,
    ShuttingDownError,
    StagedRecordsLostError,
    StaleBrokerEpochError,
    StaleMemberEpochError,
    StalePartitionEpochError,
    StaleTransactionError,
    TidelogError,
    TopicExistsError,
    TransactionGoneError,
    UnexpectedServerError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownPartitionError,
    UnknownQueueError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnsupportedVersionError,
    WireFormatError,
)
from wire.fetch import PartitionOffset
from wire.groups import GroupListing
from wire.produce import AckLevel
from wire.queue_admin import QueueDescription, QueuePartitionDescription
from wire.queues import MessageState, QueueCounts
from wire.reassignment import PartitionMove, PartitionMoved, ReplicaProgress
from wire.redrives import RedriveStatus
from wire.topics import PartitionDescription, TopicDescription
from wire.transactions import TransactionDescription, TransactionStatus

__all__ = [
    "AcceptedLoss",
    "AckLevel",
    "Admin",
    "BatchError",
    "BatchIterator",
    "BrokerError",
    "Client",
    "ClientConfig",
    "ClusterDescription",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "Consumer",
    "ConsumerConfig",
    "CorruptBatchError",
    "CorruptRecordError",
    "DataDirectoryError",
    "DeliveryTimeoutError",
    "DescribedQueue",
    "DiskFullError",
    "DuplicateBrokerError",
    "DuplicateSequenceError",
    "EventKind",
    "FencedInstanceError",
    "FencedLeaderEpochError",
    "FencedProducerError",
    "GroupDescription",
    "GroupListing",
    "GroupNotEmptyError",
    "GroupProgress",
    "HistoryEvent",
    "IneligibleReplicaError",
    "InvalidBatchError",
    "InvalidConfigError",
    "InvalidReceiptError",
    "InvalidRequestError",
    "InvalidTopicError",
    "LeaderElected",
    "LeaderNotAvailableError",
    "LogOfflineError",
    "MemberDescription",
    "Message",
    "MessageBodyLostError",
    "MessageCounts",
    "MessageGoneError",
    "MessageState",
    "MovingReplica",
    "NoPositionError",
    "NodeDescription",
    "NotControllerError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetMove",
    "OffsetOutOfRangeError",
    "Origin",
    "OutOfOrderSequenceError",
    "OutgoingMessage",
    "OverloadedError",
    "PartitionDescription",
    "PartitionFullError",
    "PartitionMove",
    "PartitionMoved",
    "PartitionNotOwnedError",
    "PartitionOffset",
    "PartitionState",
    "Producer",
    "ProducerConfig",
    "ProducerStatistics",
    "Queue",
    "QueueCounts",
    "QueueDescription",
    "QueueExistsError",
    "QueuePartitionDescription",
    "QueueWorker",
    "RangeReceipt",
    "Receipt",
    "ReceiptExpiredError",
    "Record",
    "RecordBatch",
    "RecordIterator",
    "RecordTooLargeError",
    "RedriveReport",
    "RedriveStatus",
    "ReplicaProgress",
    "RequestTimedOutError",
    "RetriableError",
    "RunningBroker",
    "SeenMessage",
    "ShuttingDownError",
    "StagedBatch",
    "StagedRecordsLostError",
    "StagedTask",
    "StagingTask",
    "StaleBrokerEpochError",
    "StaleMemberEpochError",
    "StalePartitionEpochError",
    "StaleTransactionError",
    "TidelogError",
    "TopicDescription",
    "TopicExistsError",
    "TopicPartition",
    "TransactionDescription",
    "TransactionGoneError",
    "TransactionStatus",
    "UnexpectedServerError",
    "UnknownGroupError",
    "UnknownMemberError",
    "UnknownPartitionError",
    "UnknownQueueError",
    "UnknownTopicError",
    "UnknownTopicIdError",
    "UnsupportedVersionError",
    "WireFormatError",
    "WorkerConfig",
    "WorkerStatistics",
    "connect",
    "open_broker",
]


class RunningBroker(Protocol):
    """A broker that `open_broker` runs."""

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        ...


def open_broker(
    data_dir: str | os.PathLike[str], *, listen: str = "127.0.0.1:0", **settings: object
) -> AbstractAsyncContextManager[RunningBroker]:
    """Run a broker inside this program while the block runs; then stop it cleanly.

    `async with tidelog.open_broker("data") as broker: ... tidelog.connect(broker.address)`

    Args:
        data_dir: Where its data is; made if it is not there.
        listen: Where it listens; by default on a free port of this machine.
        settings: Fields of the broker's configuration, such as `flush_interval_ms=1000`.

    Raises:
        DataDirectoryError: The data directory is in use, of another node, or damaged.
        ConfigError: A setting is wrong, or the address cannot be listened on.
    """
    # Programs that only talk to brokers do not load one.
    from tidelog import embedded  # noqa: PLC0415

    return embedded.open_broker(data_dir, listen=listen, **settings)
