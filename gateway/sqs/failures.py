"""Failures of the client as errors of SQS: what an action does not translate itself.

Pure: no clock, no I/O.
"""

from typing import Final

from tidelog.client.errors import ClosedError
from tidelog.gateway.sqs.message_checks import too_long
from tidelog.gateway.sqs.protocol.errors import (
    ACCESS_DENIED,
    INTERNAL,
    INVALID_PARAMETER_VALUE,
    OVER_LIMIT,
    REQUEST_THROTTLED,
    SERVICE_UNAVAILABLE,
    ErrorShape,
    SqsError,
    queue_does_not_exist,
)
from tidelog.gateway.sqs.protocol.replies import FailedEntry
from tidelog.wire.errors import (
    AuthenticationFailedError,
    AuthenticationRequiredError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidRequestError,
    NotAuthorizedError,
    OverLimitError,
    OverloadedError,
    QuotaExceededError,
    RecordTooLargeError,
    RetriableError,
    ThrottledError,
    UnknownQueueError,
    UnknownTopicError,
)

_SHAPES: Final[tuple[tuple[tuple[type[Exception], ...], ErrorShape], ...]] = (
    ((NotAuthorizedError, AuthenticationRequiredError), ACCESS_DENIED),
    ((OverLimitError,), OVER_LIMIT),
    ((OverloadedError, ThrottledError, QuotaExceededError), REQUEST_THROTTLED),
    # The next request asks again about the access key, and gets the error of its signature.
    # The client of a user is closed when its access key is removed, and when the front ends.
    ((AuthenticationFailedError, ClosedError), SERVICE_UNAVAILABLE),
    ((RetriableError, ConnectionLostError, DeliveryTimeoutError), SERVICE_UNAVAILABLE),
    ((InvalidRequestError,), INVALID_PARAMETER_VALUE),
)
"""Kinds of failures; the first that fits counts."""


def error_of(failure: Exception) -> SqsError:
    """Return what a request is answered when its action failed; `INTERNAL` for a defect.

    SDKs send a request again after `ServiceUnavailable`, and more slowly after `RequestThrottled`.
    """
    if isinstance(failure, SqsError):
        return failure
    if isinstance(failure, UnknownQueueError | UnknownTopicError):
        return queue_does_not_exist()
    if isinstance(failure, RecordTooLargeError):
        return too_long()
    for kinds, shape in _SHAPES:
        if isinstance(failure, kinds):
            return SqsError(shape, str(failure))
    return SqsError(INTERNAL, "The request failed; the log of the front has the reason.")


def failed_entry(entry_id: str, failure: Exception) -> FailedEntry:
    """Return the result of an entry of a batch that failed."""
    error = error_of(failure)
    shape = error.shape
    return FailedEntry(entry_id, shape.is_senders_fault, shape.query_code, error.message)
