"""Settings of a topic: names, values as text, defaults.

Pure: no clock, no I/O.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tidelog.isr.durability import Durability
from tidelog.logstore.compaction.policy import CompactionConfig
from tidelog.logstore.config import SEGMENT_BYTES_LIMIT, LogConfig
from tidelog.wire.config.settings import (
    UNLIMITED,
    Setting,
    Value,
    parse_bounded,
    parse_bounded_duration,
    parse_bytes_or_unlimited,
    parse_choice,
    parse_count_up_to,
    parse_or_unlimited,
    parse_size_bytes,
)
from tidelog.wire.config.unknown_names import unknown_setting
from tidelog.wire.errors import InvalidConfigError

_RATIO = re.compile(r"[01]|[01]?\.[0-9]{1,9}")
_OFF, _ON = "off", "on"
_DELETE, _COMPACT, _BOTH = "delete", "compact", "delete,compact"

ENCRYPTION_SETTINGS: Final = ("encryption", "data_key_rotation_ms")
"""Settings of feature level 4, about encryption at rest."""
REPLICATION_FACTOR_MAX = 15
"""More replicas cost more than they save; this catches a typing error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings in force for one topic."""

    log: LogConfig = field(default_factory=LogConfig)
    durability: Durability = Durability.FSYNC
    min_insync_replicas: int = 1
    """Replicas that must have a record before it is committed."""
    compaction: CompactionConfig | None = None
    """Settings of the compaction; `None` if the topic is not compacted."""
    is_kept: bool = False
    """No limit on time or size deletes records: compaction alone does."""
    is_encrypted: bool = False
    """Whether leaders seal new batches ([encryption at rest](encryption.md))."""
    data_key_rotation_ms: int | None = None
    """Age at which a data key is replaced for new batches; `None` never."""


def _parse_ratio(name: str, text: str) -> str:
    if _RATIO.fullmatch(text.strip()) is None or float(text) > 1:
        raise InvalidConfigError(f"{name} is {text!r}, it must be a number from 0 to 1, as 0.5")
    return text


SETTINGS: Final = {
    setting.name: setting
    for setting in (
        Setting(
            "cleanup_policy",
            parse_choice(_DELETE, _COMPACT, _BOTH),
            _DELETE,
            "`delete`, `compact`, `delete,compact`",
            "Delete records by age and size, or records with a newer record of the same key, or"
            " both. Topics with queues cannot be compacted.",
        ),
        Setting(
            "data_key_rotation_ms",
            parse_or_unlimited(parse_bounded_duration(low=60_000)),
            "90d",
            "1m or more, unlimited",
            "Encryption: replace the data key for new records when it is this old.",
        ),
        Setting(
            "delete_retention_ms",
            parse_bounded_duration(low=0),
            "1d",
            "a duration",
            "Compaction: how long a tombstone, a record without a value, stays after nothing is"
            " left that it deletes.",
        ),
        Setting(
            "durability",
            parse_choice(*(durability.value for durability in Durability)),
            Durability.FSYNC.value,
            "fsync, replicated",
            "What an acknowledgement means: fsync (on disk) or replicated (in memory).",
        ),
        Setting(
            "encryption",
            parse_choice(_OFF, _ON),
            _OFF,
            "off, on",
            "Whether the records are encrypted on the disks of the brokers. A change holds for new"
            " records.",
        ),
        Setting(
            "index_interval_bytes",
            parse_bounded(parse_size_bytes, low=256, high=64 << 20),
            "4KiB",
            "256 to 64MiB",
            "Distance of entries in the offset and time index.",
        ),
        Setting(
            "max_compaction_lag_ms",
            parse_or_unlimited(parse_bounded_duration(low=1000)),
            UNLIMITED,
            "1s or more, unlimited",
            "Compaction: a segment is sealed when its first record is this old. It is cleaned when"
            " it has been sealed for this time, however little there is to clean.",
        ),
        Setting(
            "max_message_bytes",
            parse_bounded(parse_size_bytes, low=1024, high=64 << 20),
            "1MiB",
            "1KiB to 64MiB",
            "Larger record batches, and so larger records, are refused.",
        ),
        Setting(
            "max_partition_bytes",
            parse_bytes_or_unlimited(low=8192),
            UNLIMITED,
            "8KiB or more, unlimited",
            "Refuse records that would make the segments of a partition larger than this; at least"
            " twice segment_bytes.",
        ),
        Setting(
            "min_cleanable_dirty_ratio",
            _parse_ratio,
            "0.5",
            "0 to 1",
            "Compaction: clean when this part of the cleanable bytes was never cleaned.",
        ),
        Setting(
            "min_compaction_lag_ms",
            parse_bounded_duration(low=0),
            "0",
            "a duration",
            "Compaction: how long records stay unchanged after their segment was sealed.",
        ),
        Setting(
            "min_insync_replicas",
            parse_count_up_to(REPLICATION_FACTOR_MAX),
            "1",
            f"1 to {REPLICATION_FACTOR_MAX}",
            "Replicas that must have a record before it is committed; at most all of them.",
        ),
        Setting(
            "retention_bytes",
            parse_bytes_or_unlimited(low=0),
            UNLIMITED,
            "a size, unlimited",
            "Delete the oldest segments of a partition while at least this much remains. Less than"
            " one segment remains beyond it: a segment has at most a quarter of this size, but no"
            " less than 256KiB or one batch.",
        ),
        Setting(
            "retention_ms",
            parse_or_unlimited(parse_bounded_duration(low=1000)),
            "7d",
            "1s or more, unlimited",
            "Delete segments whose newest record is older than this.",
        ),
        Setting(
            "segment_bytes",
            parse_bounded(parse_size_bytes, low=4096, high=SEGMENT_BYTES_LIMIT),
            "256MiB",
            "4KiB to 2GiB",
            "Start a new segment before the active one would exceed this size; `retention_bytes`"
            " may make segments smaller.",
        ),
        Setting(
            "segment_ms",
            parse_bounded_duration(low=1000),
            "7d",
            "1s or more",
            "Start a new segment when the active one is this old.",
        ),
    )
}
"""Every setting of a topic, by name, sorted."""


def check_settings(overrides: Mapping[str, str], *, replication_factor: int = 1) -> None:
    """Check names and values of settings.

    Args:
        overrides: The settings as text, by name.
        replication_factor: Replicas of the topic; a single broker keeps the only replica.

    Raises:
        InvalidConfigError: A setting is invalid; the text names it and the allowed values.
    """
    for name in overrides:
        check_setting_name(name)
    config = topic_config(overrides)
    if config.min_insync_replicas > replication_factor:
        raise InvalidConfigError(
            f"min_insync_replicas is {config.min_insync_replicas}, it must be at most"
            f" {replication_factor}, the number of replicas"
        )


def check_setting_name(name: str) -> None:
    """Check that a setting of this name exists.

    Raises:
        InvalidConfigError: There is no such setting; the text suggests one or lists all.
    """
    if name not in SETTINGS:
        raise InvalidConfigError(unknown_setting(name, SETTINGS, of="topic"))


def effective_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return every setting with its value in force, as text."""
    return {name: overrides.get(name, setting.default) for name, setting in SETTINGS.items()}


def topic_config(overrides: Mapping[str, str]) -> TopicConfig:
    """Return the settings in force under these overrides.

    Raises:
        InvalidConfigError: A value is not legal, or two contradict each other.
    """
    # Topics with equal overrides share one object: there may be thousands of them.
    return _topic_config(tuple(sorted(overrides.items())))


@lru_cache(maxsize=1024)
def _topic_config(overrides: tuple[tuple[str, str], ...]) -> TopicConfig:
    texts = effective_settings(dict(overrides))
    values = {name: SETTINGS[name].parse(name, text) for name, text in texts.items()}
    durability = Durability(values.pop("durability"))
    min_insync_replicas = _number(values.pop("min_insync_replicas"))
    segment_bytes = _number(values["segment_bytes"])
    if _number(values["index_interval_bytes"]) > segment_bytes:
        raise InvalidConfigError(
            f"index_interval_bytes is {texts['index_interval_bytes']}, it must not be larger"
            f" than segment_bytes, {texts['segment_bytes']}"
        )
    limit = _limit(values["max_partition_bytes"])
    if limit is not None and limit < 2 * segment_bytes:
        raise InvalidConfigError(
            f"max_partition_bytes is {texts['max_partition_bytes']}, it must be at least twice"
            f" segment_bytes, {texts['segment_bytes']}: only whole segments are ever deleted to"
            " make room, and never the last one"
        )
    policy = values["cleanup_policy"]
    compaction = None if policy == _DELETE else _compaction(values, texts)
    is_kept = policy == _COMPACT
    segment_ms = _number(values["segment_ms"])
    if compaction is not None and compaction.max_compaction_lag_ms is not None:
        segment_ms = min(segment_ms, compaction.max_compaction_lag_ms)
    log = LogConfig(
        max_message_bytes=_number(values["max_message_bytes"]),
        index_interval_bytes=_number(values["index_interval_bytes"]),
        max_partition_bytes=limit,
        retention_bytes=None if is_kept else _limit(values["retention_bytes"]),
        retention_ms=None if is_kept else _limit(values["retention_ms"]),
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
    )
    return TopicConfig(
        log=log,
        durability=durability,
        min_insync_replicas=min_insync_replicas,
        compaction=compaction,
        is_kept=is_kept,
        is_encrypted=values["encryption"] == _ON,
        data_key_rotation_ms=_limit(values["data_key_rotation_ms"]),
    )


def _compaction(values: Mapping[str, Value], texts: Mapping[str, str]) -> CompactionConfig:
    ratio = values["min_cleanable_dirty_ratio"]
    assert isinstance(ratio, str)
    lag_ms = _number(values["min_compaction_lag_ms"])
    late_ms = _limit(values["max_compaction_lag_ms"])
    if late_ms is not None and late_ms < lag_ms:
        raise InvalidConfigError(
            f"max_compaction_lag_ms is {texts['max_compaction_lag_ms']}, it must not be below"
            f" min_compaction_lag_ms, {texts['min_compaction_lag_ms']}"
        )
    return CompactionConfig(
        min_compaction_lag_ms=lag_ms,
        max_compaction_lag_ms=late_ms,
        min_cleanable_dirty_ratio=float(ratio),
        delete_retention_ms=_number(values["delete_retention_ms"]),
    )


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _limit(value: Value) -> int | None:
    return None if value is None else _number(value)
