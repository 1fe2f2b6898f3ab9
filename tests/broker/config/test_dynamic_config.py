"""Tests of dynamic config: cluster settings hold at once, others from the start of a broker."""

import pytest

from tidelog.broker.config.broker_config import FIELDS, BrokerConfig
from tidelog.broker.config.dynamic_config import (
    DYNAMIC_SETTINGS,
    DynamicConfig,
    check_dynamic,
)
from tidelog.broker.handlers.broker_config import BrokerConfigHandler
from tidelog.coordinator.metadata.cluster_config import (
    BROKER_SETTINGS,
    CLUSTER_SETTINGS,
    ClusterConfig,
    cluster_config,
)
from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.messages.cluster_admin import BrokerSetting, DescribeConfigRequest

OWN = BrokerConfig(log_flush_interval_ms=1234, min_free_disk_bytes=5)


def test_cluster_settings_override_those_of_the_broker() -> None:
    said = [ClusterConfig(), ClusterConfig(log_flush_interval_ms=50), ClusterConfig()]
    live = DynamicConfig(OWN, lambda: said[0])

    found: list[tuple[int, int]] = []
    while said:
        now = live()
        found.append((now.log_flush_interval_ms, now.min_free_disk_bytes))
        said.pop(0)
        if said:
            assert live() is live(), "the config is not rebuilt without a change"

    assert found == [(1234, 5), (50, 5), (1234, 5)]


def test_scrubbing_that_was_off_at_the_start_stays_off() -> None:
    off = DynamicConfig(
        BrokerConfig(scrub_max_bytes_per_second=0),
        lambda: ClusterConfig(scrub_max_bytes_per_second=9),
    )

    assert off().scrub_max_bytes_per_second == 0


def test_a_broker_setting_overrides_one_for_all_brokers() -> None:
    sources = {**dict.fromkeys(FIELDS, "default"), "log_flush_interval_ms": "tidelog.toml"}
    said = cluster_config(
        {"scrub_max_bytes_per_second": "9000", "scrub_max_bytes_per_second@2": "5000"}
    )

    found = {
        node_id: DynamicConfig(
            BrokerConfig(node_id=node_id, log_flush_interval_ms=70), lambda: said, sources
        )
        for node_id in (1, 2)
    }

    assert {node_id: live().scrub_max_bytes_per_second for node_id, live in found.items()} == {
        1: 9000,
        2: 5000,
    }
    assert {
        node_id: live.sources()["scrub_max_bytes_per_second"] for node_id, live in found.items()
    } == {
        1: "cluster",
        2: "broker",
    }
    assert {live.sources()["log_flush_interval_ms"] for live in found.values()} == {"tidelog.toml"}
    assert {live.sources()["listen"] for live in found.values()} == {"default"}


def test_no_limit_for_one_broker_overrides_a_limit_for_all() -> None:
    said = cluster_config({"log_retention_disk_bytes": "10GiB", "log_retention_disk_bytes@1": "0"})
    live = DynamicConfig(BrokerConfig(log_retention_disk_bytes=1 << 30), lambda: said)

    assert live().log_retention_disk_bytes == 0
    assert live.sources()["log_retention_disk_bytes"] == "broker"


def test_scrubbing_that_was_off_at_the_start_stays_off_for_one_broker() -> None:
    said = cluster_config({"scrub_max_bytes_per_second@1": "5000"})
    off = DynamicConfig(BrokerConfig(scrub_max_bytes_per_second=0), lambda: said)

    assert off().scrub_max_bytes_per_second == 0
    assert off.sources()["scrub_max_bytes_per_second"] == "default"
    assert not off.is_dynamic("scrub_max_bytes_per_second")
    assert off.is_dynamic("log_flush_interval_ms")


@pytest.mark.parametrize("name", ["listen", "max_connections@1"])
def test_a_setting_that_needs_a_restart_is_refused_at_run_time(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"by a restart.*, scrub_max_bytes_per_second$"):
        check_dynamic(["log_flush_interval_ms", name])


def test_cluster_only_settings_are_dynamic() -> None:
    check_dynamic([*CLUSTER_SETTINGS, "colour"])  # Another check refuses unknown names.


@pytest.mark.parametrize("name", DYNAMIC_SETTINGS)
def test_the_cluster_refuses_values_that_a_broker_would_refuse(name: str) -> None:
    limits = FIELDS[name].metadata
    setting = CLUSTER_SETTINGS[name]

    for value in (limits["low"] - 1, limits["high"] + 1):
        with pytest.raises(InvalidConfigError):
            cluster_config({name: str(value)})
    assert setting.parse(name, str(limits["high"])) == limits["high"]
    assert setting.default == "inherit"
    assert getattr(cluster_config({}), name) is None


async def test_every_setting_is_listed_with_its_value_and_source() -> None:
    own = BrokerConfig(node_id=2, topic_defaults={"retention_ms": "1d", "durability": "fsync"})
    sources = {**dict.fromkeys(FIELDS, "default"), "topic_defaults": "tidelog.toml"}
    said = cluster_config({"log_flush_interval_ms": "2s"})
    handler = BrokerConfigHandler(DynamicConfig(own, lambda: said, sources))

    reply = await handler.describe(DescribeConfigRequest())

    assert reply.node_id == 2
    assert [each.name for each in reply.settings] == list(FIELDS)
    by_name = {each.name: each for each in reply.settings}
    defaults = "retention_ms=1d, durability=fsync"
    assert by_name["topic_defaults"] == BrokerSetting(
        "topic_defaults", defaults, "tidelog.toml", False
    )
    assert by_name["log_flush_interval_ms"] == BrokerSetting(
        "log_flush_interval_ms", "2000", "cluster", True
    )
    live = {each.name for each in reply.settings if each.is_dynamic}
    assert live == set(BROKER_SETTINGS)
