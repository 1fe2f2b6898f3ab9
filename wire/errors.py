"""Every error of tidelog, grouped by what the caller can do about it.

Pure: no clock, no I/O.

    TidelogError
    ├── BrokerError                       a broker said no; has .code and .is_retriable
    │   ├── RetriableError                the same request may succeed later, unchanged
    │   │   ├── NotLeaderError            refresh metadata, ask the leader
    │   │   ├── UnknownTopicIdError       refresh metadata: the topic was deleted or is not here yet
    │   │   ├── DiskFullError             the partition is read-only until there is room
    │   │   ├── OverloadedError           a limit of the broker is reached; back off
    │   │   ├── ThrottledError            .retry_after_ms: more was sent than the queue takes
    │   │   ├── ShuttingDownError         the broker is going away
    │   │   ├── RequestTimedOutError      not acknowledged in time; it may still happen
    │   │   ├── CorruptBatchError         the batch was damaged on its way to the broker
    │   │   ├── NotControllerError        ask the node that decides for the cluster now
    │   │   ├── BrokerNotReadyError       wait: it has started and does not serve clients yet
    │   │   ├── LeaderNotAvailableError   no live replica has all committed records
    │   │   ├── NotEnoughReplicasError    too few replicas are in sync
    │   │   ├── NotEnoughReplicasAfterAppendError  appended, then too few were; outcome unknown
    │   │   └── IneligibleReplicaError    a replica cannot be in sync now: it is fenced or stopping
    │   ├── InvalidRequestError           the request can never succeed as it is
    │   │   ├── UnsupportedVersionError   .min_version, .max_version
    │   │   ├── InvalidBatchError         the header of a batch contradicts itself or its payload
    │   │   ├── RecordTooLargeError       .size_bytes, .limit_bytes
    │   │   ├── InvalidTopicError         an illegal name, partition count or replica assignment
    │   │   └── InvalidConfigError        a setting is unknown or out of range
    │   ├── UnknownTopicError / TopicExistsError / UnknownPartitionError
    │   ├── UnknownQueueError / QueueExistsError
    │   ├── InvalidReceiptError           forged, damaged, or of other messages
    │   ├── ReceiptExpiredError           somebody else has the message, or may have it by now
    │   ├── MessageGoneError              the message is deleted, expired or a dead letter
    │   ├── OffsetOutOfRangeError         .log_start_offset, .log_end_offset
    │   ├── OutOfOrderSequenceError       .expected_sequence
    │   ├── DuplicateSequenceError / FencedProducerError
    │   ├── UnknownGroupError / GroupNotEmptyError
    │   ├── UnknownMemberError            fenced or gone: join again under a new member id
    │   ├── FencedInstanceError           .incarnation of the process that took over
    │   ├── StaleMemberEpochError         .member_epoch from which on the partition is the member's
    │   ├── PartitionNotOwnedError        the member was not given the partition, or let go of it
    │   ├── StaleTransactionError         a later batch of this name is open or committed
    │   ├── TransactionGoneError          the batch is not open any more: begin and stage anew
    │   ├── StagedRecordsLostError        committed, and some of it was lost before it was appended
    │   ├── FencedLeaderEpochError / StalePartitionEpochError / StaleBrokerEpochError
    │   ├── DuplicateBrokerError          the node id or the disk belongs to another broker
    │   ├── CorruptRecordError            stored bytes are damaged: .offset, .next_offset
    │   ├── LogOfflineError               the disk failed under this partition
    │   ├── PartitionFullError            it is as large as its topic allows
    │   └── UnexpectedServerError         a defect of the broker; its log has the details
    ├── WireFormatError                   the peer sent bytes that are not this protocol
    ├── ConnectionLostError               the request may or may not have been executed
    │   └── ConnectError                  no connection could be made; the request was not sent
    ├── DeliveryTimeoutError              a record was not acknowledged in time; outcome unknown
    ├── MessageBodyLostError              the topic has deleted chunks of a large message
    ├── BatchError                        .errors: some of what one call was to do failed
    ├── NoPositionError                   a consumer was not told where to start
    └── ConfigError / DataDirectoryError  start-up: settings; a directory in use or unreadable

World errors are exceptions, programming errors are assertions, expected absence is `None`.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import ClassVar, final

import msgspec


class ErrorCode(IntEnum):
    """The number of an error on the wire. Numbers are never reused."""

    UNEXPECTED_SERVER_ERROR = 1
    INVALID_REQUEST = 2
    UNSUPPORTED_VERSION = 3
    INVALID_BATCH = 4
    RECORD_TOO_LARGE = 5
    INVALID_TOPIC = 6
    INVALID_CONFIG = 7
    UNKNOWN_TOPIC = 8
    TOPIC_EXISTS = 9
    UNKNOWN_PARTITION = 10
    OFFSET_OUT_OF_RANGE = 11
    OUT_OF_ORDER_SEQUENCE = 12
    DUPLICATE_SEQUENCE = 13
    FENCED_PRODUCER = 14
    CORRUPT_RECORD = 15
    LOG_OFFLINE = 16
    NOT_LEADER = 17
    UNKNOWN_TOPIC_ID = 18
    DISK_FULL = 19
    OVERLOADED = 20
    SHUTTING_DOWN = 21
    REQUEST_TIMED_OUT = 22
    CORRUPT_BATCH = 23
    UNKNOWN_GROUP = 24
    GROUP_NOT_EMPTY = 25
    UNKNOWN_MEMBER = 26
    FENCED_INSTANCE = 27
    STALE_MEMBER_EPOCH = 28
    PARTITION_NOT_OWNED = 29
    NOT_CONTROLLER = 30
    LEADER_NOT_AVAILABLE = 31
    NOT_ENOUGH_REPLICAS = 32
    INELIGIBLE_REPLICA = 33
    FENCED_LEADER_EPOCH = 34
    STALE_PARTITION_EPOCH = 35
    STALE_BROKER_EPOCH = 36
    DUPLICATE_BROKER = 37
    BROKER_NOT_READY = 38
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 39
    UNKNOWN_QUEUE = 40
    QUEUE_EXISTS = 41
    INVALID_RECEIPT = 42
    RECEIPT_EXPIRED = 43
    MESSAGE_GONE = 44
    THROTTLED = 45
    STALE_TRANSACTION = 46
    TRANSACTION_GONE = 47
    STAGED_RECORDS_LOST = 48
    PARTITION_FULL = 49


class ErrorDetail(msgspec.Struct, frozen=True, array_like=True):
    """An error as it travels: in an error reply, or beside one partition's result."""

    code: int
    """An `ErrorCode`; a number this side does not know is read as an unexpected server error."""
    message: str
    """One line for people: what is wrong and what would be right."""
    details: dict[str, int] = {}
    """The attributes of the exception, such as `log_start_offset`."""


class TidelogError(Exception):
    """The root of everything tidelog raises on purpose."""


class BrokerError(TidelogError):
    """A broker refused or failed a request.

    Numbers that a program may want are attributes of the subclasses, `None` when the broker did
    not say them; they travel in `ErrorDetail.details` under the names listed in `detail_names`.
    """

    code: ClassVar[ErrorCode]
    is_retriable: ClassVar[bool] = False
    detail_names: ClassVar[tuple[str, ...]] = ()
    at: tuple[str, int] | None = None
    """Topic and partition that a consumer could not read, `None` where no consumer raised it."""

    def __init__(self, message: str, **details: int) -> None:
        assert details.keys() <= set(self.detail_names), f"{type(self).__name__} takes {details}"
        super().__init__(message)
        self._details = details
        for name in self.detail_names:
            setattr(self, name, details.get(name))

    def detail(self, name: str) -> int | None:
        """Return one number that came with the error, `None` when the broker did not say it."""
        return self._details.get(name)

    def to_wire(self) -> ErrorDetail:
        """Return what travels; `from_wire` is the inverse."""
        # A file name that is not UTF-8 must not make its own error impossible to send.
        message = str(self).encode("utf-8", "backslashreplace").decode("utf-8")
        return ErrorDetail(int(self.code), message, self._details)


class RetriableError(BrokerError):
    """The same request may succeed later, unchanged."""

    is_retriable: ClassVar[bool] = True


@final
class NotLeaderError(RetriableError):
    """This broker does not lead the partition: refresh metadata and ask the leader."""

    code = ErrorCode.NOT_LEADER


@final
class UnknownTopicIdError(RetriableError):
    """No topic has this id here: it was deleted, or this broker has not heard of it yet."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


@final
class DiskFullError(RetriableError):
    """The disk is full; the partition is read-only and comes back by itself."""

    code = ErrorCode.DISK_FULL


@final
class OverloadedError(RetriableError):
    """A limit of the broker is reached; back off and try again."""

    code = ErrorCode.OVERLOADED


@final
class ThrottledError(RetriableError):
    """More was sent to the queue than its `send_rate` allows; nothing of this was taken."""

    code = ErrorCode.THROTTLED
    detail_names = ("retry_after_ms",)
    retry_after_ms: int | None
    """Not sooner may it be sent again."""


@final
class ShuttingDownError(RetriableError):
    """The broker is shutting down and takes no new work."""

    code = ErrorCode.SHUTTING_DOWN


@final
class RequestTimedOutError(RetriableError):
    """The request was not completed in its time; it may still take effect."""

    code = ErrorCode.REQUEST_TIMED_OUT


@final
class CorruptBatchError(RetriableError):
    """A record batch arrived with a wrong checksum: it was damaged on its way."""

    code = ErrorCode.CORRUPT_BATCH


@final
class NotControllerError(RetriableError):
    """This node does not decide for the cluster, or knows less than the one that asks."""

    code = ErrorCode.NOT_CONTROLLER


@final
class BrokerNotReadyError(RetriableError):
    """The broker has started and does not serve clients yet; the message says what it waits for."""

    code = ErrorCode.BROKER_NOT_READY


@final
class LeaderNotAvailableError(RetriableError):
    """No replica that may lead is alive: those that may have all committed records."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


@final
class NotEnoughReplicasError(RetriableError):
    """Fewer replicas are in sync, or would be, than `min_insync_replicas`."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


@final
class NotEnoughReplicasAfterAppendError(RetriableError):
    """Too few replicas are in sync since the records were appended; they may still be kept."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@final
class IneligibleReplicaError(RetriableError):
    """A replica cannot be in sync now: fenced, stopping, or started anew meanwhile."""

    code = ErrorCode.INELIGIBLE_REPLICA


class InvalidRequestError(BrokerError):
    """The request can never succeed as it is."""

    code = ErrorCode.INVALID_REQUEST


@final
class UnsupportedVersionError(InvalidRequestError):
    """The API or its version is not spoken by this broker."""

    code = ErrorCode.UNSUPPORTED_VERSION
    detail_names = ("min_version", "max_version")
    min_version: int | None
    """Lowest version that the broker speaks (inclusive)."""
    max_version: int | None
    """Highest version that the broker speaks (inclusive)."""


@final
class InvalidBatchError(InvalidRequestError):
    """The header of a record batch contradicts itself, its length or its payload."""

    code = ErrorCode.INVALID_BATCH


@final
class RecordTooLargeError(InvalidRequestError):
    """A record or batch is larger than the limit."""

    code = ErrorCode.RECORD_TOO_LARGE
    detail_names = ("size_bytes", "limit_bytes")
    size_bytes: int | None
    limit_bytes: int | None


@final
class InvalidTopicError(InvalidRequestError):
    """A topic name, partition count, replication factor or replica assignment is not legal."""

    code = ErrorCode.INVALID_TOPIC


@final
class InvalidConfigError(InvalidRequestError):
    """A topic setting is unknown or its value is not legal."""

    code = ErrorCode.INVALID_CONFIG


@final
class UnknownTopicError(BrokerError):
    """No topic has this name."""

    code = ErrorCode.UNKNOWN_TOPIC


@final
class TopicExistsError(BrokerError):
    """A topic of this name exists already."""

    code = ErrorCode.TOPIC_EXISTS


@final
class UnknownQueueError(BrokerError):
    """No queue has this name."""

    code = ErrorCode.UNKNOWN_QUEUE


@final
class QueueExistsError(BrokerError):
    """A queue of this name exists already, and is not what was asked for."""

    code = ErrorCode.QUEUE_EXISTS


@final
class InvalidReceiptError(BrokerError):
    """The receipt was forged or damaged, or is not one of these messages."""

    code = ErrorCode.INVALID_RECEIPT


@final
class ReceiptExpiredError(BrokerError):
    """The lease is over: somebody else has the message, or may have it by now."""

    code = ErrorCode.RECEIPT_EXPIRED


@final
class MessageGoneError(BrokerError):
    """The message is deleted, expired or a dead letter; nothing can be done to it any more."""

    code = ErrorCode.MESSAGE_GONE


@final
class UnknownPartitionError(BrokerError):
    """The topic has no partition of this number."""

    code = ErrorCode.UNKNOWN_PARTITION


@final
class OffsetOutOfRangeError(BrokerError):
    """The offset is not in the log: readable are `log_start_offset <= o < log_end_offset`."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE
    detail_names = ("log_start_offset", "log_end_offset")
    log_start_offset: int | None
    log_end_offset: int | None


@final
class OutOfOrderSequenceError(BrokerError):
    """A producer's sequence has a gap: a batch before this one is missing."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE
    detail_names = ("expected_sequence",)
    expected_sequence: int | None


@final
class DuplicateSequenceError(BrokerError):
    """The batch was appended before, too long ago to say at which offset."""

    code = ErrorCode.DUPLICATE_SEQUENCE


@final
class FencedProducerError(BrokerError):
    """A newer producer with the same id has taken over."""

    code = ErrorCode.FENCED_PRODUCER


@final
class UnknownGroupError(BrokerError):
    """No consumer group has this id."""

    code = ErrorCode.UNKNOWN_GROUP


@final
class GroupNotEmptyError(BrokerError):
    """Members are at work whose positions would be changed under their hands."""

    code = ErrorCode.GROUP_NOT_EMPTY


@final
class UnknownMemberError(BrokerError):
    """The group has no such member: it was fenced or has left. Join under a new member id."""

    code = ErrorCode.UNKNOWN_MEMBER


@final
class FencedInstanceError(BrokerError):
    """A newer process of the same static member has taken over; this one must stop."""

    code = ErrorCode.FENCED_INSTANCE
    detail_names = ("incarnation",)
    incarnation: int | None


@final
class StaleMemberEpochError(BrokerError):
    """The commit was made before something that overtook it, and counts no more."""

    code = ErrorCode.STALE_MEMBER_EPOCH
    detail_names = ("member_epoch",)
    member_epoch: int | None
    """Commits for this partition count from this epoch of the member on."""


@final
class PartitionNotOwnedError(BrokerError):
    """The member was not given the partition, or has let go of it."""

    code = ErrorCode.PARTITION_NOT_OWNED


@final
class FencedLeaderEpochError(BrokerError):
    """The partition has a newer leader epoch: another leader, or other replicas."""

    code = ErrorCode.FENCED_LEADER_EPOCH


@final
class StalePartitionEpochError(BrokerError):
    """The partition was changed meanwhile; take over its state, then decide again."""

    code = ErrorCode.STALE_PARTITION_EPOCH


@final
class StaleBrokerEpochError(BrokerError):
    """The broker was registered anew since, or is not registered; it must register."""

    code = ErrorCode.STALE_BROKER_EPOCH


@final
class DuplicateBrokerError(BrokerError):
    """The node id or the disk belongs to another broker, or a newer process took over."""

    code = ErrorCode.DUPLICATE_BROKER


@final
class PartitionFullError(BrokerError):
    """The partition is as large as `max_partition_bytes` of its topic allows."""

    code = ErrorCode.PARTITION_FULL


@final
class CorruptRecordError(BrokerError):
    """Stored bytes are damaged from `offset` up to, not including, `next_offset`."""

    code = ErrorCode.CORRUPT_RECORD
    detail_names = ("offset", "next_offset")
    offset: int | None
    next_offset: int | None


@final
class LogOfflineError(BrokerError):
    """The disk failed under this partition; it is offline until the broker is restarted."""

    code = ErrorCode.LOG_OFFLINE


@final
class UnexpectedServerError(BrokerError):
    """A defect of the broker; its log has the details."""

    code = ErrorCode.UNEXPECTED_SERVER_ERROR


class WireFormatError(TidelogError):
    """The peer sent bytes that are not this protocol; the connection is useless."""


class ConnectionLostError(TidelogError):
    """The connection broke; a request under way may or may not have been executed."""


@final
class ConnectError(ConnectionLostError):
    """No connection could be made: which address, what failed, what to try."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        """Say why; `is_refused`: the machine is there and nothing listens at the port."""
        super().__init__(message)
        self.is_refused = is_refused


@final
class DeliveryTimeoutError(TidelogError):
    """A record was not acknowledged in `delivery_timeout`; it may or may not be in the log."""


@final
class MessageBodyLostError(TidelogError):
    """The topic has deleted chunks of a large message: nobody can read it any more."""


@final
class BatchError(TidelogError):
    """Some of what was asked for in one call failed; the rest is done."""

    def __init__(self, message: str, errors: Mapping[int, TidelogError]) -> None:
        """Say in one line what failed."""
        super().__init__(message)
        self.errors = dict(sorted(errors.items()))
        """Why, by the place in what was given."""


@final
class NoPositionError(TidelogError):
    """A consumer was not told where to start in a partition."""


@final
class ConfigError(TidelogError):
    """Start-up settings are wrong; the message lists every problem."""


@final
class DataDirectoryError(TidelogError):
    """The data directory is in use, belongs to another node, or cannot be used."""


@final
class StaleTransactionError(BrokerError):
    """A batch with a higher id was committed under this name, or is open."""

    code = ErrorCode.STALE_TRANSACTION


@final
class TransactionGoneError(BrokerError):
    """The batch is not open: aborted, replaced or too old. Nothing of it was or will be visible."""

    code = ErrorCode.TRANSACTION_GONE


@final
class StagedRecordsLostError(BrokerError):
    """The batch is committed, and some of it is missing: somebody accepted a loss of records."""

    code = ErrorCode.STAGED_RECORDS_LOST


def _concrete_broker_errors() -> dict[int, type[BrokerError]]:
    found: dict[int, type[BrokerError]] = {}
    pending: list[type[BrokerError]] = [BrokerError]
    while pending:
        cls = pending.pop()
        if "code" in cls.__dict__:
            assert cls.code not in found, f"two errors share {cls.code!r}"
            found[cls.code] = cls
        pending.extend(cls.__subclasses__())
    return found


ERROR_CLASSES = _concrete_broker_errors()
"""The one table from `ErrorCode` to exception; the other direction is the class's `code`."""


def from_wire(detail: ErrorDetail) -> BrokerError:
    """Return the exception for an error that came over the wire.

    A code of a newer version becomes `UnexpectedServerError`; unknown details are dropped.
    """
    cls = ERROR_CLASSES.get(detail.code)
    if cls is None:
        return UnexpectedServerError(f"error {detail.code} of a newer broker: {detail.message}")
    known = {name: detail.details[name] for name in cls.detail_names if name in detail.details}
    return cls(detail.message, **known)
