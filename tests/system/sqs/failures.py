"""Errors of SQS that tests expect."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from botocore.exceptions import ClientError


@contextmanager
def fails_with(code: str, text: str = "", status: int = 400) -> Generator[None]:
    """Check that the block fails with this code, HTTP status and part of the message."""
    with pytest.raises(ClientError) as caught:
        yield
    error = caught.value.response["Error"]
    http = caught.value.response["ResponseMetadata"]
    assert error["Code"] == code, error
    assert text in error["Message"], error
    assert http["HTTPStatusCode"] == status
    assert http["RequestId"]
