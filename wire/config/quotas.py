"""Quotas of principals: names, units, and values as text (Kafka: client quotas, KIP-13, KIP-124).

Pure: no clock, no I/O.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from tidelog.wire.config.quota_rates import RATES, QuotaRate
from tidelog.wire.config.settings import parse_size_bytes
from tidelog.wire.errors import InvalidConfigError, InvalidRequestError

VALUE_MAX: Final = 10**15
DEFAULT: Final = "default"
"""Name under which quotas are for each principal without quotas of its own."""


class OverQuota(IntEnum):
    """What a broker does with a request beyond a rate."""

    THROTTLE = 0
    """It reads the request later."""
    ERROR = 1
    """It refuses the request at once, with `ThrottledError`."""


BUSY: Final = RATES[QuotaRate.BUSY_MS - 1]
CONNECTIONS: Final = "connections_max"
PARTITIONS: Final = "partitions_max"
QUEUES: Final = "queues_max"
STORAGE: Final = "storage_bytes_max"
OVER_QUOTA: Final = "over_quota"

PER_BROKER: Final = frozenset((BUSY, CONNECTIONS))
"""Quotas that each broker applies alone; all others are of the whole cluster."""

ABOUT: Final[Mapping[str, str]] = {
    RATES[0]: "bytes of batches that brokers receive, per second",
    RATES[1]: "bytes of batches that brokers send, per second",
    RATES[2]: "requests per second",
    BUSY: "milliseconds of each second that the event loop of one broker works, 1 to 1,000",
    CONNECTIONS: "connections to one broker",
    PARTITIONS: "partitions of the topics and queues that the principal created",
    QUEUES: "queues that the principal created",
    STORAGE: "bytes of records in the topics that the principal created, one copy",
    OVER_QUOTA: "`throttle` or `error`",
}
"""Every quota with its meaning."""

_BUSY_MAX: Final = 1000


def parse_quota(name: str, text: str) -> int:
    """Return the value of a quota in a text such as `10MiB`, `500` or `error`.

    Raises:
        InvalidConfigError: There is no such quota, or it cannot have this value.
    """
    check_quota_names((name,))
    if name == OVER_QUOTA:
        words = {each.name.lower(): int(each) for each in OverQuota}
        if text.lower() not in words:
            raise InvalidConfigError(f"{name} is {text!r}, it must be throttle or error")
        return words[text.lower()]
    value = parse_size_bytes(name, text)
    _check_value(name, value)
    return value


def format_quota(name: str, value: int) -> str:
    """Return the value of a quota as text; `parse_quota` is the inverse."""
    return OverQuota(value).name.lower() if name == OVER_QUOTA else str(value)


def check_quotas(values: Mapping[str, int]) -> None:
    """Check names and values of quotas.

    Raises:
        InvalidRequestError: There is no such quota, or it cannot have this value.
    """
    try:
        check_quota_names(tuple(values))
        for name, value in values.items():
            _check_value(name, value)
    except InvalidConfigError as error:
        raise InvalidRequestError(str(error)) from error


def check_quota_names(names: tuple[str, ...]) -> None:
    """Check names of quotas.

    Raises:
        InvalidConfigError: There is no such quota.
    """
    for name in names:
        if name not in ABOUT:
            raise InvalidConfigError(
                f"there is no quota {name!r}; the quotas are {', '.join(ABOUT)}"
            )


def _check_value(name: str, value: int) -> None:
    low, high = _bounds(name)
    if not low <= value <= high:
        raise InvalidConfigError(f"{name} is {value}, it must be {low} to {high}")


def _bounds(name: str) -> tuple[int, int]:
    if name == OVER_QUOTA:
        return 0, max(OverQuota)
    if name == BUSY:
        return 1, _BUSY_MAX
    return (1 if name in RATES else 0), VALUE_MAX
