"""Retry backoff: delays of messages that are released without a delay of their own.

Pure: no clock, no I/O.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, final

from tidelog.wire.config.durations import parse_duration_ms
from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX

BACKOFFS = "`none`, delays such as `1s,10s,1min`, or `exponential(1s,2,5min,jitter)`"
"""Legal values, for error texts and help."""
BACKOFF_DELAYS_MAX = 100
"""Maximum delays in one list."""

_EXPONENTIAL = re.compile(r"exponential\(([^()]*)\)", re.IGNORECASE)
_FACTOR = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")
_FACTOR_MIN, _FACTOR_MAX = 1.1, 100
_JITTER = 0.5
_JITTER_STEPS: Final = 1 << 32


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidConfigError(message)


@final
@dataclass(frozen=True, slots=True)
class FixedBackoff:
    """A list of delays, one per receive; the last one holds for all later receives."""

    delays_ms: Sequence[int]

    def __post_init__(self) -> None:
        _require(len(self.delays_ms) > 0, "a list of retry delays has at least one")
        _require(min(self.delays_ms) >= 0, "a retry delay is not negative")

    def delay_ms(self, receive_count: int, *, lease_id: int, offset: int) -> int:
        """Return how long a message waits that was released after so many receives."""
        del lease_id, offset
        return self.delays_ms[min(max(receive_count, 1), len(self.delays_ms)) - 1]

    @property
    def is_equal_for_all(self) -> bool:
        """Whether messages that were received equally often wait equally long."""
        return True


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """Delays that grow: `base_ms * factor ** (receives - 1)`, at most `cap_ms`.

    Jitter shortens each delay by a random part up to `jitter`, so that messages that failed
    together do not return together. Lease id and offset determine the part: a replay repeats it.
    """

    base_ms: int
    factor: float = 2.0
    cap_ms: int = VISIBILITY_TIMEOUT_MS_MAX
    jitter: float = 0.2
    """From 0 to 1."""

    def __post_init__(self) -> None:
        _require(self.base_ms >= 0, "the base of a backoff is not negative")
        _require(self.factor >= 1, "a backoff does not shrink: its factor is at least 1")
        _require(self.cap_ms >= self.base_ms, "the cap of a backoff is not below its base")
        _require(0 <= self.jitter <= 1, "the jitter of a backoff is between 0 and 1")

    def delay_ms(self, receive_count: int, *, lease_id: int, offset: int) -> int:
        """Return how long a message waits that was released after so many receives."""
        delay_ms = float(self.base_ms)
        for _ in range(1, receive_count):
            if delay_ms >= self.cap_ms or self.factor == 1:
                break
            delay_ms *= self.factor
        delay_ms = min(delay_ms, self.cap_ms)
        if self.jitter:
            seed = b"%d %d" % (lease_id, offset)
            draw = int.from_bytes(blake2b(seed, digest_size=4).digest(), "big") / _JITTER_STEPS
            delay_ms *= 1 - self.jitter * draw
        return int(delay_ms)

    @property
    def is_equal_for_all(self) -> bool:
        """Whether messages that were received equally often wait equally long."""
        return self.jitter == 0


RetryBackoff = FixedBackoff | ExponentialBackoff
NO_BACKOFF: Final = FixedBackoff((0,))
"""Released messages are visible at once."""


def parse_backoff(name: str, text: str) -> RetryBackoff:
    """Return the backoff in a text.

    Raises:
        InvalidConfigError: The text is no backoff, or has too long or too many delays.
    """
    wanted = text.strip().lower()
    if wanted == "none":
        return NO_BACKOFF
    exponential = _EXPONENTIAL.fullmatch(wanted)
    if exponential is not None:
        return _exponential(name, text, [part.strip() for part in exponential[1].split(",")])
    delays = [_delay_ms(name, text, part) for part in wanted.split(",")]
    if len(delays) > BACKOFF_DELAYS_MAX:
        raise InvalidConfigError(
            f"{name} has {len(delays)} delays, it may have at most {BACKOFF_DELAYS_MAX}: {text!r}"
        )
    return FixedBackoff(tuple(delays))


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
    return ExponentialBackoff(
        base_ms=first, factor=factor, cap_ms=longest, jitter=_JITTER if has_jitter else 0.0
    )


def _delay_ms(name: str, text: str, part: str) -> int:
    try:
        delay_ms = parse_duration_ms(name, part)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{name} is {text!r}, it must be {BACKOFFS}") from error
    if delay_ms > VISIBILITY_TIMEOUT_MS_MAX:
        raise InvalidConfigError(f"{name} is {text!r}; no delay can be longer than 12h")
    return delay_ms
