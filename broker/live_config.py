"""The settings of a broker as they are now.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, final

from broker.config import BrokerConfig
from coordinator.cluster.settings import ClusterConfig

CHANGED_AT_RUN_TIME: Final = (
    "disk_reserve_bytes",
    "flush_interval_ms",
    "maintenance_interval_ms",
    "retention_disk_bytes",
    "scrub_bytes_per_s",
)
"""Settings of brokers that the cluster may have as well; all others take a restart."""


@final
class LiveConfig:
    """What a broker was started with, and above that what the cluster says."""

    def __init__(self, own: BrokerConfig, cluster: Callable[[], ClusterConfig]) -> None:
        """Be started with `own`; `cluster` returns what is set for all brokers now."""
        self._own = own
        self._cluster = cluster
        self._seen: ClusterConfig | None = None
        self._now = own

    def __call__(self) -> BrokerConfig:
        """Return what is in force at this moment; ask again each time."""
        cluster = self._cluster()
        if cluster is not self._seen:
            self._seen = cluster
            said = {name: getattr(cluster, name) for name in CHANGED_AT_RUN_TIME}
            if not self._own.scrub_bytes_per_s:
                said["scrub_bytes_per_s"] = None  # It is off; only a start can turn it on.
            self._now = replace(
                self._own, **{name: value for name, value in said.items() if value is not None}
            )
        return self._now
