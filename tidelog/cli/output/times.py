"""Times and durations as text.

Pure: no clock, no I/O.
"""

import re
from datetime import UTC, datetime, timedelta

from tidelog.wire.config.durations import duration_ms

_AGO = re.compile(r" ago\s*$", re.IGNORECASE)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_since_ms(text: str, *, now_ms: int) -> int:
    """Return the Unix milliseconds of a time: ISO 8601, or an age before now.

    `2025-01-31`, `2025-01-31T12:00`, `2025-01-31T12:00:00Z`, `30min`, `1h30m`, `7d ago`. A time
    without a zone is in the zone of this machine. A time before 1970 becomes 0.

    Raises:
        ValueError: The text is none of these; the message shows valid forms.
    """
    ago_ms = duration_ms(_AGO.sub("", text), bare_unit_ms=None)
    if ago_ms is not None:
        return max(0, now_ms - ago_ms)
    try:
        moment = datetime.fromisoformat(text.strip())
        return max(0, _milliseconds(moment.astimezone(UTC) - _UNIX_EPOCH))
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time: write a time such as 2025-01-31T12:00:00Z, or an age such"
            " as 30min, 1h30m or 7d"
        ) from None


def moment_text(unix_ms: int) -> str:
    """Return Unix milliseconds as a date and time in UTC."""
    try:
        moment = _UNIX_EPOCH + timedelta(milliseconds=unix_ms)
    except OverflowError:  # Beyond the year 9999: most likely not milliseconds.
        return f"{unix_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def age_text(age_ms: int) -> str:
    """Return a duration in its two largest units: `2 d 3 h`, `4 min 5 s`, `17 s`."""
    left = age_ms // 1000
    parts: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count:,} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
