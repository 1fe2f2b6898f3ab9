"""Settings of a queue: names, values as people write them, ranges, defaults.

Pure: no clock, no I/O. Coordinator and queue layer share them. Whether a queue is FIFO is no
setting: it is fixed when a queue is created, and some settings and defaults depend on it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, final

from tidelog.wire.config.retry_backoff import BACKOFFS, NO_BACKOFF, RetryBackoff, parse_backoff
from tidelog.wire.config.settings import (
    Setting,
    parse_bounded_count,
    parse_bounded_duration,
    parse_choice,
    parse_or_unlimited,
)
from tidelog.wire.errors import InvalidConfigError, InvalidRequestError
from tidelog.wire.messages.queue_journal import Target
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX

PRIORITY_COUNT_MAX = 16
NO_QUEUE = "none"
"""What stands for no dead-letter queue."""

_AUTO = "auto"
_ON, _OFF = "on", "off"
_SWITCH = {_ON: True, "true": True, _OFF: False, "false": False}
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_HORIZON_MS = 36_500 * _DAY_MS
"""Delays that are longer are typing errors, and would not fit into a timestamp for ever."""
_QUEUE_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_WEIGHT = re.compile(r"[1-9][0-9]{0,2}")
DEDUPLICATION_WINDOW_MS_MAX = 7 * _DAY_MS


class ReceiveAcks(StrEnum):
    """What a receive waits for."""

    ALL = "all"
    """Until it is committed: leases and receive counts survive whatever records survive."""
    LEADER = "leader"
    """Until it is in the journal of the leader."""


class DeduplicationScope(StrEnum):
    """Among which messages a deduplication id is unique."""

    QUEUE = "queue"
    """Those of one partition."""
    GROUP = "group"
    """Those of one message group."""


RANGES: Final = {
    "deduplication_window_ms": (1000, DEDUPLICATION_WINDOW_MS_MAX),
    "delivery_delay_ms": (0, _HORIZON_MS),
    "history_retention_ms": (0, _HORIZON_MS),
    "max_in_flight": (1, 10_000_000),
    "max_receive_count": (1, 1000),
    "receive_message_wait_time_ms": (0, 10 * _MINUTE_MS),
    "retention_ms": (_MINUTE_MS, _HORIZON_MS),
    "send_rate": (1, 1_000_000_000),
    "visibility_timeout_ms": (0, VISIBILITY_TIMEOUT_MS_MAX),
}
"""The smallest and the largest value of each setting that is a number."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The values in force for one queue; `QUEUE_SETTINGS` says what each setting means."""

    is_fifo: bool = False
    """No setting: groups are in order, and receipts count only while their lease lasts."""
    visibility_timeout_ms: int = 30_000
    delivery_delay_ms: int = 0
    retention_ms: int | None = 4 * _DAY_MS
    """`None`: as long as the topic keeps them."""
    max_receive_count: int | None = None
    """`None` for no limit. Of no effect without a target for dead letters."""
    dead_letter_queue: str | None = None
    dead_letter_target: Target | None = None
    """No setting: topic id and partition of `dead_letter_queue` for one partition."""
    retry_backoff: RetryBackoff = NO_BACKOFF
    receive_acks: ReceiveAcks = ReceiveAcks.LEADER
    require_latest_receipt: bool = False
    max_in_flight: int = 120_000
    deduplication_window_ms: int = 5 * _MINUTE_MS
    deduplication_scope: DeduplicationScope = DeduplicationScope.QUEUE
    content_based_deduplication: bool = False
    priority_weights: tuple[int, ...] = ()
    """Weights of the priorities, the most urgent first; empty if there are none."""
    fair_delivery: bool = False
    send_rate: int | None = None
    """Messages a second; `None` for no limit."""
    receive_message_wait_time_ms: int = 0
    history_retention_ms: int = _DAY_MS

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidConfigError(f"{name} is {value}, it must be from {low} to {high}")
        if any(weight < 1 for weight in self.priority_weights):
            raise InvalidConfigError("a weight of priority_weights is at least 1")
        if self.is_fifo and (self.priority_weights or self.fair_delivery):
            name = "priority_weights" if self.priority_weights else "fair_delivery"
            raise InvalidConfigError(
                f"{name} is not for FIFO queues: their messages do not overtake"
            )
        if self.priority_weights and self.fair_delivery:
            raise InvalidConfigError(
                "a queue has either priority_weights or fair_delivery; reset one of them"
            )

    @property
    def max_deliveries(self) -> int | None:
        """After how many receives a message is dead-lettered, `None` if it is not."""
        return None if self.dead_letter_target is None else self.max_receive_count

    @property
    def is_fenced(self) -> bool:
        """Whether only the latest receipt of a message settles it."""
        return self.is_fifo or self.require_latest_receipt


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


def _parse_dead_letter_queue(name: str, text: str) -> str | None:
    wanted = text.strip()
    if wanted.lower() == NO_QUEUE:
        return None
    if not _is_queue_name(wanted):
        raise InvalidConfigError(f"{name} is {text!r}, it must be the name of a queue, or none")
    return wanted


def _parse_switch(name: str, text: str) -> bool:
    """Return whether it is `on`, or `off`; programs may say `true` or `false`."""
    wanted = text.strip().lower()
    if wanted not in _SWITCH:
        raise InvalidConfigError(f"{name} is {text!r}, it must be on or off")
    return _SWITCH[wanted]


def _parse_duration(name: str) -> Callable[[str, str], int]:
    low, high = RANGES[name]
    return parse_bounded_duration(low=low, high=high)


def _parse_count(name: str) -> Callable[[str, str], int]:
    low, high = RANGES[name]
    return parse_bounded_count(low=low, high=high)


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
            _parse_duration("deduplication_window_ms"),
            "5min",
            "1s to 7d",
            "FIFO: how long after a message another one with its deduplication id is not kept.",
        ),
        Setting(
            "delivery_delay_ms",
            _parse_duration("delivery_delay_ms"),
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
            _parse_duration("history_retention_ms"),
            "1d",
            "0 or more",
            "For how long at least it can be read what happened to messages (`tidelog queue"
            " history`); 0: only what the queue itself needs is kept.",
        ),
        Setting(
            "max_in_flight",
            _parse_count("max_in_flight"),
            "120000",
            "1 to 10000000",
            "Messages of one partition that may be received and not settled at a time.",
        ),
        Setting(
            "max_receive_count",
            parse_or_unlimited(_parse_count("max_receive_count")),
            "unlimited",
            "1 to 1000, unlimited",
            "How often a message is handed out before it is a dead letter; without a dead-letter"
            " queue it is handed out on and on.",
        ),
        Setting(
            "priority_weights",
            parse_priority_weights,
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
            _parse_duration("receive_message_wait_time_ms"),
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
            parse_or_unlimited(_parse_duration("retention_ms")),
            "4d",
            "1min or more, unlimited",
            "How long after it was sent (or, if it was delayed, became visible) a message is handed"
            " out; never longer than the topic keeps it.",
        ),
        Setting(
            "retry_backoff",
            parse_backoff,
            "none",
            BACKOFFS.replace("`", ""),
            "How long a message that was released without a delay is invisible, by its deliveries;"
            " with jitter, half of that or more.",
        ),
        Setting(
            "send_rate",
            parse_or_unlimited(_parse_count("send_rate")),
            "unlimited",
            "1 or more, unlimited",
            "Messages a second that may be sent to the queue, shared equally by its partitions.",
        ),
        Setting(
            "visibility_timeout_ms",
            _parse_duration("visibility_timeout_ms"),
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
    values: dict[str, Any] = {
        name: QUEUE_SETTINGS[name].parse(name, text) for name, text in texts.items()
    }
    values["receive_acks"] = ReceiveAcks(values["receive_acks"])
    values["deduplication_scope"] = DeduplicationScope(values["deduplication_scope"])
    return QueueConfig(is_fifo=is_fifo, **values)
