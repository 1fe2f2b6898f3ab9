"""What every error of a broker can do; `test_errors.py` has the errors themselves."""

import pytest

from tidelog.wire.errors import OffsetOutOfRangeError


def test_a_number_that_the_broker_did_not_say_is_none() -> None:
    error = OffsetOutOfRangeError("too low", log_start_offset=7)

    assert error.log_start_offset == error.detail("log_start_offset") == 7
    assert error.log_end_offset is None
    assert error.detail("log_end_offset") is None


def test_a_number_that_no_error_of_this_kind_has_is_a_defect() -> None:
    with pytest.raises(AssertionError):
        OffsetOutOfRangeError("too low", size_bytes=7)
