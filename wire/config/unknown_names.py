"""Suggestions for unknown settings: typing errors, and the names of Kafka, SQS and RabbitMQ.

Pure: no clock, no I/O. Topics, queues, groups, brokers, clients and commands share them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_LIKENESS_MIN: Final = 0.75
_SEPARATORS: Final = re.compile(r"[.-]")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNIT: Final = re.compile(r"(_ms|_seconds|_minutes|_hours)$")

_EQUIVALENTS: Final[Mapping[str, tuple[str, ...]]] = {
    # Brokers and topics of Kafka.
    "advertised_listeners": ("advertised",),
    "broker_id": ("node_id",),
    "controller_quorum_voters": ("peers",),
    "flush_messages": ("durability", "topic_defaults.durability"),
    "flush_ms": ("durability", "topic_defaults.durability"),
    "listeners": ("listen",),
    "log_cleaner_dedupe_buffer_size": ("log_cleaner_dedupe_buffer_bytes",),
    "log_cleaner_io_max_bytes_per_second": ("log_cleaner_max_bytes_per_second",),
    "log_dir": ("data_dir",),
    "log_dirs": ("data_dir",),
    "log_retention_check_interval_ms": ("maintenance_interval_ms",),
    "message_max_bytes": ("max_message_bytes", "topic_defaults.max_message_bytes"),
    "queued_max_bytes": ("queued_max_request_bytes",),
    "zookeeper_connect": ("peers",),
    # Clients of Kafka.
    "bootstrap_server": ("broker",),
    "bootstrap_servers": ("broker",),
    "broker_list": ("broker",),
    "fetch_max_wait_ms": ("fetch_max_wait",),
    "message_timeout_ms": ("delivery_timeout",),
    "partition_assignment_strategy": ("assignor",),
    "queue_buffering_max_ms": ("linger",),
    # Attributes of queues in SQS.
    "dead_letter_target_arn": ("dead_letter_queue",),
    "delay_seconds": ("delivery_delay_ms",),
    "maximum_message_size": ("max_message_bytes",),
    "message_retention_period": ("retention_ms",),
    "redrive_policy": ("dead_letter_queue",),
    # Arguments of queues in RabbitMQ.
    "message_ttl": ("retention_ms",),
    "x_dead_letter_exchange": ("dead_letter_queue",),
    "x_dead_letter_routing_key": ("dead_letter_queue",),
    "x_delivery_limit": ("max_receive_count",),
    "x_max_priority": ("priority_weights",),
    "x_message_ttl": ("retention_ms",),
}
"""Settings of tidelog by foreign names in snake_case, for names that no rule translates."""


def unknown_setting(
    name: str, known: Iterable[str], *, of: str = "", unlisted: Iterable[str] = ()
) -> str:
    """Return the error text for an unknown setting: the nearest name, or else all names.

    Args:
        name: The unknown name.
        known: The valid names.
        of: Owner of the setting, such as `topic`.
        unlisted: Further valid names, which the list leaves out.
    """
    names = list(known)
    text = f"there is no {of} setting {name!r}" if of else f"there is no setting {name!r}"
    nearest = nearest_name(name, [*names, *unlisted])
    if nearest is None:
        return f"{text}; there are {', '.join(names)}"
    return f"{text}; did you mean {nearest}?{_unit_of(nearest, name)}"


def nearest_name(
    name: str, known: Iterable[str], *, likeness_min: float = _LIKENESS_MIN
) -> str | None:
    """Return the known name that an unknown name means; `None` if there is none.

    `likeness_min` is the similarity, from 0 to 1, from which a name is a typing error of another.
    """
    names = list(known)
    found = next((each for each in _translations(name) if each in names), None)
    if found is not None:
        return found
    # Not at the top: commands that need no suggestion start earlier.
    from difflib import get_close_matches  # noqa: PLC0415

    nearest = get_close_matches(snake_case(name), names, n=1, cutoff=likeness_min)
    return nearest[0] if nearest else None


def snake_case(name: str) -> str:
    """Return `retention.ms`, `retention-ms` and `RetentionMs` as `retention_ms`."""
    return _SEPARATORS.sub("_", _HUMP.sub("_", name)).lower()


def _translations(name: str) -> Iterator[str]:
    """Yield names of tidelog that a foreign name may mean, the most likely first."""
    spelled = snake_case(name)
    yield spelled
    yield from _EQUIVALENTS.get(spelled, ())
    # Brokers of Kafka have the defaults of topics under names that begin with `log.`.
    for stem in (spelled, spelled.removeprefix("log_")):
        base = _UNIT.sub("", stem)
        for each in (stem, f"{base}_ms", base):
            yield from (each, f"topic_defaults.{each}")


def _unit_of(nearest: str, name: str) -> str:
    """Return a note on the unit, if the name has another one."""
    has_ms = [snake_case(each).endswith("_ms") for each in (nearest, name)]
    if has_ms == [True, False]:
        return " it takes a duration, such as 30s"
    if has_ms == [False, True] and nearest in _SECONDS:
        return " it takes seconds"
    return ""


_SECONDS: Final = frozenset(
    {
        "auto_commit_interval",
        "connect_timeout",
        "delivery_timeout",
        "fetch_max_wait",
        "linger",
        "metadata_max_age",
        "rebalance_timeout",
        "request_timeout",
        "retry_backoff",
        "retry_backoff_max",
    }
)
"""Settings of clients in seconds, as all times in trio."""
