"""Times in options: Unix milliseconds, ISO 8601 with a time zone, or an age before now.

Pure: no clock, no I/O, no pyspark.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from tidelog.wire.config.durations import duration_ms
from tidelog.wire.errors import ConfigError

_MILLISECONDS: Final = re.compile(r"[0-9]{1,19}")
_TIME_MAX_MS: Final = (1 << 63) - 1
_AGO: Final = re.compile(r" ago$", re.IGNORECASE)
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS: Final = "Unix milliseconds, a time such as 2026-01-31T12:00:00Z, or an age such as 1h30m"


class Moment(NamedTuple):
    """A fixed time, or an age."""

    ms: int
    """Unix milliseconds, or the milliseconds before now."""
    is_age: bool = False

    def at(self, now_ms: int) -> int:
        """Return the Unix milliseconds of this moment at `now_ms`, 0 for a time before 1970."""
        return max(now_ms - self.ms, 0) if self.is_age else self.ms


def parse_moment(name: str, text: str) -> Moment:
    """Return a moment: Unix milliseconds, ISO 8601 with a time zone, or an age (`1h30m`, `7d ago`).

    A time before 1970 is 0. One between two milliseconds is the later of them, because records have
    whole ones. The driver has no time zone that all of its users share, so a time without one is
    refused.

    Raises:
        ConfigError: The text is none of these; the message begins with `name`.
    """
    text = text.strip()
    if _MILLISECONDS.fullmatch(text) and int(text) <= _TIME_MAX_MS:
        return Moment(int(text))
    age_ms = duration_ms(_AGO.sub("", text), bare_unit_ms=None)
    if age_ms is not None:
        return Moment(age_ms, is_age=True)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{name} must be {_FORMS}, not {text!r}") from None
    if found.tzinfo is None:
        raise ConfigError(
            f"{name} {text!r} has no time zone: write {found.isoformat()}Z for UTC, or an offset"
            " such as +01:00"
        )
    return Moment(max(-((_UNIX_EPOCH - found) // timedelta(milliseconds=1)), 0))
