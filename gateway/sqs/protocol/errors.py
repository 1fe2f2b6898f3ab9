"""Errors of SQS, with the names and statuses of both protocols.

Pure: declarations. Source: the error sections of the Amazon SQS API Reference ("Errors" of each
action, and "Common Errors"), and the model of the service (`awsQueryError`).
"""

from typing import Final, NamedTuple

from tidelog.wire.errors import TidelogError

SERVICE: Final = "com.amazonaws.sqs"
"""Namespace of errors that the service declares."""
PLATFORM: Final = "com.amazon.coral.service"
"""Namespace of errors that any service of the vendor answers."""

NO_QUEUE_TEXT: Final = "The specified queue does not exist."
"""Text of a queue that does not exist in JSON; the query protocol has a longer one."""


class ErrorShape(NamedTuple):
    """One kind of error."""

    json_name: str
    """Name in `__type`, without its namespace."""
    query_code: str
    """`Code` of the query protocol, and first part of `x-amzn-query-error`."""
    status: int = 400
    """HTTP status."""
    is_senders_fault: bool = True
    namespace: str = SERVICE
    """First part of `__type`."""


def _declared(name: str, status: int = 400) -> ErrorShape:
    return ErrorShape(name, f"AWS.SimpleQueueService.{name}", status)


def _plain(name: str, status: int = 400) -> ErrorShape:
    return ErrorShape(name, name, status)


def _common(name: str, status: int = 400) -> ErrorShape:
    return ErrorShape(name, name, status, namespace=PLATFORM)


# Errors that actions declare.
BATCH_ENTRY_IDS_NOT_DISTINCT: Final = _declared("BatchEntryIdsNotDistinct")
BATCH_REQUEST_TOO_LONG: Final = _declared("BatchRequestTooLong")
EMPTY_BATCH_REQUEST: Final = _declared("EmptyBatchRequest")
INVALID_ADDRESS: Final = _plain("InvalidAddress")
INVALID_ATTRIBUTE_NAME: Final = _plain("InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE: Final = _plain("InvalidAttributeValue")
INVALID_BATCH_ENTRY_ID: Final = _declared("InvalidBatchEntryId")
INVALID_MESSAGE_CONTENTS: Final = _plain("InvalidMessageContents")
INVALID_SECURITY: Final = _plain("InvalidSecurity")
MESSAGE_NOT_INFLIGHT: Final = _declared("MessageNotInflight")
OVER_LIMIT: Final = _plain("OverLimit", 403)
PURGE_QUEUE_IN_PROGRESS: Final = _declared("PurgeQueueInProgress", 403)
QUEUE_DELETED_RECENTLY: Final = _declared("QueueDeletedRecently")
QUEUE_DOES_NOT_EXIST: Final = ErrorShape(
    "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"
)
QUEUE_NAME_EXISTS: Final = ErrorShape("QueueNameExists", "QueueAlreadyExists")
RECEIPT_HANDLE_IS_INVALID: Final = _plain("ReceiptHandleIsInvalid")
REQUEST_THROTTLED: Final = _plain("RequestThrottled")
RESOURCE_NOT_FOUND: Final = _plain("ResourceNotFoundException", 404)
TOO_MANY_ENTRIES: Final = _declared("TooManyEntriesInBatchRequest")
UNSUPPORTED_OPERATION: Final = _declared("UnsupportedOperation")

# Errors that actions answer and the model does not declare.
INVALID_PARAMETER_VALUE: Final = ErrorShape(
    "InvalidParameterValueException", "InvalidParameterValue", namespace=PLATFORM
)
MISSING_PARAMETER: Final = ErrorShape(
    "MissingRequiredParameterException", "MissingParameter", namespace=PLATFORM
)

# Errors of any service.
ACCESS_DENIED: Final = ErrorShape("AccessDeniedException", "AccessDenied", 403, namespace=PLATFORM)
INTERNAL: Final = ErrorShape(
    "InternalFailure", "InternalFailure", 500, is_senders_fault=False, namespace=PLATFORM
)
SERVICE_UNAVAILABLE: Final = ErrorShape(
    "ServiceUnavailable", "ServiceUnavailable", 503, is_senders_fault=False, namespace=PLATFORM
)
INCOMPLETE_SIGNATURE: Final = ErrorShape(
    "IncompleteSignatureException", "IncompleteSignature", 400, namespace=PLATFORM
)
INVALID_CLIENT_TOKEN_ID: Final = ErrorShape(
    "UnrecognizedClientException", "InvalidClientTokenId", 403, namespace=PLATFORM
)
INVALID_SIGNATURE: Final = ErrorShape(
    "InvalidSignatureException", "SignatureDoesNotMatch", 403, namespace=PLATFORM
)
MISSING_AUTHENTICATION_TOKEN: Final = ErrorShape(
    "MissingAuthenticationTokenException", "MissingAuthenticationToken", 403, namespace=PLATFORM
)
REQUEST_EXPIRED: Final = _common("RequestExpired")
SERIALIZATION: Final = ErrorShape("SerializationException", "MalformedInput", namespace=PLATFORM)
UNKNOWN_OPERATION: Final = ErrorShape(
    "UnknownOperationException", "UnknownOperation", namespace=PLATFORM
)

# Errors of the query protocol alone.
INVALID_ACTION: Final = _common("InvalidAction")
MALFORMED_INPUT: Final = _common("MalformedInput")
MISSING_ACTION: Final = _common("MissingAction")


class SqsError(TidelogError):
    """An error that the front answers a request with."""

    def __init__(self, shape: ErrorShape, message: str) -> None:
        """Answer with the kind and text of an error."""
        super().__init__(message)
        self.shape = shape
        self.message = message


def missing_parameter(name: str) -> SqsError:
    """Return the error of a request without a parameter that its action needs."""
    return SqsError(MISSING_PARAMETER, f"The request must contain the parameter {name}.")


def invalid_value(value: object, name: str, reason: str) -> SqsError:
    """Return the error of a parameter whose value is not allowed."""
    text = f"Value {value} for parameter {name} is invalid. Reason: {reason}"
    return SqsError(INVALID_PARAMETER_VALUE, text)


def queue_does_not_exist() -> SqsError:
    """Return the error of a request to a queue that does not exist."""
    return SqsError(QUEUE_DOES_NOT_EXIST, NO_QUEUE_TEXT)
