"""Every error of tidelog, grouped by what the caller can do about it.

Pure: no clock, no I/O.

    TidelogError
    ├── BrokerError                       a broker refused; has .code and .is_retriable
    │   ├── RetriableError                the same request may succeed later, unchanged
    │   │   ├── NotLeaderError            refresh metadata, ask the leader
    │   │   ├── UnknownTopicIdError       refresh metadata: the topic was deleted or is not here yet
    │   │   ├── DiskFullError             the partition is read-only until there is room
    │   │   ├── OverloadedError           a limit of the broker is reached; back off
    │   │   ├── ThrottledError            .retry_after_ms: a send rate or quota is exceeded
    │   │   ├── OverLimitError            .in_flight, .max_in_flight: too many messages in flight
    │   │   ├── ShuttingDownError         the broker shuts down
    │   │   ├── RequestTimedOutError      not acknowledged in time; it may still happen
    │   │   ├── CorruptBatchError         the batch was damaged in transit to the broker
    │   │   ├── NotControllerError        ask the present controller
    │   │   ├── BrokerNotReadyError       wait: the broker starts and does not serve clients yet
    │   │   ├── LeaderNotAvailableError   no live replica has all committed records
    │   │   ├── NotEnoughReplicasError    too few replicas are in sync
    │   │   ├── NotEnoughReplicasAfterAppendError  appended, then too few were; outcome unknown
    │   │   ├── IneligibleReplicaError    a replica cannot be in sync now: it is fenced or stopping
    │   │   ├── AuthenticationExpiredError  authenticate again
    │   │   ├── KeyUnavailableError       the key of an encrypted topic cannot be used now
    │   │   └── AuditUnavailableError     the record of an administrative request is not written
    │   ├── InvalidRequestError           the request can never succeed as it is
    │   │   ├── UnsupportedVersionError   .min_version, .max_version
    │   │   ├── InvalidBatchError         the header of a batch contradicts itself or its payload
    │   │   ├── RecordTooLargeError       .size_bytes, .limit_bytes
    │   │   ├── InvalidTopicError         an illegal name, partition count or replica assignment
    │   │   └── InvalidConfigError        a setting is unknown or out of range
    │   ├── UnknownTopicError / TopicExistsError / UnknownPartitionError
    │   ├── UnknownQueueError / QueueExistsError
    │   ├── InvalidReceiptError           forged, damaged, or of other messages
    │   ├── ReceiptExpiredError           another consumer has the message, or may have it
    │   ├── MessageGoneError              the message is deleted, expired or a dead letter
    │   ├── OffsetOutOfRangeError         .log_start_offset, .log_end_offset
    │   ├── LogTruncatedError             .truncated_to, .fetch_offset, .leader_epoch
    │   ├── NotANodeError                 only nodes of the cluster may send this
    │   ├── AuthenticationRequiredError   the connection has no credentials
    │   ├── AuthenticationFailedError     wrong credentials
    │   ├── NotAuthorizedError            the principal has no grant for this
    │   ├── QuotaExceededError            .limit, .used: a quota of a count or size is used up
    │   ├── OutOfOrderSequenceError       .expected_sequence
    │   ├── DuplicateSequenceError / FencedProducerError
    │   ├── UnknownGroupError / GroupNotEmptyError
    │   ├── UnknownMemberError            fenced or gone: join again under a new member id
    │   ├── FencedInstanceError           .incarnation of the process that took over
    │   ├── StaleMemberEpochError         .member_epoch from which the partition is the member's
    │   ├── PartitionNotOwnedError        the partition is not assigned, or was revoked
    │   ├── StaleTransactionError         a later batch of this name is open or committed
    │   ├── TransactionGoneError          the batch is not open any more: begin and stage again
    │   ├── StagedRecordsLostError        committed, but staged records were lost before the append
    │   ├── FencedLeaderEpochError / StalePartitionEpochError / StaleBrokerEpochError
    │   ├── DuplicateBrokerError          the node id or the disk belongs to another broker
    │   ├── CorruptRecordError            stored bytes are damaged: .offset, .next_offset
    │   ├── LogOfflineError               the disk failed under this partition
    │   ├── PartitionFullError            the partition is as large as its topic allows
    │   └── UnexpectedServerError         a defect of the broker; its log has the details
    ├── WireFormatError                   a reply is wrong; which broker, which API, and why
    ├── ConnectionLostError               the request may or may not have been executed
    │   ├── ConnectError                  no connection could be made; the request was not sent
    │   └── HandshakeFailedError          the handshake of TLS failed; the request was not sent
    ├── DeliveryTimeoutError              a record was not acknowledged in time; outcome unknown
    ├── MessageBodyLostError              the topic has deleted chunks of a large message
    ├── BatchError                        .errors, .receipts: a part of one call failed
    ├── NoPositionError                   a consumer has no position to start from
    └── ConfigError / DataDirectoryError  start-up: settings; a directory in use or unreadable

Errors of the environment are exceptions, programming errors are assertions, and expected absence
is `None`.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, ClassVar, final

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
    LOG_TRUNCATED = 50
    NOT_A_NODE = 51
    OVER_LIMIT = 52
    AUTHENTICATION_REQUIRED = 53
    AUTHENTICATION_FAILED = 54
    AUTHENTICATION_EXPIRED = 55
    NOT_AUTHORIZED = 56
    QUOTA_EXCEEDED = 57
    KEY_UNAVAILABLE = 58
    AUDIT_UNAVAILABLE = 59


class ErrorDetail(msgspec.Struct, frozen=True, array_like=True):
    """An error as it travels: in an error reply, or beside one partition's result."""

    code: int
    """An `ErrorCode`; an unknown number is read as an unexpected server error."""
    message: str
    """One readable line: what is wrong and what would be right."""
    details: dict[str, int] = {}
    """The attributes of the exception, such as `log_start_offset`."""


class TidelogError(Exception):
    """The root of all exceptions that tidelog raises on purpose."""


class BrokerError(TidelogError):
    """A broker refused or failed a request.

    The numbers of an error are attributes of its subclass, `None` when the broker did not send
    them. They travel in `ErrorDetail.details` under the names listed in `detail_names`.
    """

    code: ClassVar[ErrorCode]
    is_retriable: ClassVar[bool] = False
    detail_names: ClassVar[tuple[str, ...]] = ()
    at: tuple[str, int] | None = None
    """Topic and partition that a consumer could not read; `None` if no consumer raised it."""

    def __init__(self, message: str, **details: int) -> None:
        assert details.keys() <= set(self.detail_names), f"{type(self).__name__} takes {details}"
        super().__init__(message)
        self._details = details
        for name in self.detail_names:
            setattr(self, name, details.get(name))

    def detail(self, name: str) -> int | None:
        """Return one number of the error, `None` when the broker did not send it."""
        return self._details.get(name)

    def to_wire(self) -> ErrorDetail:
        """Return the error as an `ErrorDetail`; `from_wire` is the inverse."""
        # An error that names a file whose name is not UTF-8 must still be sendable.
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
    """No topic has this id here: it was deleted, or this broker's metadata is behind."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


@final
class DiskFullError(RetriableError):
    """The disk is full; the partition is read-only until there is room."""

    code = ErrorCode.DISK_FULL


@final
class OverloadedError(RetriableError):
    """A limit of the broker is reached; back off and try again."""

    code = ErrorCode.OVERLOADED


@final
class ThrottledError(RetriableError):
    """The queue's `send_rate`, or a quota with `over_quota = error`, is exceeded.

    No record and no message of the request was accepted.
    """

    code = ErrorCode.THROTTLED
    detail_names = ("retry_after_ms",)
    retry_after_ms: int | None
    """Earliest time of a retry, in ms from now."""


@final
class OverLimitError(RetriableError):
    """The queue has as many messages in flight as `max_in_flight` allows (SQS: `OverLimit`)."""

    code = ErrorCode.OVER_LIMIT
    detail_names = ("in_flight", "max_in_flight")
    in_flight: int | None
    """Messages in flight in the partition that has messages and may not deliver them."""
    max_in_flight: int | None
    """Share of that partition in the setting."""


@final
class ShuttingDownError(RetriableError):
    """The broker is shutting down and accepts no new requests."""

    code = ErrorCode.SHUTTING_DOWN


@final
class RequestTimedOutError(RetriableError):
    """The request was not completed within its timeout; it may still take effect."""

    code = ErrorCode.REQUEST_TIMED_OUT


@final
class CorruptBatchError(RetriableError):
    """A record batch arrived with a wrong checksum: it was damaged in transit."""

    code = ErrorCode.CORRUPT_BATCH


@final
class NotControllerError(RetriableError):
    """This node is not the controller, or its metadata is behind that of the requester."""

    code = ErrorCode.NOT_CONTROLLER


@final
class NotANodeError(BrokerError):
    """Only nodes of the cluster may send this, and the sender has not proved to be that node."""

    code = ErrorCode.NOT_A_NODE


@final
class AuthenticationRequiredError(BrokerError):
    """This broker serves authenticated clients only, and the connection has no credentials."""

    code = ErrorCode.AUTHENTICATION_REQUIRED


@final
class AuthenticationFailedError(BrokerError):
    """The credentials are wrong; the text does not say what of them."""

    code = ErrorCode.AUTHENTICATION_FAILED


@final
class AuthenticationExpiredError(RetriableError):
    """The credentials of the connection are no longer valid; authenticate again."""

    code = ErrorCode.AUTHENTICATION_EXPIRED


@final
class NotAuthorizedError(BrokerError):
    """The principal has no grant for this; the message names principal, action and resource."""

    code = ErrorCode.NOT_AUTHORIZED


@final
class QuotaExceededError(BrokerError):
    """A quota of a count or size is used up; the message names quota, limit and use."""

    code = ErrorCode.QUOTA_EXCEEDED
    detail_names = ("limit", "used")
    limit: int | None
    """Value of the quota."""
    used: int | None
    """Use before the refused request."""


@final
class KeyUnavailableError(RetriableError):
    """The broker lacks the master key of a topic's encrypted records."""

    code = ErrorCode.KEY_UNAVAILABLE


@final
class AuditUnavailableError(RetriableError):
    """The audit topic cannot be written, and `audit = required`; nothing was changed."""

    code = ErrorCode.AUDIT_UNAVAILABLE


@final
class BrokerNotReadyError(RetriableError):
    """The broker has started and does not serve clients yet; the message says what it waits for."""

    code = ErrorCode.BROKER_NOT_READY


@final
class LeaderNotAvailableError(RetriableError):
    """No live replica may lead: none in the ISR, and no eligible replica."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


@final
class NotEnoughReplicasError(RetriableError):
    """The ISR has, or would have, fewer replicas than `min_insync_replicas`."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


@final
class NotEnoughReplicasAfterAppendError(RetriableError):
    """The ISR became too small after the records were appended; they may still be kept."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@final
class IneligibleReplicaError(RetriableError):
    """A replica cannot be in the ISR now: its broker is fenced, stopping or restarted meanwhile."""

    code = ErrorCode.INELIGIBLE_REPLICA


class InvalidRequestError(BrokerError):
    """The request can never succeed as it is."""

    code = ErrorCode.INVALID_REQUEST


@final
class UnsupportedVersionError(InvalidRequestError):
    """This broker does not support the API or its version."""

    code = ErrorCode.UNSUPPORTED_VERSION
    detail_names = ("min_version", "max_version")
    min_version: int | None
    """Lowest version that the broker supports (inclusive)."""
    max_version: int | None
    """Highest version that the broker supports (inclusive)."""


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
    """A queue of this name exists already, with other settings than requested."""

    code = ErrorCode.QUEUE_EXISTS


@final
class InvalidReceiptError(BrokerError):
    """The receipt handle is forged or damaged, or belongs to other messages."""

    code = ErrorCode.INVALID_RECEIPT


@final
class ReceiptExpiredError(BrokerError):
    """The lease has expired: another consumer has the message, or may have it by now."""

    code = ErrorCode.RECEIPT_EXPIRED


@final
class MessageGoneError(BrokerError):
    """The message is deleted, expired or a dead letter; it cannot be settled any more."""

    code = ErrorCode.MESSAGE_GONE


@final
class UnknownPartitionError(BrokerError):
    """The topic has no partition of this number."""

    code = ErrorCode.UNKNOWN_PARTITION


@final
class OffsetOutOfRangeError(BrokerError):
    """The offset is not in the log, which has `log_start_offset <= o < log_end_offset`."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE
    detail_names = ("log_start_offset", "log_end_offset")
    log_start_offset: int | None
    log_end_offset: int | None


@final
class LogTruncatedError(BrokerError):
    """Records that the client has read are lost; the log has others at their offsets, or ends.

    Kafka: LogTruncationException (KIP-320). The records in `truncated_to <= o < fetch_offset` are
    not those that the client has read.
    """

    code = ErrorCode.LOG_TRUNCATED
    detail_names = ("truncated_to", "fetch_offset", "leader_epoch")
    truncated_to: int | None
    """First lost offset, as far as it is known: an earlier one may be lost, too."""
    fetch_offset: int | None
    """Offset up to which the client has read."""
    leader_epoch: int | None
    """Latest leader epoch in the log up to that of the client's last batch; `None` without one."""


@final
class OutOfOrderSequenceError(BrokerError):
    """A producer's sequence has a gap: a batch before this one is missing."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE
    detail_names = ("expected_sequence",)
    expected_sequence: int | None


@final
class DuplicateSequenceError(BrokerError):
    """The batch was appended before; the log no longer knows at which offset."""

    code = ErrorCode.DUPLICATE_SEQUENCE


@final
class FencedProducerError(BrokerError):
    """A newer producer with the same id has fenced this one."""

    code = ErrorCode.FENCED_PRODUCER


@final
class UnknownGroupError(BrokerError):
    """No consumer group has this id."""

    code = ErrorCode.UNKNOWN_GROUP


@final
class GroupNotEmptyError(BrokerError):
    """The group has members; their committed offsets cannot be changed from outside."""

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
    """The commit carries a stale member epoch and is ignored."""

    code = ErrorCode.STALE_MEMBER_EPOCH
    detail_names = ("member_epoch",)
    member_epoch: int | None
    """First member epoch whose commits for this partition count."""


@final
class PartitionNotOwnedError(BrokerError):
    """The partition is not assigned to the member, or was revoked."""

    code = ErrorCode.PARTITION_NOT_OWNED


@final
class FencedLeaderEpochError(BrokerError):
    """The partition has a newer leader epoch: another leader, or other replicas."""

    code = ErrorCode.FENCED_LEADER_EPOCH


@final
class StalePartitionEpochError(BrokerError):
    """The partition was changed meanwhile; fetch its state, then decide again."""

    code = ErrorCode.STALE_PARTITION_EPOCH


@final
class StaleBrokerEpochError(BrokerError):
    """The broker was registered again since, or is not registered; it must register."""

    code = ErrorCode.STALE_BROKER_EPOCH


@final
class DuplicateBrokerError(BrokerError):
    """The node id or the disk belongs to another broker, or to a newer process."""

    code = ErrorCode.DUPLICATE_BROKER


@final
class PartitionFullError(BrokerError):
    """The partition is as large as `max_partition_bytes` of its topic allows."""

    code = ErrorCode.PARTITION_FULL


@final
class CorruptRecordError(BrokerError):
    """Stored bytes are damaged from `offset` to `next_offset` (exclusive)."""

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
    """The peer sent bytes that are not this protocol, or a reply that does not fit its request.

    The connection is closed; a request in flight may or may not have been executed.
    """


class ConnectionLostError(TidelogError):
    """The connection broke; a request in flight may or may not have been executed."""


@final
class ConnectError(ConnectionLostError):
    """No connection could be made: which address, what failed, what to try."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        """Create the error; `is_refused`: the host is up, but no process listens on the port."""
        super().__init__(message)
        self.is_refused = is_refused


@final
class HandshakeFailedError(ConnectionLostError):
    """The handshake of TLS failed: no request was sent."""

    def __init__(self, message: str, *, is_plain: bool = False) -> None:
        """Create the error; `is_plain`: the other side does not seem to speak TLS."""
        super().__init__(message)
        self.is_plain = is_plain


@final
class DeliveryTimeoutError(TidelogError):
    """A record was not acknowledged within `delivery_timeout`; it may or may not be in the log."""


@final
class MessageBodyLostError(TidelogError):
    """The topic has deleted chunks of a large message; the message is unreadable."""


@final
class BatchError(TidelogError):
    """A part of one call failed; the rest is done."""

    def __init__(
        self,
        message: str,
        errors: Mapping[int, TidelogError],
        receipts: Mapping[int, Any] | None = None,
    ) -> None:
        """Create the error with one line about what failed."""
        super().__init__(message)
        self.errors = dict(sorted(errors.items()))
        """The failures by index in the call's arguments."""
        self.receipts: dict[int, Any] = dict(sorted((receipts or {}).items()))
        """Of a send, the `tidelog.Receipt` of each other message by its index."""


@final
class NoPositionError(TidelogError):
    """A consumer has no position to start from in a partition."""


@final
class ConfigError(TidelogError):
    """Settings of the start are wrong; the message lists every problem."""


@final
class DataDirectoryError(TidelogError):
    """The data directory is in use, belongs to another node, or cannot be used."""


@final
class StaleTransactionError(BrokerError):
    """A batch with a higher id was committed under this name, or is open."""

    code = ErrorCode.STALE_TRANSACTION


@final
class TransactionGoneError(BrokerError):
    """The batch is not open: aborted, replaced or too old. None of its records becomes visible."""

    code = ErrorCode.TRANSACTION_GONE


@final
class StagedRecordsLostError(BrokerError):
    """The batch is committed, but records are missing: an operator accepted a loss of records."""

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
"""Exceptions by `ErrorCode`; the other direction is the class's `code`."""


def from_wire(detail: ErrorDetail) -> BrokerError:
    """Return the exception for a received error.

    A code of a newer version becomes `UnexpectedServerError`; unknown details are dropped. Control
    characters of the text are escaped: it may reach a terminal.
    """
    message = printable(detail.message)
    cls = ERROR_CLASSES.get(detail.code)
    if cls is None:
        return UnexpectedServerError(f"error {detail.code} of a newer broker: {message}")
    known = {name: detail.details[name] for name in cls.detail_names if name in detail.details}
    return cls(message, **known)


def printable(text: str) -> str:
    """Return a text of another program in one line, with its control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
