"""Failures of the client as errors of SQS: what an action does not translate itself.

Pure: no clock, no I/O.
"""

from typing import Final

from tidelog.gateway.sqs.protocol.errors import (
    ACCESS_DENIED,
    INVALID_PARAMETER_VALUE,
    REQUEST_THROTTLED,
    SERVICE_UNAVAILABLE,
    ErrorShape,
    SqsError,
    queue_does_not_exist,
)
from tidelog.wire.errors import (
    AuthenticationFailedError,
    AuthenticationRequiredError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidRequestError,
    NotAuthorizedError,
    QuotaExceededError,
    RetriableError,
    ThrottledError,
    UnknownQueueError,
)

_SHAPES: Final[tuple[tuple[type[Exception], ErrorShape], ...]] = (
    (ThrottledError, REQUEST_THROTTLED),
    (QuotaExceededError, REQUEST_THROTTLED),
    (NotAuthorizedError, ACCESS_DENIED),
    (AuthenticationRequiredError, ACCESS_DENIED),
    # The next request asks again about the access key, and gets the error of its signature.
    (AuthenticationFailedError, SERVICE_UNAVAILABLE),
    (ConnectionLostError, SERVICE_UNAVAILABLE),
    (DeliveryTimeoutError, SERVICE_UNAVAILABLE),
    (RetriableError, SERVICE_UNAVAILABLE),
    (InvalidRequestError, INVALID_PARAMETER_VALUE),
)


def error_of(failure: Exception) -> SqsError | None:
    """Return what a request is answered when its action failed; `None` for a defect.

    SDKs send a request again after `ServiceUnavailable`, and more slowly after `RequestThrottled`.
    """
    if isinstance(failure, SqsError):
        return failure
    if isinstance(failure, UnknownQueueError):
        return queue_does_not_exist()
    for kind, shape in _SHAPES:
        if isinstance(failure, kind):
            return SqsError(shape, str(failure))
    return None
