"""What a broker says of its settings."""

from tidelog.broker.config.broker_config import FIELDS, BrokerConfig
from tidelog.broker.config.dynamic_config import DynamicConfig
from tidelog.broker.handlers.broker_config import BrokerConfigHandler
from tidelog.coordinator.metadata.cluster_config import BROKER_SETTINGS, cluster_config
from tidelog.wire.messages.cluster_admin import BrokerSetting, DescribeConfigRequest


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
