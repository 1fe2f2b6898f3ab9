"""Durations in settings and requests.

Pure: no clock, no I/O.
"""

from tidelog.wire.config.durations import duration_ms
from tidelog.wire.errors import WireFormatError


def seconds_of(text: str) -> float:
    """Return the seconds of a setting such as `30s`, `1500ms` or a plain number of milliseconds.

    Raises:
        WireFormatError: The text is none of these; the broker is newer.
    """
    found_ms = duration_ms(text)
    if found_ms is None:
        raise WireFormatError(f"{text!r} is not a duration that this client knows")
    return found_ms / 1000


def milliseconds_of(what: str, seconds: float) -> int:
    """Return seconds as whole milliseconds; `what` names them in the error.

    Raises:
        TypeError: It is no number, such as the text `30s`.
        ValueError: The number is negative or not finite.
    """
    try:
        is_legal = 0 <= seconds <= 1e12  # noqa: PLR2004  (30,000 years, and no infinity)
    except TypeError:
        raise TypeError(f"{what} must be a number of seconds, not {seconds!r}") from None
    if not is_legal:
        raise ValueError(f"{what} must be a number of seconds from 0 on, not {seconds}")
    return round(seconds * 1000)
