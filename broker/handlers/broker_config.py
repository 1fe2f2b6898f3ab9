"""The settings of this broker, as they are now."""

from typing import cast, final

from tidelog.broker.config.broker_config import FIELDS
from tidelog.broker.config.dynamic_config import DynamicConfig
from tidelog.wire.messages.cluster_admin import (
    BrokerSetting,
    DescribeConfigReply,
    DescribeConfigRequest,
)


@final
class BrokerConfigHandler:
    """Says what is in force here, and who said so."""

    def __init__(self, config: DynamicConfig) -> None:
        """Speak of one broker."""
        self._config = config

    async def describe(self, request: DescribeConfigRequest) -> DescribeConfigReply:
        """Say every setting, in the order in which they are documented."""
        del request
        config, sources = self._config(), self._config.sources()
        settings = [
            BrokerSetting(
                name,
                _text(getattr(config, name)),
                sources[name],
                self._config.is_dynamic(name),
            )
            for name in FIELDS
        ]
        return DescribeConfigReply(config.node_id, settings)


def _text(value: object) -> str:
    """Return a value as people write it."""
    if isinstance(value, dict):
        defaults = cast("dict[str, str]", value)
        return ", ".join(f"{name}={item}" for name, item in defaults.items())
    return str(value)
