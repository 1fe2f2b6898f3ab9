"""How long messages wait that were given back: what people write, and what it means.

Pure: no clock, no I/O.
"""

import re
from dataclasses import dataclass

from tidelog.coordinator.metadata.topic_config import parse_duration_ms
from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX

BACKOFFS = "`none`, delays such as `1s,10s,1min`, or `exponential(1s,2,5min,jitter)`"
"""What may be written, for people."""
BACKOFF_DELAYS_MAX = 100
"""Delays in one list."""

_EXPONENTIAL = re.compile(r"exponential\(([^()]*)\)", re.IGNORECASE)
_FACTOR = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")
_FACTOR_MIN, _FACTOR_MAX = 1.1, 100
_JITTER = 0.5


@dataclass(frozen=True, slots=True)
class DelayList:
    """How long a message that was released without a delay stays invisible."""

    delays_ms: tuple[int, ...] = ()
    """After its first delivery, its second, and so on; the last one counts for all later ones.
    Empty: it is visible at once."""


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """The same, by a rule."""

    first_ms: int
    factor: float
    """What each delay is multiplied with to get the next one."""
    longest_ms: int
    jitter: float
    """The largest part of a delay that is taken off at random."""


RetryBackoff = DelayList | ExponentialBackoff


def parse_backoff(name: str, text: str) -> RetryBackoff:
    """Return the delays that a text means.

    Raises:
        InvalidConfigError: It means none, or too long or too many ones.
    """
    wanted = text.strip().lower()
    if wanted == "none":
        return DelayList()
    exponential = _EXPONENTIAL.fullmatch(wanted)
    if exponential is not None:
        return _exponential(name, text, [part.strip() for part in exponential[1].split(",")])
    delays = [_delay_ms(name, text, part) for part in wanted.split(",")]
    if len(delays) > BACKOFF_DELAYS_MAX:
        raise InvalidConfigError(
            f"{name} is {text!r}, {len(delays)} delays; {BACKOFF_DELAYS_MAX} are the most"
        )
    return DelayList(tuple(delays))


def _exponential(name: str, text: str, parts: list[str]) -> ExponentialBackoff:
    has_jitter = parts[-1] == "jitter"
    match parts[:-1] if has_jitter else parts:
        case [first_text, factor_text, longest_text] if _FACTOR.fullmatch(factor_text):
            first, longest = _delay_ms(name, text, first_text), _delay_ms(name, text, longest_text)
            factor = float(factor_text)
        case _:
            raise InvalidConfigError(
                f"{name} is {text!r}; exponential takes the first delay, a factor and the longest"
                " delay, then maybe `jitter`, as in exponential(1s,2,5min,jitter)"
            )
    if first < 1 or longest < first or not _FACTOR_MIN <= factor <= _FACTOR_MAX:
        raise InvalidConfigError(
            f"{name} is {text!r}; the first delay must be at least 1ms, the longest at least as"
            f" long, and the factor from {_FACTOR_MIN:g} to {_FACTOR_MAX}"
        )
    return ExponentialBackoff(first, factor, longest, _JITTER if has_jitter else 0.0)


def _delay_ms(name: str, text: str, part: str) -> int:
    try:
        delay_ms = parse_duration_ms(name, part)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{name} is {text!r}, it must be {BACKOFFS}") from error
    if delay_ms > VISIBILITY_TIMEOUT_MS_MAX:
        raise InvalidConfigError(f"{name} is {text!r}; no delay can be longer than 12h")
    return delay_ms
