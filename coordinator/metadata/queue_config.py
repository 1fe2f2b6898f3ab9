"""Settings of a queue: names, values as people write them, defaults.

Pure: no clock, no I/O. What is FIFO and what is not is no setting: it is said when a queue is made,
and some settings and defaults depend on it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tidelog.coordinator.metadata.retry_backoff import BACKOFFS, RetryBackoff, parse_backoff
from tidelog.coordinator.metadata.topic_config import (
    Setting,
    Value,
    parse_bounded_count,
    parse_bounded_duration,
    parse_choice,
    parse_or_unlimited,
)
from tidelog.wire.errors import InvalidConfigError, InvalidRequestError
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX

MAX_IN_FLIGHT_DEFAULT = 120_000
PRIORITY_COUNT_MAX = 16
NO_QUEUE = "none"
"""What stands for no dead-letter queue."""

_AUTO = "auto"
_ON, _OFF = "on", "off"
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_HORIZON_MS = 36_500 * _DAY_MS
"""Delays that are longer are typing errors, and would not fit into a timestamp for ever."""
_QUEUE_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_WEIGHT = re.compile(r"[1-9][0-9]{0,2}")


class ReceiveAcks(StrEnum):
    """What a receive waits for."""

    ALL = "all"
    """Until it is committed: leases and receive counts survive whatever records survive."""
    LEADER = "leader"
    """Until it is in the journal of the leader."""


class DeduplicationScope(StrEnum):
    """Within what an id is given once."""

    QUEUE = "queue"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """What is in force for one queue; names and meanings are those of `QUEUE_SETTINGS`."""

    visibility_timeout_ms: int
    delivery_delay_ms: int
    retention_ms: int | None
    """`None`: as long as the topic keeps them."""
    max_receive_count: int | None
    """`None` for no limit."""
    dead_letter_queue: str | None
    retry_backoff: RetryBackoff
    receive_acks: ReceiveAcks
    require_latest_receipt: bool
    """Whether only the last receipt of a message may settle it."""
    max_in_flight: int
    deduplication_window_ms: int
    deduplication_scope: DeduplicationScope
    content_based_deduplication: bool
    priority_weights: tuple[int, ...]
    """Weights of the priorities, most urgent first; empty if there are none."""
    fair_delivery: bool
    send_rate: int | None
    """`None` for no limit."""
    receive_message_wait_time_ms: int
    history_retention_ms: int
    """For how long it can be read what happened to messages; 0: as long as that is needed."""


def check_queue_name(name: str) -> None:
    """Check that a queue may have this name.

    Raises:
        InvalidRequestError: Saying what a name may look like.
    """
    if not _is_queue_name(name):
        raise InvalidRequestError(
            f"{name!r} cannot be the name of a queue: 1 to 249 of the characters a-z, A-Z, 0-9,"
            f" '.', '_' and '-' can, except '.', '..' and {NO_QUEUE!r}"
        )


def _is_queue_name(name: str) -> bool:
    return _QUEUE_NAME.fullmatch(name) is not None and name not in {".", "..", NO_QUEUE}


def _parse_backoff_text(name: str, text: str) -> str:
    """Return a backoff such that equal ones are equal texts."""
    return repr(parse_backoff(name, text))


def parse_priority_weights(name: str, text: str) -> tuple[int, ...]:
    """Return the weights of priorities, none for `none`.

    Raises:
        InvalidConfigError: The text means none.
    """
    if text.strip().lower() == "none":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > PRIORITY_COUNT_MAX or not all(_WEIGHT.fullmatch(part) for part in parts):
        raise InvalidConfigError(
            f"{name} is {text!r}, it must be none, or 1 to {PRIORITY_COUNT_MAX} weights from 1 to"
            " 999, the most urgent first, such as 8,4,1"
        )
    return tuple(map(int, parts))


def _parse_priority_weights_text(name: str, text: str) -> str:
    return repr(parse_priority_weights(name, text))


def _parse_dead_letter_queue(name: str, text: str) -> Value:
    wanted = text.strip()
    if wanted.lower() == NO_QUEUE:
        return None
    if not _is_queue_name(wanted):
        raise InvalidConfigError(f"{name} is {text!r}, it must be the name of a queue, or none")
    return wanted


def _parse_switch(name: str, text: str) -> str:
    """Return `on` or `off`; programs may say `true` or `false`."""
    wanted = {"true": _ON, "false": _OFF}.get(text.strip().lower(), text.strip().lower())
    if wanted not in {_ON, _OFF}:
        raise InvalidConfigError(f"{name} is {text!r}, it must be on or off")
    return wanted


QUEUE_SETTINGS: Final = {
    setting.name: setting
    for setting in (
        Setting(
            "content_based_deduplication",
            _parse_switch,
            _OFF,
            "on, off",
            "FIFO: a message that is sent without a deduplication id gets a hash of its value as"
            " one.",
        ),
        Setting(
            "dead_letter_queue",
            _parse_dead_letter_queue,
            NO_QUEUE,
            "a queue, none",
            "Where messages go that were rejected, or received `max_receive_count` times. It must"
            " be there, be FIFO if this one is, and lead nowhere back.",
        ),
        Setting(
            "deduplication_scope",
            parse_choice(*DeduplicationScope),
            _AUTO,
            "queue, group",
            "FIFO: whether an id is given once in the queue or once in each group; cannot be"
            " changed. `queue` needs a single partition (auto: `queue` with one, else `group`).",
        ),
        Setting(
            "deduplication_window_ms",
            parse_bounded_duration(low=1000, high=7 * _DAY_MS),
            "5min",
            "1s to 7d",
            "FIFO: how long after a message another one with its deduplication id is not kept.",
        ),
        Setting(
            "delivery_delay_ms",
            parse_bounded_duration(low=0, high=_HORIZON_MS),
            "0",
            "0 to 36500d",
            "How long a message is invisible at first, if its sender does not say.",
        ),
        Setting(
            "fair_delivery",
            _parse_switch,
            _OFF,
            "on, off",
            "Fair queues: groups with many messages in flight wait behind others. Not for FIFO"
            " queues, nor with `priority_weights`.",
        ),
        Setting(
            "history_retention_ms",
            parse_bounded_duration(low=0, high=_HORIZON_MS),
            "1d",
            "0 or more",
            "For how long at least it can be read what happened to messages (`tidelog queue"
            " history`); 0: only what the queue itself needs is kept.",
        ),
        Setting(
            "max_in_flight",
            parse_bounded_count(low=1, high=10_000_000),
            str(MAX_IN_FLIGHT_DEFAULT),
            "1 to 10000000",
            "Messages of one partition that may be received and not settled at a time.",
        ),
        Setting(
            "max_receive_count",
            parse_or_unlimited(parse_bounded_count(low=1, high=1000)),
            "unlimited",
            "1 to 1000, unlimited",
            "How often a message is handed out before it is a dead letter; without a dead-letter"
            " queue it is handed out on and on.",
        ),
        Setting(
            "priority_weights",
            _parse_priority_weights_text,
            "none",
            f"none, up to {PRIORITY_COUNT_MAX} weights",
            "Priorities, the most urgent (0) first: how many messages of each are handed out in"
            " turn, such as 8,4,1. Not for FIFO queues.",
        ),
        Setting(
            "receive_acks",
            parse_choice(*ReceiveAcks),
            _AUTO,
            "all, leader",
            "Whether a receive waits until it is committed, so that leases and receive counts"
            " outlive the leader (auto: all for FIFO queues and with a dead-letter queue, else"
            " leader).",
        ),
        Setting(
            "receive_message_wait_time_ms",
            parse_bounded_duration(low=0, high=10 * _MINUTE_MS),
            "0",
            "0 to 10min",
            "How long a receive that does not say waits for messages when there are none.",
        ),
        Setting(
            "require_latest_receipt",
            _parse_switch,
            _AUTO,
            "on, off",
            "Whether only the last receipt of a message can settle it (auto: on for FIFO queues,"
            " which must have it, off for others).",
        ),
        Setting(
            "retention_ms",
            parse_or_unlimited(parse_bounded_duration(low=_MINUTE_MS, high=_HORIZON_MS)),
            "4d",
            "1min or more, unlimited",
            "How long after it was sent (or, if it was delayed, became visible) a message is handed"
            " out; never longer than the topic keeps it.",
        ),
        Setting(
            "retry_backoff",
            _parse_backoff_text,
            "none",
            BACKOFFS.replace("`", ""),
            "How long a message that was released without a delay is invisible, by its deliveries;"
            " with jitter, half of that or more.",
        ),
        Setting(
            "send_rate",
            parse_or_unlimited(parse_bounded_count(low=1, high=1_000_000_000)),
            "unlimited",
            "1 or more, unlimited",
            "Messages a second that may be sent to the queue, shared equally by its partitions.",
        ),
        Setting(
            "visibility_timeout_ms",
            parse_bounded_duration(low=0, high=VISIBILITY_TIMEOUT_MS_MAX),
            "30s",
            "0 to 12h",
            "How long a message that was received is invisible, if the receive does not say.",
        ),
    )
}
"""Every setting of a queue, by name, sorted."""

FROZEN_SETTINGS: Final = ("deduplication_scope",)
"""Decided when a queue is made, and never changed."""
FIFO_SETTINGS: Final = (
    "content_based_deduplication",
    "deduplication_scope",
    "deduplication_window_ms",
)
"""Of no use for others, and refused there."""


def check_queue_setting_name(name: str) -> None:
    """Check that there is a setting of this name.

    Raises:
        InvalidConfigError: Listing the settings that there are.
    """
    if name not in QUEUE_SETTINGS:
        known = ", ".join(QUEUE_SETTINGS)
        raise InvalidConfigError(f"there is no queue setting {name!r}; there are {known}")


def check_queue_settings(overrides: Mapping[str, str], *, is_fifo: bool) -> None:
    """Check names and values that somebody wants to set, and whether they go together.

    Raises:
        InvalidConfigError: Saying which setting is wrong and what would be right.
    """
    for name in overrides:
        check_queue_setting_name(name)
        if name in FIFO_SETTINGS and not is_fifo:
            raise InvalidConfigError(f"{name} is a setting of FIFO queues, and this is none")
    config = queue_config(overrides, is_fifo=is_fifo)
    if is_fifo and not config.require_latest_receipt:
        raise InvalidConfigError(
            "require_latest_receipt is off, it must be on: a FIFO queue keeps no order else"
        )
    if is_fifo and (config.priority_weights or config.fair_delivery):
        name = "priority_weights" if config.priority_weights else "fair_delivery"
        raise InvalidConfigError(f"{name} is not for FIFO queues: their messages do not overtake")
    if config.priority_weights and config.fair_delivery:
        raise InvalidConfigError(
            "a queue has either priority_weights or fair_delivery; reset one of them"
        )


def frozen_settings(
    overrides: Mapping[str, str], *, is_fifo: bool, partition_count: int
) -> dict[str, str]:
    """Return the settings that a new queue has for ever.

    Raises:
        InvalidConfigError: It cannot have what was asked for.
    """
    if not is_fifo:
        return {}
    scope = overrides.get("deduplication_scope", _AUTO)
    if scope == _AUTO:
        is_single = partition_count == 1
        scope = DeduplicationScope.QUEUE if is_single else DeduplicationScope.GROUP
    if scope == DeduplicationScope.QUEUE and partition_count > 1:
        raise InvalidConfigError(
            f"deduplication_scope is queue, it must be group: the queue has {partition_count}"
            " partitions, and each knows its own messages only"
        )
    return {"deduplication_scope": str(scope)}


def effective_queue_settings(overrides: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """Return every setting that a queue can have with its value in force, as text."""
    texts = {
        name: overrides.get(name, setting.default)
        for name, setting in QUEUE_SETTINGS.items()
        if is_fifo or name not in FIFO_SETTINGS
    }
    has_dead_letters = texts["dead_letter_queue"].strip().lower() != NO_QUEUE
    is_strict = is_fifo or has_dead_letters
    decided = {
        "deduplication_scope": DeduplicationScope.QUEUE,
        "require_latest_receipt": _ON if is_fifo else _OFF,
        "receive_acks": ReceiveAcks.ALL if is_strict else ReceiveAcks.LEADER,
    }
    return {name: str(decided[name] if text == _AUTO else text) for name, text in texts.items()}


def queue_config(overrides: Mapping[str, str], *, is_fifo: bool) -> QueueConfig:
    """Return what is in force under these overrides, the frozen settings among them.

    Raises:
        InvalidConfigError: A value is not legal.
    """
    # Queues that are set alike share what is in force: there may be thousands of them.
    return _queue_config(tuple(sorted(overrides.items())), is_fifo)


def first_difference(
    asked: Mapping[str, str], there: Mapping[str, str], *, is_fifo: bool
) -> str | None:
    """Return the first setting that is not the same under both, as a sentence; `None` if all are.

    Raises:
        InvalidConfigError: A value is not legal.
    """
    wanted = effective_queue_settings(asked, is_fifo=is_fifo)
    for name, text in effective_queue_settings(there, is_fifo=is_fifo).items():
        setting = QUEUE_SETTINGS[name]
        if setting.parse(name, wanted[name]) != setting.parse(name, text):
            return f"its {name} is {text}, not {wanted[name]}"
    return None


@lru_cache(maxsize=1024)
def _queue_config(overrides: tuple[tuple[str, str], ...], is_fifo: bool) -> QueueConfig:
    texts = effective_queue_settings(dict(overrides), is_fifo=is_fifo)
    for name in FIFO_SETTINGS:
        texts.setdefault(name, QUEUE_SETTINGS[name].default)
    if texts["deduplication_scope"] == _AUTO:
        texts["deduplication_scope"] = DeduplicationScope.QUEUE
    values = {name: QUEUE_SETTINGS[name].parse(name, text) for name, text in texts.items()}
    return QueueConfig(
        visibility_timeout_ms=_number(values["visibility_timeout_ms"]),
        delivery_delay_ms=_number(values["delivery_delay_ms"]),
        retention_ms=_limit(values["retention_ms"]),
        max_receive_count=_limit(values["max_receive_count"]),
        dead_letter_queue=_name(values["dead_letter_queue"]),
        retry_backoff=parse_backoff("retry_backoff", texts["retry_backoff"]),
        receive_acks=ReceiveAcks(str(values["receive_acks"])),
        require_latest_receipt=values["require_latest_receipt"] == _ON,
        max_in_flight=_number(values["max_in_flight"]),
        deduplication_window_ms=_number(values["deduplication_window_ms"]),
        deduplication_scope=DeduplicationScope(str(values["deduplication_scope"])),
        content_based_deduplication=values["content_based_deduplication"] == _ON,
        priority_weights=parse_priority_weights("priority_weights", texts["priority_weights"]),
        fair_delivery=values["fair_delivery"] == _ON,
        send_rate=_limit(values["send_rate"]),
        receive_message_wait_time_ms=_number(values["receive_message_wait_time_ms"]),
        history_retention_ms=_number(values["history_retention_ms"]),
    )


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _limit(value: Value) -> int | None:
    return None if value is None else _number(value)


def _name(value: Value) -> str | None:
    assert not isinstance(value, int)
    return value
