"""Durations in settings and requests.

Pure: no clock, no I/O.
"""

import re
from typing import Final

from tidelog.wire.errors import WireFormatError

_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_DURATION = re.compile(r"(\d{1,18}) ?([a-z]*)", re.IGNORECASE)


def seconds_of(text: str) -> float:
    """Return the seconds of a setting such as `30s`, `1500ms` or a plain number of milliseconds.

    Raises:
        WireFormatError: The text is none of these; the broker is newer.
    """
    found = _DURATION.fullmatch(text.strip())
    unit_ms = None if found is None else _UNITS_MS.get(found[2].lower())
    if found is None or unit_ms is None:
        raise WireFormatError(f"{text!r} is not a duration that this client knows")
    return int(found[1]) * unit_ms / 1000


def milliseconds_of(what: str, seconds: float) -> int:
    """Return seconds as whole milliseconds; `what` names them in the error.

    Raises:
        ValueError: The number is negative or not finite.
    """
    if not 0 <= seconds <= 1e12:  # noqa: PLR2004  (30,000 years, and no infinity)
        raise ValueError(f"{what} must be a number of seconds from 0 on, not {seconds}")
    return round(seconds * 1000)
