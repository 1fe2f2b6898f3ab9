"""Dynamic config of a broker: its current settings, and the source of each.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, final

from tidelog.broker.config.broker_config import FIELDS, BrokerConfig
from tidelog.coordinator.metadata.cluster_config import (
    BROKER_SETTINGS,
    CLUSTER_SETTINGS,
    ClusterConfig,
)
from tidelog.wire.errors import InvalidConfigError

DYNAMIC_SETTINGS: Final = BROKER_SETTINGS
"""Settings that can change at run time; all others need a restart."""
OF_CLUSTER: Final = "cluster"
"""Source of a value that is set for all brokers."""
OF_BROKER: Final = "broker"
"""Source of a value that is set for this broker."""


def check_dynamic(names: Iterable[str]) -> None:
    """Raise if a name, or `NAME@NODE`, is a setting that needs a restart of its broker.

    Raises:
        InvalidConfigError: The message names that setting, and those that can change at run time.
    """
    for full_name in names:
        name = full_name.partition("@")[0]
        if name in FIELDS and name not in CLUSTER_SETTINGS:
            raise InvalidConfigError(
                f"{name} can only be changed by a restart of the broker; at run time these can be"
                f" changed: {', '.join(DYNAMIC_SETTINGS)}"
            )


@final
class DynamicConfig:
    """The settings of a broker's start, overridden by those of the cluster and of this broker."""

    def __init__(
        self,
        own: BrokerConfig,
        cluster: Callable[[], ClusterConfig],
        sources: Mapping[str, str] | None = None,
    ) -> None:
        """Override `own` with the values that `cluster` returns from the metadata.

        `sources` gives the source of each setting in `own`, as `ResolvedConfig.sources`.
        """
        self.own = own
        self._cluster = cluster
        self._own_sources = dict.fromkeys(FIELDS, "default") if sources is None else sources
        self._seen: ClusterConfig | None = None
        self._now = own
        self._sources = self._own_sources

    def __call__(self) -> BrokerConfig:
        """Return the settings in force at this moment; call again each time."""
        cluster = self._cluster()
        if cluster is not self._seen:
            self._seen = cluster
            of_all = {name: getattr(cluster, name) for name in DYNAMIC_SETTINGS}
            of_all = {name: value for name, value in of_all.items() if value is not None}
            of_this = dict(cluster.by_node.get(self.own.node_id, {}))
            for name in DYNAMIC_SETTINGS:
                if not self.is_dynamic(name):
                    of_all.pop(name, None)
                    of_this.pop(name, None)
            self._now = replace(self.own, **{**of_all, **of_this})
            self._sources = {
                **self._own_sources,
                **dict.fromkeys(of_all, OF_CLUSTER),
                **dict.fromkeys(of_this, OF_BROKER),
            }
        return self._now

    def is_dynamic(self, name: str) -> bool:
        """Return whether the cluster may override a setting of this broker.

        A broker that was started with scrubbing off needs a restart to turn it on.
        """
        is_off = name == "scrub_max_bytes_per_second" and not self.own.scrub_max_bytes_per_second
        return name in DYNAMIC_SETTINGS and not is_off

    def sources(self) -> Mapping[str, str]:
        """Return the source of each setting that is in force now."""
        self()
        return self._sources
