"""Handler of DESCRIBE_CONFIG: the settings of this broker, as they are now."""

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
    """Describes the settings in force on this broker, and the source of each."""

    def __init__(self, config: DynamicConfig) -> None:
        """Describe the settings of one broker."""
        self._config = config

    async def describe(self, request: DescribeConfigRequest) -> DescribeConfigReply:
        """Return every setting, in the order of the documentation."""
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
    """Return a value in the notation of the command line."""
    if isinstance(value, dict):
        defaults = cast("dict[str, str]", value)
        return ", ".join(f"{name}={item}" for name, item in defaults.items())
    return str(value)
