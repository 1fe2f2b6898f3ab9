"""What people are told of errors."""

import pytest

from tidelog.cli.errors import CommandError, reason_of
from tidelog.wire.errors import ConfigError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConfigError("a is wrong"), "a is wrong"),
        (CommandError("line 3 is wrong"), "line 3 is wrong"),
        (FileNotFoundError(2, "No such file", "/nope"), "/nope: No such file"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("odd"), "odd"),
        (ZeroDivisionError(), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_the_reason_is_one_for_people_or_none(error: BaseException, reason: str | None) -> None:
    assert reason_of(error) == reason
