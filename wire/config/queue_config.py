"""Settings of a queue: names, parsers, ranges, defaults (SQS: queue attributes).

Pure: no clock, no I/O. Coordinator and queue layer share them. Whether a queue is FIFO is no
setting: creation fixes it, and some settings and defaults depend on it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, final

from tidelog.wire.config.retry_backoff import BACKOFFS, NO_BACKOFF, RetryBackoff, parse_backoff
from tidelog.wire.config.settings import (
    NONE,
    Setting,
    parse_bounded_count,
    parse_bounded_duration,
    parse_choice,
    parse_or_none,
    parse_or_unlimited,
    parse_owner,
)
from tidelog.wire.config.unknown_names import unknown_setting
from tidelog.wire.errors import InvalidConfigError, InvalidRequestError
from tidelog.wire.messages.queue_journal import Target
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX

PRIORITY_COUNT_MAX = 16
NO_QUEUE = "none"
"""Value of `dead_letter_queue` for none."""
NO_PRIORITIES = "none"
"""Value of `priority_weights` for none."""

_AUTO = "auto"
_ON, _OFF = "on", "off"
_SWITCH = {_ON: True, "true": True, _OFF: False, "false": False}
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_HORIZON_MS = 36_500 * _DAY_MS
"""Maximum of a delay: longer ones are typing errors and would overflow timestamps."""
_QUEUE_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,248}")
_WEIGHT = re.compile(r"[1-9][0-9]{0,2}")
DEDUPLICATION_WINDOW_MS_MAX = 7 * _DAY_MS


class ReceiveAcks(StrEnum):
    """Acknowledgement that a receive waits for."""

    ALL = "all"
    """The receive is committed: leases and receive counts survive every fault that records survive.
    """
    LEADER = "leader"
    """The receive is in the leader's journal."""


class PriorityDelivery(StrEnum):
    """How the priorities of a queue share its deliveries."""

    WEIGHTED = "weighted"
    """Each priority gets its weight of them, so none waits without end."""
    STRICT = "strict"
    """A message is delivered when no message of a more urgent priority is visible."""


class DeduplicationScope(StrEnum):
    """Scope in which a deduplication id is unique."""

    QUEUE = "queue"
    """The messages of one partition."""
    GROUP = "group"
    """The messages of one message group."""


RANGES: Final = {
    "alert_age_ms": (1000, _HORIZON_MS),
    "alert_dead_letters": (0, 10**12),
    "alert_depth": (0, 10**12),
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
"""Minimum and maximum of each numeric setting."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The values in force for one queue; `QUEUE_SETTINGS` says what each setting means."""

    is_fifo: bool = False
    """No setting: groups are in order, and a receipt handle is valid only during its lease."""
    visibility_timeout_ms: int = 30_000
    delivery_delay_ms: int = 0
    retention_ms: int | None = 4 * _DAY_MS
    """`None`: as long as the topic keeps the records."""
    max_receive_count: int | None = None
    """`None` for no limit. No effect without a dead-letter target."""
    dead_letter_queue: str | None = None
    dead_letter_target: Target | None = None
    """No setting: topic id and partition of `dead_letter_queue` for one partition."""
    retry_backoff: RetryBackoff = NO_BACKOFF
    receive_acks: ReceiveAcks = ReceiveAcks.LEADER
    require_latest_receipt: bool = False
    max_in_flight: int = 120_000
    """For one partition, its share: see `for_partition`."""
    deduplication_window_ms: int = 5 * _MINUTE_MS
    deduplication_scope: DeduplicationScope = DeduplicationScope.QUEUE
    content_based_deduplication: bool = False
    priority_weights: tuple[int, ...] = ()
    """Weights of the priorities, the most urgent first; empty without priorities."""
    priority_delivery: PriorityDelivery = PriorityDelivery.WEIGHTED
    default_priority: int | None = None
    """Priority of messages without one; `None` for the least urgent."""
    fair_delivery: bool = False
    send_rate: int | None = None
    """Messages a second; `None` for no limit."""
    receive_message_wait_time_ms: int = 0
    history_retention_ms: int = _DAY_MS
    owner: str | None = None
    alert_age_ms: int | None = None
    alert_depth: int | None = None
    alert_dead_letters: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidConfigError(f"{name} is {value}, it must be from {low} to {high}")
        if any(weight < 1 for weight in self.priority_weights):
            raise InvalidConfigError("a weight of priority_weights is at least 1")
        self._check_order()

    def _check_order(self) -> None:
        if self.is_fifo and (self.priority_weights or self.fair_delivery):
            name = "priority_weights" if self.priority_weights else "fair_delivery"
            raise InvalidConfigError(
                f"{name} is not for FIFO queues: their messages keep their order"
            )
        if self.priority_weights and self.fair_delivery:
            raise InvalidConfigError(
                "a queue has either priority_weights or fair_delivery; reset one of them"
            )
        priority, count = self.default_priority, len(self.priority_weights)
        is_strict = self.priority_delivery is PriorityDelivery.STRICT
        if not count and (is_strict or priority is not None):
            name = "priority_delivery" if is_strict else "default_priority"
            raise InvalidConfigError(
                f"{name} is {getattr(self, name)}, and the queue has no priorities; set"
                f" priority_weights, or reset {name}"
            )
        if priority is not None and not 0 <= priority < count:
            raise InvalidConfigError(
                f"default_priority is {priority}, it must be from 0 to {count - 1}:"
                f" priority_weights has {count} weights"
            )

    @property
    def order_settings(self) -> tuple[object, ...]:
        """The settings of the delivery order; after a change it is built again."""
        return (
            self.priority_weights,
            self.priority_delivery,
            self.default_priority,
            self.fair_delivery,
        )

    @property
    def max_deliveries(self) -> int | None:
        """Receives after which a message is dead-lettered; `None` without a dead-letter queue."""
        return None if self.dead_letter_target is None else self.max_receive_count

    def for_partition(
        self, number: int, partition_count: int, *, dead_letter_target: Target | None
    ) -> "QueueConfig":
        """Return the values for one partition: its share of `max_in_flight`, and its target.

        Partitions have different leaders, so the limit of the queue is shared out, not counted.
        """
        quotient, rest = divmod(self.max_in_flight, partition_count)
        share = max(1, quotient + (number < rest))
        if (share, dead_letter_target) == (self.max_in_flight, self.dead_letter_target):
            return self  # Queues with equal settings share one object.
        return replace(self, max_in_flight=share, dead_letter_target=dead_letter_target)

    @property
    def is_fenced(self) -> bool:
        """Whether only the latest receipt handle of a message settles it."""
        return self.is_fifo or self.require_latest_receipt


def check_queue_name(name: str) -> None:
    """Check the name of a queue.

    Raises:
        InvalidRequestError: The name is not legal.
    """
    if not _is_queue_name(name):
        raise InvalidRequestError(
            f"{name!r} cannot be the name of a queue: 1 to 249 of the characters a-z, A-Z, 0-9,"
            f" '.', '_' and '-' can, with a letter, a digit or '_' first, except {NO_QUEUE!r}"
        )


def _is_queue_name(name: str) -> bool:
    return _QUEUE_NAME.fullmatch(name) is not None and name.lower() != NO_QUEUE


def parse_priority_weights(name: str, text: str) -> tuple[int, ...]:
    """Return the weights of priorities, an empty tuple for `none`.

    Raises:
        InvalidConfigError: The text is not a list of weights.
    """
    if text.strip().lower() == NO_PRIORITIES:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > PRIORITY_COUNT_MAX or not all(_WEIGHT.fullmatch(part) for part in parts):
        raise InvalidConfigError(
            f"{name} is {text!r}, it must be none, or 1 to {PRIORITY_COUNT_MAX} weights from 1 to"
            " 999, the most urgent first, such as 8,4,1"
        )
    return tuple(map(int, parts))


def _parse_default_priority(name: str, text: str) -> int | None:
    """Return a priority; `None` for `auto`, and for `none`, its value without priorities."""
    if text.strip().lower() in {_AUTO, NO_PRIORITIES}:
        return None
    return parse_bounded_count(low=0, high=PRIORITY_COUNT_MAX - 1)(name, text)


def _parse_dead_letter_queue(name: str, text: str) -> str | None:
    wanted = text.strip()
    if wanted.lower() == NO_QUEUE:
        return None
    if not _is_queue_name(wanted):
        raise InvalidConfigError(f"{name} is {text!r}, it must be the name of a queue, or none")
    return wanted


def _parse_switch(name: str, text: str) -> bool:
    """Return whether a switch is `on` or `off`; `true` and `false` are accepted too."""
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
            "alert_age_ms",
            parse_or_none(_parse_duration("alert_age_ms")),
            NONE,
            "1s or more, none",
            "Age of the oldest message above which the alert `QueueTooOld` fires.",
        ),
        Setting(
            "alert_dead_letters",
            parse_or_none(_parse_count("alert_dead_letters")),
            NONE,
            "0 or more, none",
            "Dead letters above which the alert `QueueDeadLetters` fires: those of the queue that"
            " are not moved, and all messages of its dead-letter queue.",
        ),
        Setting(
            "alert_depth",
            parse_or_none(_parse_count("alert_depth")),
            NONE,
            "0 or more, none",
            "Visible messages above which the alert `QueueTooDeep` fires.",
        ),
        Setting(
            "content_based_deduplication",
            _parse_switch,
            _OFF,
            "on, off",
            "FIFO: a message without a deduplication id gets a hash of its value as its id.",
        ),
        Setting(
            "dead_letter_queue",
            _parse_dead_letter_queue,
            NO_QUEUE,
            "a queue, none",
            "The queue for messages that were rejected, or received `max_receive_count` times. It"
            " must exist, be FIFO if this queue is, and not lead back to this queue.",
        ),
        Setting(
            "deduplication_scope",
            parse_choice(*DeduplicationScope),
            _AUTO,
            "queue, group",
            "FIFO: whether an id is unique in the queue or in its group; cannot be changed. `queue`"
            " needs a single partition (auto: `queue` with one partition, else `group`).",
        ),
        Setting(
            "deduplication_window_ms",
            _parse_duration("deduplication_window_ms"),
            "5min",
            "1s to 7d",
            "FIFO: how long a message's deduplication id refuses further messages with this id.",
        ),
        Setting(
            "default_priority",
            _parse_default_priority,
            _AUTO,
            f"0 to {PRIORITY_COUNT_MAX - 1}",
            "Priority of a message without one, such as a record of a producer; less than the"
            " number of `priority_weights` (auto: the least urgent).",
        ),
        Setting(
            "delivery_delay_ms",
            _parse_duration("delivery_delay_ms"),
            "0",
            "0 to 36500d",
            "Initial delay of a message that is sent without a delay of its own.",
        ),
        Setting(
            "fair_delivery",
            _parse_switch,
            _OFF,
            "on, off",
            "Fair queues: groups with many messages in flight wait behind other groups. Not for"
            " FIFO queues, nor with `priority_weights`.",
        ),
        Setting(
            "history_retention_ms",
            _parse_duration("history_retention_ms"),
            "1d",
            "0 or more",
            "Minimum time that the history of messages stays readable (`tidelog queue history`); 0"
            " keeps only the entries that the queue itself needs.",
        ),
        Setting(
            "max_in_flight",
            _parse_count("max_in_flight"),
            "120000",
            "1 to 10000000",
            "Maximum messages in flight in the queue, shared equally by its partitions; each has at"
            " least one.",
        ),
        Setting(
            "max_receive_count",
            parse_or_unlimited(_parse_count("max_receive_count")),
            "unlimited",
            "1 to 1000, unlimited",
            "Maximum receives of a message before it becomes a dead letter; no limit without a"
            " dead-letter queue.",
        ),
        Setting(
            "owner",
            parse_owner,
            NONE,
            "none, up to 256 bytes",
            "Owner of the queue, such as a team or an address; its alerts name it.",
        ),
        Setting(
            "priority_delivery",
            parse_choice(*PriorityDelivery),
            PriorityDelivery.WEIGHTED,
            "weighted, strict",
            "How priorities share deliveries: by their weights, or strict: the most urgent visible"
            " message of a partition first, so that the weights only give the number of"
            " priorities.",
        ),
        Setting(
            "priority_weights",
            parse_priority_weights,
            "none",
            f"none, up to {PRIORITY_COUNT_MAX} weights",
            "Weights of the priorities, the most urgent (0) first: messages delivered of each in"
            " turn, such as 8,4,1. Not for FIFO queues.",
        ),
        Setting(
            "receive_acks",
            parse_choice(*ReceiveAcks),
            _AUTO,
            "all, leader",
            "Whether a receive waits until it is committed, so that leases and receive counts"
            " survive the leader (auto: all for FIFO queues and with a dead-letter queue, else"
            " leader).",
        ),
        Setting(
            "receive_message_wait_time_ms",
            _parse_duration("receive_message_wait_time_ms"),
            "0",
            "0 to 10min",
            "Wait time for messages of a receive without a wait time of its own (long polling).",
        ),
        Setting(
            "require_latest_receipt",
            _parse_switch,
            _AUTO,
            "on, off",
            "Whether only the last receipt handle of a message can settle it (auto: on for FIFO"
            " queues, where it is required, off for others).",
        ),
        Setting(
            "retention_ms",
            parse_or_unlimited(_parse_duration("retention_ms")),
            "4d",
            "1min or more, unlimited",
            "How long a message is delivered after its send (if delayed, after it became visible);"
            " never longer than the topic keeps it.",
        ),
        Setting(
            "retry_backoff",
            parse_backoff,
            "none",
            BACKOFFS.replace("`", ""),
            "Delay of a message that is released without a delay of its own, by its receive count;"
            " with jitter, half of it or more.",
        ),
        Setting(
            "send_rate",
            parse_or_unlimited(_parse_count("send_rate")),
            "unlimited",
            "1 or more, unlimited",
            "Maximum messages a second sent to the queue, shared equally by its partitions.",
        ),
        Setting(
            "visibility_timeout_ms",
            _parse_duration("visibility_timeout_ms"),
            "30s",
            "0 to 12h",
            "Visibility timeout of a receive without a timeout of its own.",
        ),
    )
}
"""The settings of a queue by name, sorted."""

FROZEN_SETTINGS: Final = ("deduplication_scope",)
"""Settings fixed by the creation of a queue."""
ALERT_SETTINGS: Final = ("owner", "alert_age_ms", "alert_depth", "alert_dead_letters")
"""The owner of a queue and the thresholds of its alerts (feature level 3)."""
FIFO_SETTINGS: Final = (
    "content_based_deduplication",
    "deduplication_scope",
    "deduplication_window_ms",
)
"""Settings that standard queues refuse."""


def check_queue_setting_name(name: str) -> None:
    """Check that a queue has a setting of this name.

    Raises:
        InvalidConfigError: The setting is unknown; the message suggests one or lists all.
    """
    if name not in QUEUE_SETTINGS:
        raise InvalidConfigError(unknown_setting(name, QUEUE_SETTINGS, of="queue"))


def check_queue_settings(overrides: Mapping[str, str], *, is_fifo: bool) -> None:
    """Check names and values of settings, and their combination.

    Raises:
        InvalidConfigError: A setting is wrong; the message says what would be right.
    """
    for name in overrides:
        check_queue_setting_name(name)
        if name in FIFO_SETTINGS and not is_fifo:
            raise InvalidConfigError(
                f"{name} is a setting of FIFO queues, and this queue is not FIFO"
            )
    config = queue_config(overrides, is_fifo=is_fifo)
    if is_fifo and not config.require_latest_receipt:
        raise InvalidConfigError(
            "require_latest_receipt is off, it must be on: a FIFO queue cannot keep order otherwise"
        )


def frozen_settings(
    overrides: Mapping[str, str], *, is_fifo: bool, partition_count: int
) -> dict[str, str]:
    """Return the settings that the creation of a queue fixes.

    Raises:
        InvalidConfigError: The requested settings do not fit the partition count.
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
    """Return the effective value of every setting of a queue, as text.

    Raises:
        InvalidConfigError: The weights of the priorities are not legal.
    """
    texts = {
        name: overrides.get(name, setting.default)
        for name, setting in QUEUE_SETTINGS.items()
        if is_fifo or name not in FIFO_SETTINGS
    }
    has_dead_letters = texts["dead_letter_queue"].strip().lower() != NO_QUEUE
    is_strict = is_fifo or has_dead_letters
    priority_count = len(parse_priority_weights("priority_weights", texts["priority_weights"]))
    decided = {
        "default_priority": priority_count - 1 if priority_count else NO_PRIORITIES,
        "deduplication_scope": DeduplicationScope.QUEUE,
        "require_latest_receipt": _ON if is_fifo else _OFF,
        "receive_acks": ReceiveAcks.ALL if is_strict else ReceiveAcks.LEADER,
    }
    return {name: str(decided[name] if text == _AUTO else text) for name, text in texts.items()}


def queue_config(overrides: Mapping[str, str], *, is_fifo: bool) -> QueueConfig:
    """Return the effective settings under these overrides, the frozen settings included.

    Raises:
        InvalidConfigError: A value is not legal.
    """
    # Queues with equal settings share one object: there may be thousands of them.
    return _queue_config(tuple(sorted(overrides.items())), is_fifo)


def first_difference(
    asked: Mapping[str, str], there: Mapping[str, str], *, is_fifo: bool
) -> str | None:
    """Return the first setting that differs, as a sentence; `None` if all are equal.

    Raises:
        InvalidConfigError: A value is not legal.
    """
    wanted = effective_queue_settings(asked, is_fifo=is_fifo)
    for name, text in effective_queue_settings(there, is_fifo=is_fifo).items():
        setting = QUEUE_SETTINGS[name]
        if asked.get(name, setting.default) == there.get(name, setting.default):
            continue  # If both are auto, they follow from another setting, which is named.
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
    values["priority_delivery"] = PriorityDelivery(values["priority_delivery"])
    values["deduplication_scope"] = DeduplicationScope(values["deduplication_scope"])
    return QueueConfig(is_fifo=is_fifo, **values)
