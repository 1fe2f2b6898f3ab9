"""What a leader is told of the replicas of its partition, and of the brokers that have them.

Pure: declarations. The cluster's metadata decides all of it; the leader acts on what is committed.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

REPLICA_LAG_MAX_MS = 10_000
"""Who was not caught up for so long is not in sync. Kafka waits for 30 s."""


class ReplicaSet(msgspec.Struct, frozen=True):
    """The replicas of one partition, as the cluster has agreed on them."""

    assigned_replicas: tuple[int, ...]
    """Node ids."""
    in_sync_replicas: tuple[int, ...]
    """Those without which nothing is committed."""
    partition_epoch: int = 0
    """Rises with every change of the two."""
    min_insync_replicas: int = 1
    """Nothing is committed while fewer are in sync."""

    @property
    def has_enough(self) -> bool:
        """Whether something can be committed."""
        return len(self.in_sync_replicas) >= self.min_insync_replicas


class BrokerStatus(NamedTuple):
    """What is known of one registered broker."""

    broker_epoch: int
    may_join: bool
    """Whether it may come to be in sync: it is neither fenced nor about to stop (KIP-841)."""


class BrokerView(msgspec.Struct, frozen=True):
    """What all leaders of one broker go by."""

    node_id: int
    """Of the broker itself."""
    status_of: Callable[[int], BrokerStatus | None]
    """Returns what is committed of a broker now; `None` for one that is not registered."""
    replica_lag_time_max_ms: int = REPLICA_LAG_MAX_MS


ALONE = ReplicaSet((0,), (0,))
"""A leader without followers."""
NOBODY = BrokerView(0, lambda _: None)
"""The view of a broker that is alone; nobody could join."""
