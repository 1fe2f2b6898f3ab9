"""Errors of the product as errors of SQS.

Pure: no clock, no I/O.
"""

from typing import Final

from tidelog.gateway.sqs.message_checks import too_long
from tidelog.gateway.sqs.protocol.errors import (
    ACCESS_DENIED,
    INTERNAL,
    OVER_LIMIT,
    REQUEST_THROTTLED,
    SERVICE_UNAVAILABLE,
    ErrorShape,
    SqsError,
    queue_does_not_exist,
)
from tidelog.gateway.sqs.protocol.replies import FailedEntry
from tidelog.wire.errors import (
    ConnectionLostError,
    DeliveryTimeoutError,
    NotAuthorizedError,
    OverLimitError,
    OverloadedError,
    QuotaExceededError,
    RecordTooLargeError,
    RetriableError,
    ThrottledError,
    TidelogError,
    UnknownQueueError,
    UnknownTopicError,
)

_SHAPES: Final[
    tuple[tuple[type[TidelogError] | tuple[type[TidelogError], ...], ErrorShape], ...]
] = (
    (NotAuthorizedError, ACCESS_DENIED),
    (OverLimitError, OVER_LIMIT),
    ((OverloadedError, ThrottledError, QuotaExceededError), REQUEST_THROTTLED),
    ((RetriableError, ConnectionLostError, DeliveryTimeoutError), SERVICE_UNAVAILABLE),
)
"""Kinds of errors, the first that fits."""


def sqs_error_of(error: TidelogError) -> SqsError:
    """Return what SQS answers for an error of the client or of a broker."""
    if isinstance(error, SqsError):
        return error
    if isinstance(error, UnknownQueueError | UnknownTopicError):
        return queue_does_not_exist()
    if isinstance(error, RecordTooLargeError):
        return too_long()
    for kinds, shape in _SHAPES:
        if isinstance(error, kinds):
            return SqsError(shape, str(error))
    return SqsError(INTERNAL, str(error))


def failed_entry(entry_id: str, error: TidelogError) -> FailedEntry:
    """Return the result of an entry of a batch that failed."""
    failure = sqs_error_of(error)
    shape = failure.shape
    return FailedEntry(entry_id, shape.is_senders_fault, shape.query_code, failure.message)
