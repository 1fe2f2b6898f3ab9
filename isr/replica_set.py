"""Replica sets of partitions and status of brokers, the metadata that a leader uses.

Pure: declarations. All of it comes from the cluster's committed metadata.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

REPLICA_LAG_MAX_MS = 10_000
"""Default of `replica_lag_time_max_ms`: time without catching up before a replica leaves the ISR.
Kafka waits for 30 s."""


class ReplicaSet(msgspec.Struct, frozen=True):
    """The committed replicas of one partition."""

    assigned_replicas: tuple[int, ...]
    """Node ids."""
    in_sync_replicas: tuple[int, ...]
    """Node ids of the ISR."""
    partition_epoch: int = 0
    """Grows with every change of the two."""
    min_insync_replicas: int = 1
    """Minimum size of the ISR for a commit."""

    @property
    def has_enough(self) -> bool:
        """Whether the ISR is large enough for a commit."""
        return len(self.in_sync_replicas) >= self.min_insync_replicas


class BrokerStatus(NamedTuple):
    """Status of one registered broker."""

    broker_epoch: int
    may_join: bool
    """Whether it may join an ISR: it is neither fenced nor about to stop (KIP-841)."""


class BrokerView(msgspec.Struct, frozen=True):
    """The view of one broker on the cluster, which all its leaders share."""

    node_id: int
    """Id of the broker itself."""
    status_of: Callable[[int], BrokerStatus | None]
    """Returns the committed status of a broker; `None` if it is not registered."""
    replica_lag_time_max_ms: int = REPLICA_LAG_MAX_MS


ALONE = ReplicaSet((0,), (0,))
"""A leader without followers."""
NO_BROKERS = BrokerView(0, lambda _: None)
"""The view of a broker without other brokers."""
