"""Failures of the product become errors that SDKs know what to do with."""

import pytest

from tidelog.gateway.sqs.actions.failed_entries import failed_entries
from tidelog.gateway.sqs.failures import error_of, failed_entry
from tidelog.gateway.sqs.protocol.errors import SqsError, missing_parameter
from tidelog.gateway.sqs.protocol.replies import FailedEntry
from tidelog.wire.errors import (
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidRequestError,
    NotAuthorizedError,
    OverLimitError,
    QuotaExceededError,
    ThrottledError,
    UnknownQueueError,
)


@pytest.mark.parametrize(
    ("failure", "code", "status"),
    [
        (UnknownQueueError("q"), "AWS.SimpleQueueService.NonExistentQueue", 400),
        (NotAuthorizedError("no"), "AccessDenied", 403),
        (OverLimitError("full"), "OverLimit", 403),
        (ThrottledError("slow"), "RequestThrottled", 400),
        (QuotaExceededError("much"), "RequestThrottled", 400),
        (ConnectionLostError("gone"), "ServiceUnavailable", 503),
        (DeliveryTimeoutError("late"), "ServiceUnavailable", 503),
        (InvalidRequestError("odd"), "InvalidParameterValue", 400),
        (ValueError("a defect"), "InternalFailure", 500),
    ],
)
def test_a_failure_has_a_code_and_a_status(failure: Exception, code: str, status: int) -> None:
    error = error_of(failure)
    assert (error.shape.query_code, error.shape.status) == (code, status)
    assert error.shape.is_senders_fault == (status < 500)


def test_an_error_of_sqs_stays_as_it_is() -> None:
    error = missing_parameter("QueueUrl")
    assert error_of(error) is error
    assert isinstance(error, SqsError)


def test_a_defect_does_not_show_its_text() -> None:
    assert "secret" not in error_of(ValueError("secret")).message


def test_the_log_has_the_defect_of_an_entry(caplog: pytest.LogCaptureFixture) -> None:
    defect = ValueError("a defect")

    (first, second) = failed_entries(["a", "b"], {1: defect, 0: ConnectionLostError("gone")})

    assert (first.code, second.code) == ("ServiceUnavailable", "InternalFailure")
    (line,) = caplog.records
    assert line.getMessage() == "entry b of a batch failed unexpectedly"
    assert line.exc_info is not None
    assert line.exc_info[1] is defect


def test_an_entry_that_failed_tells_the_fault() -> None:
    assert failed_entry("a", ConnectionLostError("gone")) == FailedEntry(
        "a", sender_fault=False, code="ServiceUnavailable", message="gone"
    )
