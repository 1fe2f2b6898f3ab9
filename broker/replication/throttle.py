"""Catch-up throttle of replicas that are being added, so that moves leave bandwidth to others.

Shell around `isr.catch_up_budget`. Only replicas that are being added are throttled. An in-sync
replica would leave the ISR, and a previous replica is needed back. The high watermark waits for a
replica that is about to join.
"""

from typing import Final, final

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext, now_ms
from tidelog.isr.catch_up_budget import CatchUpBudget

_WAIT_MS_MAX: Final = 1000
"""Maximum wait in milliseconds: the rate may have changed by then."""


@final
class CatchUpThrottle:
    """Bytes that this broker may send to replicas that are being added, all of them together."""

    def __init__(self, context: ReplicationContext) -> None:
        """Follow the cluster setting `reassignment_max_bytes_per_second` as it changes."""
        self._context = context
        self._budget = CatchUpBudget()

    def allowance(self, partition: Partition, node_id: int) -> int | None:
        """Return how many bytes a follower may be sent now, `None` for any number."""
        rate = self._bytes_per_s
        if rate is None or not self._is_throttled(partition, node_id):
            return None
        return self._budget.available(rate, now_ms=now_ms())

    def sent(self, count_bytes: int) -> None:
        """Count bytes sent to a follower whose allowance was not `None`."""
        self._budget.spend(count_bytes)

    def wait_ms(self) -> int:
        """Return the time until throttled followers may be sent more."""
        return min(self._budget.wait_ms(self._bytes_per_s, now_ms=now_ms()), _WAIT_MS_MAX)

    @property
    def _bytes_per_s(self) -> int | None:
        return self._context.state.config.reassignment_max_bytes_per_second

    def _is_throttled(self, partition: Partition, node_id: int) -> bool:
        known = self._context.state.partition(*partition.key)
        return (
            known is not None
            and node_id in known.adding_replicas
            and node_id not in known.in_sync_replicas
            and partition.leader is not None
            and not partition.leader.is_hw_limiting(node_id)
        )
