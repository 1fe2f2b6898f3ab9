"""The settings of a broker as they are now, and where each of them comes from.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, final

from broker.config import FIELDS, BrokerConfig
from coordinator.cluster.settings import BROKER_SETTINGS, ClusterConfig

CHANGED_AT_RUN_TIME: Final = BROKER_SETTINGS
"""Settings of brokers that the cluster may have as well; all others take a restart."""
OF_CLUSTER: Final = "cluster"
"""The source of what is set for all brokers."""
OF_BROKER: Final = "broker"
"""The source of what is set for this one."""


@final
class LiveConfig:
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
            of_all = {name: getattr(cluster, name) for name in CHANGED_AT_RUN_TIME}
            of_all = {name: value for name, value in of_all.items() if value is not None}
            of_this = dict(cluster.by_node.get(self.own.node_id, {}))
            if not self.own.scrub_bytes_per_s:
                # It is off; only a start can turn it on.
                of_all.pop("scrub_bytes_per_s", None)
                of_this.pop("scrub_bytes_per_s", None)
            self._now = replace(self.own, **{**of_all, **of_this})
            self._sources = {
                **self._own_sources,
                **dict.fromkeys(of_all, OF_CLUSTER),
                **dict.fromkeys(of_this, OF_BROKER),
            }
        return self._now

    def sources(self) -> Mapping[str, str]:
        """Return where each setting that is in force now comes from."""
        self()
        return self._sources
