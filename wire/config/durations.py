"""Durations as text, in settings, options and commands: `8d`, `1h30m`, `90s`, `250ms`.

Pure: no clock, no I/O. One parser serves them all; they differ in the meaning of a bare number.
"""

import re
from collections.abc import Mapping
from typing import Final

from tidelog.wire.errors import InvalidConfigError

A_DURATION: Final = "a duration such as 8d, 1h30m, 90s or 250ms"
"""Legal values, for error texts and help."""

_UNITS_MS: Final = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
    "w": 604_800_000, "week": 604_800_000, "weeks": 604_800_000,
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]{1,18}) ?([a-z]+) ?", re.IGNORECASE)
_BARE: Final = re.compile(r"[0-9]{1,18}")

_PORTABLE: Final = re.compile(r"[0-9]{1,18} ?(ms|s|m|min|h|d)?", re.IGNORECASE)
"""The durations that versions up to 0.1 can read in metadata."""
_PORTABLE_UNITS: Final = ("d", "h", "min", "s", "ms")
_NOT_IN_LISTS: Final = re.compile(r"[^(),]+")


def duration_ms(text: str, *, bare_unit_ms: int | None = 1) -> int | None:
    """Return the milliseconds of a duration, `None` if the text is none.

    It is one or more whole numbers with units from weeks to milliseconds, in this order and in any
    case. A bare number counts units of `bare_unit_ms`; with `None` it is no duration.
    """
    text = text.strip()
    if bare_unit_ms is not None and _BARE.fullmatch(text):
        return int(text) * bare_unit_ms
    total_ms = position = 0
    last_unit_ms = None
    while (part := _PART.match(text, position)) is not None:
        unit_ms = _UNITS_MS.get(part[2].lower())
        if unit_ms is None or (last_unit_ms is not None and unit_ms >= last_unit_ms):
            return None
        last_unit_ms = unit_ms
        total_ms += int(part[1]) * unit_ms
        position = part.end()
    return total_ms if 0 < position == len(text) else None


def parse_duration_ms(name: str, text: str) -> int:
    """Return the milliseconds of a duration; a bare number is milliseconds.

    Raises:
        InvalidConfigError: The text is no duration; the message names the setting and the text.
    """
    found = duration_ms(text)
    if found is None:
        raise InvalidConfigError(f"{name} is {text!r}, it must be {A_DURATION}")
    return found


def portable_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return valid settings with durations in the forms that every version can read.

    Metadata hold the texts of settings, and a broker of an older version stops at a text that it
    cannot read: `1w` becomes `7d`, and `1h30m` becomes `90min`.
    """
    return {
        name: _NOT_IN_LISTS.sub(_portable, text)
        if name.partition("@")[0].endswith("_ms") or name == "retry_backoff"
        else text
        for name, text in settings.items()
    }


def _portable(found: re.Match[str]) -> str:
    text = found[0]
    if _PORTABLE.fullmatch(text.strip()) is not None:
        return text
    total_ms = duration_ms(text)
    if total_ms is None:
        return text
    unit = next(each for each in _PORTABLE_UNITS if total_ms % _UNITS_MS[each] == 0)
    return f"{total_ms // _UNITS_MS[unit]}{unit}"
