"""The settings of a broker as they are now, and where each of them comes from.

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
"""Settings of brokers that the cluster may have as well; all others take a restart."""
OF_CLUSTER: Final = "cluster"
"""The source of what is set for all brokers."""
OF_BROKER: Final = "broker"
"""The source of what is set for this one."""


def check_dynamic(names: Iterable[str]) -> None:
    """Check that no name, or `NAME@NODE`, is of a setting that takes a restart of its broker.

    Raises:
        InvalidConfigError: Naming such a setting, and those that are changed at run time.
    """
    for full_name in names:
        name = full_name.partition("@")[0]
        if name in FIELDS and name not in CLUSTER_SETTINGS:
            raise InvalidConfigError(
                f"{name} takes a restart of the broker; at run time these are changed:"
                f" {', '.join(DYNAMIC_SETTINGS)}"
            )


@final
class DynamicConfig:
    """What a broker was started with, and what was set for all brokers and for this one since."""

    def __init__(
        self,
        own: BrokerConfig,
        cluster: Callable[[], ClusterConfig],
        sources: Mapping[str, str] | None = None,
    ) -> None:
        """Be started with `own`; `cluster` returns what is set in the metadata now.

        `sources` says who gave what it was started with, as `ResolvedConfig.sources`.
        """
        self.own = own
        self._cluster = cluster
        self._own_sources = dict.fromkeys(FIELDS, "default") if sources is None else sources
        self._seen: ClusterConfig | None = None
        self._now = own
        self._sources = self._own_sources

    def __call__(self) -> BrokerConfig:
        """Return what is in force at this moment; ask again each time."""
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
        """Return whether this broker takes a setting from the cluster.

        Where scrubbing is off, only a start turns it on.
        """
        is_off = name == "scrub_max_bytes_per_second" and not self.own.scrub_max_bytes_per_second
        return name in DYNAMIC_SETTINGS and not is_off

    def sources(self) -> Mapping[str, str]:
        """Return where each setting that is in force now comes from."""
        self()
        return self._sources
