"""Errors of SQS, with the names and statuses of both protocols.

Pure: declarations. Source: the error sections of the Amazon SQS API Reference, and the model of the
service (`awsQueryError`).
"""

from typing import Final, NamedTuple

from tidelog.wire.errors import TidelogError


class ErrorShape(NamedTuple):
    """One kind of error."""

    json_name: str
    """Name in `__type`, without its namespace."""
    query_code: str
    """`Code` of the query protocol, and first part of `x-amzn-query-error`."""
    status: int = 400
    """HTTP status."""
    is_senders_fault: bool = True


INTERNAL: Final = ErrorShape("InternalFailure", "InternalFailure", 500, is_senders_fault=False)


class SqsError(TidelogError):
    """An error that the front answers a request with."""

    def __init__(self, shape: ErrorShape, message: str) -> None:
        """Answer with the kind and text of an error."""
        super().__init__(message)
        self.shape = shape
        self.message = message
