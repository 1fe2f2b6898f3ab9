"""The public names of `tidelog`, which the package imports on first use."""

import os
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tidelog.client.admin.admin import Admin
from tidelog.client.admin.alerts import Alert, AlertReport, AlertSeverity
from tidelog.client.admin.cluster import MovingReplica
from tidelog.client.admin.cluster_health import ClusterHealth, ClusterSeverity, cluster_health
from tidelog.client.admin.groups import (
    GroupDescription,
    GroupProgress,
    MemberDescription,
    OffsetMove,
)
from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.client.admin.queue_counts import DescribedQueue, MessageCounts
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.client import Client, connect
from tidelog.client.cluster.list_offsets import PartitionOffset
from tidelog.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.consumer.fetch.record_iterator import BatchIterator, RecordIterator
from tidelog.client.errors import BufferFullError, ClosedError
from tidelog.client.metrics.statistics import (
    ClientConsumerStatistics,
    ClientProducerStatistics,
    ClientQueueStatistics,
    ClientStatistics,
    ConnectionStatistics,
    ConsumedTopicStatistics,
    ProducedTopicStatistics,
    RequestStatistics,
)
from tidelog.client.producer.producer import Producer, ProducerStatistics
from tidelog.client.producer.receipt import RangeReceipt, Receipt
from tidelog.client.queue.inspect.history import EventKind, HistoryEvent
from tidelog.client.queue.inspect.message_story import MessageInterval, MessageStory
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message, Origin
from tidelog.client.queue.receive.subscription import QueueSubscription
from tidelog.client.queue.receive.worker import QueueWorker, WorkerConfig, WorkerStatistics
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.client.topic_partition import TopicPartition
from tidelog.client.transactions.transaction import TaskResult, Transaction, TransactionTask
from tidelog.wire.errors import (
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
    LogTruncatedError,
    MessageBodyLostError,
    MessageGoneError,
    NoPositionError,
    NotControllerError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    OverLimitError,
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
from tidelog.wire.messages.cluster_admin import (
    AcceptedLoss,
    DamagedReplica,
    EventDescription,
    LeaderElected,
    LeaderlessPartitions,
    NodeDescription,
    PartitionState,
)
from tidelog.wire.messages.cluster_admin import DescribeClusterReply as ClusterDescription
from tidelog.wire.messages.features import NodeFeatures, SupportedLevels
from tidelog.wire.messages.features import UpdateFeaturesReply as ClusterFeatures
from tidelog.wire.messages.groups import GroupListing
from tidelog.wire.messages.metrics import MetricFamily, MetricHistogram, MetricSample
from tidelog.wire.messages.produce import AckLevel
from tidelog.wire.messages.queue_admin import QueueDescription, QueuePartitionDescription
from tidelog.wire.messages.queues import MessageState, QueueCounts
from tidelog.wire.messages.reassignment import PartitionMove, PartitionMoved, ReplicaProgress
from tidelog.wire.messages.redrives import RedriveStatus
from tidelog.wire.messages.topics import PartitionDescription, TopicDescription
from tidelog.wire.messages.transactions import TransactionDescription, TransactionStatus
from tidelog.wire.metrics.metric import HistogramValue

__all__ = [
    "AcceptedLoss",
    "AckLevel",
    "Admin",
    "Alert",
    "AlertReport",
    "AlertSeverity",
    "BatchError",
    "BatchIterator",
    "BrokerError",
    "BrokerMetrics",
    "BufferFullError",
    "Client",
    "ClientConfig",
    "ClientConsumerStatistics",
    "ClientProducerStatistics",
    "ClientQueueStatistics",
    "ClientStatistics",
    "ClosedError",
    "ClusterDescription",
    "ClusterFeatures",
    "ClusterHealth",
    "ClusterSeverity",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "ConnectionStatistics",
    "ConsumedTopicStatistics",
    "Consumer",
    "ConsumerConfig",
    "CorruptBatchError",
    "CorruptRecordError",
    "DamagedReplica",
    "DataDirectoryError",
    "DeliveryTimeoutError",
    "DescribedQueue",
    "DiskFullError",
    "DuplicateBrokerError",
    "DuplicateSequenceError",
    "EventDescription",
    "EventKind",
    "FencedInstanceError",
    "FencedLeaderEpochError",
    "FencedProducerError",
    "GroupDescription",
    "GroupListing",
    "GroupNotEmptyError",
    "GroupProgress",
    "HistogramValue",
    "HistoryEvent",
    "IneligibleReplicaError",
    "InvalidBatchError",
    "InvalidConfigError",
    "InvalidReceiptError",
    "InvalidRequestError",
    "InvalidTopicError",
    "LeaderElected",
    "LeaderNotAvailableError",
    "LeaderlessPartitions",
    "LogOfflineError",
    "LogTruncatedError",
    "MemberDescription",
    "Message",
    "MessageBodyLostError",
    "MessageCounts",
    "MessageGoneError",
    "MessageInterval",
    "MessageState",
    "MessageStory",
    "MetricFamily",
    "MetricHistogram",
    "MetricSample",
    "MovingReplica",
    "NoPositionError",
    "NodeDescription",
    "NodeFeatures",
    "NotControllerError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetMove",
    "OffsetOutOfRangeError",
    "Origin",
    "OutOfOrderSequenceError",
    "OutgoingMessage",
    "OverLimitError",
    "OverloadedError",
    "PartitionDescription",
    "PartitionFullError",
    "PartitionMove",
    "PartitionMoved",
    "PartitionNotOwnedError",
    "PartitionOffset",
    "PartitionState",
    "PeekedMessage",
    "ProducedTopicStatistics",
    "Producer",
    "ProducerConfig",
    "ProducerStatistics",
    "Queue",
    "QueueCounts",
    "QueueDescription",
    "QueueExistsError",
    "QueuePartitionDescription",
    "QueueSubscription",
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
    "RequestStatistics",
    "RequestTimedOutError",
    "RetriableError",
    "RunningBroker",
    "ShuttingDownError",
    "StagedRecordsLostError",
    "StaleBrokerEpochError",
    "StaleMemberEpochError",
    "StalePartitionEpochError",
    "StaleTransactionError",
    "SupportedLevels",
    "TaskResult",
    "TidelogError",
    "TopicDescription",
    "TopicExistsError",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionGoneError",
    "TransactionStatus",
    "TransactionTask",
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
    "cluster_health",
    "connect",
    "open_broker",
]


class RunningBroker(Protocol):
    """A broker that `open_broker` runs."""

    @property
    def address(self) -> str:
        """`host:port` that clients connect to."""
        ...

    @property
    def http_address(self) -> str:
        """`host:port` of the HTTP server; empty unless `http_listen` is set."""
        ...


def open_broker(
    data_dir: str | os.PathLike[str], *, listen: str = "127.0.0.1:0", **settings: object
) -> AbstractAsyncContextManager[RunningBroker]:
    """Run a broker inside this program while the block runs; then stop it cleanly.

    `async with tidelog.open_broker("data") as broker: ... tidelog.connect(broker.address)`

    Args:
        data_dir: The directory of its data, created if missing.
        listen: `host:port` to listen on; by default, a free port of this machine.
        settings: Fields of the broker's configuration, such as `log_flush_interval_ms=1000`.

    Raises:
        DataDirectoryError: The data directory is in use, belongs to another node, or is damaged.
        ConfigError: A setting is not valid, or the broker cannot listen on the address.
    """
    # Programs that only use the client do not import the broker.
    from tidelog import embedded  # noqa: PLC0415

    return embedded.open_broker(data_dir, listen=listen, **settings)
