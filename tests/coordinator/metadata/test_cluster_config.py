"""The dynamic config of the cluster, and the number of replicas that must have a record."""

import pytest

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_config import (
    CLUSTER_SETTINGS,
    ClusterConfig,
    cluster_config,
    default_replication_factor,
    min_insync_replicas,
    recovery_election_wait_ms,
    setting_and_node,
    shown_settings,
    without_node,
)
from tidelog.coordinator.metadata.topic_config import topic_config
from tidelog.wire.config.durations import parse_duration_ms
from tidelog.wire.config.settings import parse_size_bytes
from tidelog.wire.errors import InvalidConfigError


def topic(**overrides: str) -> Topic:
    return Topic("orders", b"0123456789abcdef", 1, overrides, topic_config(overrides))


def test_settings_that_are_not_set_are_none() -> None:
    assert cluster_config({}) == ClusterConfig(None, None)
    assert cluster_config({"default_replication_factor": "5"}) == ClusterConfig(
        default_replication_factor=5
    )


def test_every_setting_is_explained_and_listed_in_order() -> None:
    assert list(CLUSTER_SETTINGS) == sorted(CLUSTER_SETTINGS)
    assert all(setting.about.endswith(".") for setting in CLUSTER_SETTINGS.values())


@pytest.mark.parametrize(("text", "reason"), [("0", "at least 1"), ("16", "at most 15")])
def test_a_value_out_of_range_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        cluster_config({"min_insync_replicas": text})


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("log_flush_interval_ms", "10ms", "24h"),
        ("log_retention_disk_bytes", "0", "1024TiB"),
        ("maintenance_interval_ms", "10ms", "1h"),
    ],
)
def test_settings_of_brokers_reach_from_the_lowest_to_the_highest_value(
    name: str, low: str, high: str
) -> None:
    cluster_config({name: low})
    cluster_config({name: high})

    with pytest.raises(InvalidConfigError, match="at most"):
        cluster_config({name: "2" + high})


@pytest.mark.parametrize(
    ("name", "low", "is_size"),
    [
        ("log_flush_interval_ms", 10, False),
        ("maintenance_interval_ms", 10, False),
        ("default_replication_factor", 1, True),
        ("min_insync_replicas", 1, True),
        ("reassignment_max_bytes_per_second", 1000, True),
        ("scrub_max_bytes_per_second", 1000, True),
    ],
)
def test_a_setting_of_the_cluster_has_its_documented_minimum(
    name: str, low: int, *, is_size: bool
) -> None:
    setting = CLUSTER_SETTINGS[name]
    documented = setting.allowed.removesuffix(", unlimited").removesuffix(" or more")
    parse = parse_size_bytes if is_size else parse_duration_ms

    assert parse(name, documented.partition(" to ")[0]) == low
    assert setting.parse(name, str(low)) == low
    with pytest.raises(InvalidConfigError, match=f"at least {low}"):
        setting.parse(name, str(low - 1))


@pytest.mark.parametrize(
    "name",
    [name for name, setting in CLUSTER_SETTINGS.items() if " to " in setting.allowed],
)
def test_a_setting_of_the_cluster_has_its_documented_maximum(name: str) -> None:
    setting = CLUSTER_SETTINGS[name]
    parse = parse_duration_ms if name.endswith("_ms") else parse_size_bytes
    high = parse(name, setting.allowed.partition(" to ")[2])

    assert setting.parse(name, str(high)) == high
    with pytest.raises(InvalidConfigError, match=f"at most {high}"):
        setting.parse(name, str(high + 1))


@pytest.mark.parametrize(
    ("name", "high"),
    [
        ("log_retention_disk_bytes", 1 << 50),
        ("min_free_disk_bytes", 1 << 50),
        ("scrub_max_bytes_per_second", 1 << 40),
    ],
)
def test_a_size_that_no_disk_has_is_a_typing_error(name: str, high: int) -> None:
    cluster_config({name: str(high)})
    with pytest.raises(InvalidConfigError, match="at most"):
        cluster_config({name: str(high + 1)})


def test_a_recovery_election_waits_30_s_by_default_and_may_not_wait_at_all() -> None:
    default = CLUSTER_SETTINGS["recovery_election_wait_ms"].default

    assert recovery_election_wait_ms(cluster_config({})) == parse_duration_ms("wait", default)
    assert recovery_election_wait_ms(cluster_config({"recovery_election_wait_ms": "0"})) == 0
    assert recovery_election_wait_ms(cluster_config({"recovery_election_wait_ms": "1s"})) == 1000


def test_the_highest_node_id_of_a_setting_has_ten_digits() -> None:
    name = "scrub_max_bytes_per_second"

    assert setting_and_node(f"{name}@{2**31 - 1}") == (name, 2**31 - 1)
    assert setting_and_node(f"{name}@9") == (name, 9)
    with pytest.raises(InvalidConfigError, match="is no node id"):
        setting_and_node(f"{name}@12345678901")


def test_an_unknown_cluster_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidConfigError, match="min_insync_replicas, reass"):
        setting_and_node("colour")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("scrub_bytes_per_second", "did you mean scrub_max_bytes_per_second?"),
        ("scrub-bytes-per-second@1", "did you mean scrub_max_bytes_per_second?"),
        (
            "retention_ms",
            "it is a topic setting: `tidelog topic alter TOPIC --set retention_ms=...`",
        ),
    ],
)
def test_a_mistyped_setting_is_refused_with_a_suggestion(name: str, instead: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        setting_and_node(name)

    assert str(refused.value).endswith(f"; {instead}")


def test_a_setting_of_brokers_may_be_set_for_one() -> None:
    overrides = {
        "scrub_max_bytes_per_second": "1MB",
        "scrub_max_bytes_per_second@3": "2kB",
        "log_flush_interval_ms@3": "1s",
    }

    config = cluster_config(overrides)

    assert config.scrub_max_bytes_per_second == 1_000_000
    assert config.by_node == {
        3: {"scrub_max_bytes_per_second": 2000, "log_flush_interval_ms": 1000}
    }
    assert list(shown_settings(overrides))[-2:] == [
        "log_flush_interval_ms@3",
        "scrub_max_bytes_per_second@3",
    ]
    assert without_node(overrides, 3) == {"scrub_max_bytes_per_second": "1MB"}
    assert without_node(overrides, 1) == overrides


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("default_replication_factor@1", "cannot be set for one broker"),
        ("scrub_max_bytes_per_second@", "'' is no node id"),
        ("scrub_max_bytes_per_second@01", "'01' is no node id"),
        ("scrub_max_bytes_per_second@-1", "'-1' is no node id"),
        ("scrub_max_bytes_per_second@1@2", "'1@2' is no node id"),
        ("scrub_max_bytes_per_second@0", "'0' is no node id"),
        ("scrub_max_bytes_per_second@" + 5000 * "1", "1' is no node id"),
    ],
)
def test_an_invalid_setting_of_one_broker_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        cluster_config({name: "2000"})


@pytest.mark.parametrize(("brokers", "replicas"), [(0, 1), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_topic_gets_three_replicas_or_as_many_as_there_are_brokers(
    brokers: int, replicas: int
) -> None:
    assert default_replication_factor(ClusterConfig(), brokers) == replicas
    assert default_replication_factor(ClusterConfig(default_replication_factor=2), brokers) == 2


@pytest.mark.parametrize(
    ("overrides", "config", "replication_factor", "minimum"),
    [
        ({}, ClusterConfig(), 1, 1),
        ({}, ClusterConfig(), 2, 1),
        ({}, ClusterConfig(), 3, 2),
        ({}, ClusterConfig(), 5, 2),
        ({}, ClusterConfig(min_insync_replicas=3), 5, 3),
        ({}, ClusterConfig(min_insync_replicas=3), 2, 2),
        ({"min_insync_replicas": "1"}, ClusterConfig(min_insync_replicas=3), 3, 1),
        ({"min_insync_replicas": "4"}, ClusterConfig(), 3, 3),
    ],
)
def test_min_insync_replicas_come_from_the_topic_the_cluster_or_the_default(
    overrides: dict[str, str], config: ClusterConfig, replication_factor: int, *, minimum: int
) -> None:
    assert min_insync_replicas(topic(**overrides), config, replication_factor) == minimum
