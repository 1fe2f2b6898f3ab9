"""Settings as text: a name, a parser, a default; and parsers of sizes, counts and bounds.

Pure: no clock, no I/O.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.wire.config.durations import parse_duration_ms
from tidelog.wire.errors import InvalidConfigError

UNLIMITED = "unlimited"
"""The text for no limit."""
NONE = "none"
"""The text for no value."""
OWNER_BYTES_MAX = 256
_BYTE_UNITS = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_QUANTITY = re.compile(r"([0-9]{1,18}) ?([a-z]*)", re.IGNORECASE)
_COUNT = re.compile(r"[0-9]{1,18}")

Value = object
"""The parsed value of a setting; equal texts have equal values."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its parser, default and help text."""

    name: str
    parse: Callable[[str, str], Value]
    default: str
    allowed: str
    """Legal values, for help texts."""
    about: str
    """One sentence for help texts and `docs/configuration.md`."""


def parse_size_bytes(name: str, text: str) -> int:
    """Return bytes for `256MiB`, `1GB` or a plain number.

    Raises:
        InvalidConfigError: The text is none of these.
    """
    match = _QUANTITY.fullmatch(text.strip())
    unit = None if match is None else _BYTE_UNITS.get(match[2].lower())
    if match is None or unit is None:
        raise InvalidConfigError(
            f"{name} is {text!r}, it must be a size such as 256MiB, 1GB or 4096"
        )
    return int(match[1]) * unit


def parse_bounded(
    parse: Callable[[str, str], int], *, low: int, high: int | None = None
) -> Callable[[str, str], int]:
    """Return a parser that refuses values below `low` or above `high`."""

    def parse_in_bounds(name: str, text: str) -> int:
        value = parse(name, text)
        if value < low:
            raise InvalidConfigError(f"{name} is {text!r}, it must be at least {low}")
        if high is not None and value > high:
            raise InvalidConfigError(f"{name} is {text!r}, it must be at most {high}")
        return value

    return parse_in_bounds


def parse_or_unlimited(parse: Callable[[str, str], Value]) -> Callable[[str, str], Value]:
    """Return a parser that also accepts `unlimited`, which is `None`."""

    def parse_either(name: str, text: str) -> Value:
        return None if text.strip().lower() == UNLIMITED else parse(name, text)

    return parse_either


def parse_or_none(parse: Callable[[str, str], Value]) -> Callable[[str, str], Value]:
    """Return a parser that also accepts `none`, which is `None`."""

    def parse_either(name: str, text: str) -> Value:
        return None if text.strip().lower() == NONE else parse(name, text)

    return parse_either


def parse_owner(name: str, text: str) -> str | None:
    """Return the name of an owner, such as a team or an address; `None` for `none`.

    Raises:
        InvalidConfigError: The text is empty, too long, or has control characters.
    """
    owner = text.strip()
    if owner.lower() == NONE:
        return None
    size = len(owner.encode(errors="surrogatepass"))
    if not 1 <= size <= OWNER_BYTES_MAX or not owner.isprintable():
        raise InvalidConfigError(
            f"{name} is {text!r}, it must be none, or a text of 1 to {OWNER_BYTES_MAX} bytes"
            " without control characters"
        )
    return owner


def _parse_count(name: str, text: str) -> int:
    if _COUNT.fullmatch(text.strip()) is None:
        raise InvalidConfigError(f"{name} is {text!r}, it must be a number")
    return int(text)


def parse_count_up_to(high: int) -> Callable[[str, str], int]:
    """Return a parser of numbers from 1 to `high`."""
    return parse_bounded_count(low=1, high=high)


def parse_bounded_count(*, low: int, high: int) -> Callable[[str, str], int]:
    """Return a parser of numbers from `low` to `high`."""
    return parse_bounded(_parse_count, low=low, high=high)


def parse_bounded_duration(*, low: int, high: int | None = None) -> Callable[[str, str], int]:
    """Return a parser of durations from `low` to `high` milliseconds."""
    return parse_bounded(parse_duration_ms, low=low, high=high)


def parse_bounded_size(*, low: int, high: int) -> Callable[[str, str], int]:
    """Return a parser of sizes from `low` to `high` bytes."""
    return parse_bounded(parse_size_bytes, low=low, high=high)


def parse_bytes_or_unlimited(*, low: int) -> Callable[[str, str], Value]:
    """Return a parser of sizes from `low` on, and of `unlimited`, which is `None`."""
    return parse_or_unlimited(parse_bounded(parse_size_bytes, low=low))


def parse_choice(*allowed: str) -> Callable[[str, str], Value]:
    """Return a parser that accepts one of these words."""

    def parse_word(name: str, text: str) -> str:
        if text not in allowed:
            raise InvalidConfigError(f"{name} is {text!r}, it must be one of {', '.join(allowed)}")
        return text

    return parse_word
