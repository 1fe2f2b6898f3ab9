"""The dynamic config of the cluster, and its effect on the replicas of a topic.

Pure: no clock, no I/O.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.topic_config import (
    REPLICATION_FACTOR_MAX,
    SETTINGS,
)
from tidelog.wire.config.settings import (
    Setting,
    parse_bounded_duration,
    parse_bounded_size,
    parse_bytes_or_unlimited,
    parse_count_up_to,
)
from tidelog.wire.config.unknown_names import nearest_name, unknown_setting
from tidelog.wire.errors import InvalidConfigError

REPLICATION_FACTOR_DEFAULT = 3
"""Auto value in clusters of at least this many brokers."""
RECOVERY_ELECTION_WAIT_MS = 30_000
REASSIGNMENT_BYTES_PER_SECOND_MIN = 1000
"""With a lower limit, reassignments would never complete."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The dynamic config; `None` is the default for the number of brokers and replicas.

    For settings that brokers have as well, `None` leaves each broker its start value.
    """

    default_replication_factor: int | None = None
    """For topics without a number of replicas of their own."""
    min_insync_replicas: int | None = None
    """For topics without this setting."""
    recovery_election_wait_ms: int | None = None
    """Time for which an election waits for replicas that are not back."""
    reassignment_max_bytes_per_second: int | None = None
    """Limit for each broker's bytes to replicas that are being added; `None` for no limit."""
    min_free_disk_bytes: int | None = None
    log_flush_interval_ms: int | None = None
    maintenance_interval_ms: int | None = None
    log_retention_disk_bytes: int | None = None
    scrub_max_bytes_per_second: int | None = None
    by_node: Mapping[int, Mapping[str, int]] = field(default_factory=dict[int, dict[str, int]])
    """Settings of single brokers, which override those of the cluster."""


_INHERIT: Final = "inherit"
"""The word for the value that each broker was started with."""
_HOUR_MS: Final = 3_600_000

CLUSTER_SETTINGS: Final = {
    setting.name: setting
    for setting in (
        Setting(
            "default_replication_factor",
            parse_count_up_to(REPLICATION_FACTOR_MAX),
            "auto",
            f"1 to {REPLICATION_FACTOR_MAX}",
            "Replicas of new topics without a number of their own (auto: 3, or one for each"
            " broker if there are fewer).",
        ),
        Setting(
            "log_flush_interval_ms",
            parse_bounded_duration(low=10, high=24 * _HOUR_MS),
            _INHERIT,
            "10ms to 24h",
            "How often topics with `durability = replicated` are synced (inherit: the value that"
            " each broker was started with).",
        ),
        Setting(
            "log_retention_disk_bytes",
            parse_bounded_size(low=0, high=1 << 50),
            _INHERIT,
            "a size",
            "Bytes of all topics on a broker before their oldest segments are deleted; 0 is"
            " no limit (inherit: the value that each broker was started with).",
        ),
        Setting(
            "maintenance_interval_ms",
            parse_bounded_duration(low=10, high=_HOUR_MS),
            _INHERIT,
            "10ms to 1h",
            "How often segments are rolled and deleted (inherit: the value that each broker was"
            " started with).",
        ),
        Setting(
            "min_free_disk_bytes",
            parse_bounded_size(low=0, high=1 << 50),
            _INHERIT,
            "a size",
            "Free space that every broker leaves on its disk (inherit: its own value).",
        ),
        Setting(
            "min_insync_replicas",
            parse_count_up_to(REPLICATION_FACTOR_MAX),
            "auto",
            f"1 to {REPLICATION_FACTOR_MAX}",
            "Replicas that must have a record before it is committed, for topics without this"
            " setting (auto: 2 of three or more replicas, else 1).",
        ),
        Setting(
            "reassignment_max_bytes_per_second",
            parse_bytes_or_unlimited(low=REASSIGNMENT_BYTES_PER_SECOND_MIN),
            "unlimited",
            "1kB or more, unlimited",
            "Bytes a second that each broker sends to replicas that are being added, all together;"
            " those in sync are never held up.",
        ),
        Setting(
            "recovery_election_wait_ms",
            parse_bounded_duration(low=0, high=24 * _HOUR_MS),
            "30s",
            "0 to 24h",
            "How long a partition without a leader waits for eligible replicas that are not back,"
            " after all its in-sync replicas ended uncleanly. Then it elects the replica that has"
            " most of those that are back; it may lack committed records.",
        ),
        Setting(
            "scrub_max_bytes_per_second",
            parse_bounded_size(low=1000, high=1 << 40),
            _INHERIT,
            "1kB or more",
            "Bytes a second at which each broker scrubs its disk; where it was started with 0, it"
            " stays off (inherit: the value that each broker was started with).",
        ),
    )
}
"""Every setting of the cluster, by name, sorted."""
BROKER_SETTINGS: Final = tuple(
    name for name, setting in CLUSTER_SETTINGS.items() if setting.default == _INHERIT
)
"""The settings that brokers have as well; they may be set for one broker: `NAME@NODE`."""
_AT: Final = "@"
_NODE_ID: Final = re.compile(r"[1-9][0-9]{0,9}")


def cluster_config(overrides: Mapping[str, str]) -> ClusterConfig:
    """Return the dynamic config in force under these overrides.

    Raises:
        InvalidConfigError: A value is invalid, or a setting does not exist.
    """
    values: dict[str, int | None] = {}
    by_node: dict[int, dict[str, int]] = {}
    for full_name, text in overrides.items():
        name, node_id = setting_and_node(full_name)
        value = CLUSTER_SETTINGS[name].parse(full_name, text)
        assert value is None or isinstance(value, int)
        if node_id is None:
            values[name] = value
        else:
            assert value is not None, "no broker setting accepts a word for no limit"
            by_node.setdefault(node_id, {})[name] = value
    return ClusterConfig(**values, by_node=by_node)


def setting_and_node(full_name: str) -> tuple[str, int | None]:
    """Return the name of a setting and its broker, of `NAME` or `NAME@NODE`.

    Raises:
        InvalidConfigError: There is no such setting, and the text lists all; or it cannot be set
        for one broker.
    """
    name, at, node = full_name.partition(_AT)
    if name not in CLUSTER_SETTINGS:
        raise InvalidConfigError(_unknown(name))
    if not at:
        return name, None
    if name not in BROKER_SETTINGS:
        known = ", ".join(BROKER_SETTINGS)
        raise InvalidConfigError(f"{name} cannot be set for one broker; those are {known}")
    if _NODE_ID.fullmatch(node) is None:
        raise InvalidConfigError(f"{full_name}: {node!r} is no node id; say {name}@1 for node 1")
    return name, int(node)


def _unknown(name: str) -> str:
    """Return the error text for a name that is no cluster setting."""
    if nearest_name(name, CLUSTER_SETTINGS) is None and (of_topic := nearest_name(name, SETTINGS)):
        return (
            f"there is no cluster setting {name!r}; it is a topic setting:"
            f" `tidelog topic alter TOPIC --set {of_topic}=...`"
        )
    return unknown_setting(name, CLUSTER_SETTINGS, of="cluster")


def without_node(overrides: Mapping[str, str], node_id: int) -> dict[str, str]:
    """Return overrides without those of one broker."""
    return {name: text for name, text in overrides.items() if setting_and_node(name)[1] != node_id}


def shown_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return every setting as text, set or default, and the settings of single brokers."""
    shown = {
        name: overrides.get(name, setting.default) for name, setting in CLUSTER_SETTINGS.items()
    }
    return {**shown, **{name: overrides[name] for name in sorted(overrides.keys() - shown.keys())}}


def default_replication_factor(config: ClusterConfig, broker_count: int) -> int:
    """Return the number of replicas of a topic that sets none."""
    if config.default_replication_factor is not None:
        return config.default_replication_factor
    return max(1, min(REPLICATION_FACTOR_DEFAULT, broker_count))


def recovery_election_wait_ms(config: ClusterConfig) -> int:
    """Return how long an election waits for replicas that are not back, in milliseconds."""
    wait_ms = config.recovery_election_wait_ms
    return RECOVERY_ELECTION_WAIT_MS if wait_ms is None else wait_ms


def min_insync_replicas(topic: Topic, config: ClusterConfig, replication_factor: int) -> int:
    """Return how many replicas of a partition must have a record before it is committed.

    Brokers and the cluster's state machine must use the same number: a replica is eligible to lead
    *because* nothing was committed without it.
    """
    if "min_insync_replicas" in topic.overrides:
        configured = topic.config.min_insync_replicas
    elif config.min_insync_replicas is not None:
        configured = config.min_insync_replicas
    else:
        configured = 2 if replication_factor >= REPLICATION_FACTOR_DEFAULT else 1
    return min(configured, replication_factor)
