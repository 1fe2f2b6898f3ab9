"""Reports of committed records that replicas of this broker had to remove.

Shell: owns the task that submits them until the cluster has them. Each becomes an event of the
cluster, see `coordinator.metadata.cluster_events`. A report that is not committed when the broker
stops is in its log only.
"""

from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext
from tidelog.coordinator.metadata.cluster_events import ClusterEventKind
from tidelog.coordinator.metadata.commands import ReportedLoss, ReportLoss

_RETRY_S: Final = 0.5
_AT_ONCE_MAX: Final = 1000


@final
class LossReports:
    """The losses that the cluster does not know yet."""

    def __init__(self, context: ReplicationContext) -> None:
        """Start without losses; `run` must run in a task."""
        self._context = context
        self._due: list[ReportedLoss] = []
        self._has_due = trio.Event()

    def truncated(
        self, partition: Partition, first_offset: int, end_offset: int, *, leader_id: int
    ) -> None:
        """Report that a replica has removed committed records, which its leader lacks.

        Args:
            partition: The replica.
            first_offset: The new end of the log.
            end_offset: The high watermark that the replica knew (exclusive end).
            leader_id: The leader.
        """
        known = self._context.state.partition(*partition.key)
        leader_epoch = 0 if known is None else known.leader_epoch
        self.report(
            ReportedLoss(
                *partition.key,
                leader_epoch,
                first_offset,
                end_offset,
                f"broker {self._context.node_id} removed {end_offset - first_offset:,} committed"
                f" records, which broker {leader_id}, the leader, lacks",
                ClusterEventKind.RECORDS_LOST,
            )
        )

    def report(self, loss: ReportedLoss) -> None:
        """Report a loss of any kind."""
        self._due.append(loss)
        self._has_due.set()

    async def run(self) -> None:
        """Submit reports until cancelled."""
        while True:
            await self._has_due.wait()
            some = self._due[:_AT_ONCE_MAX]
            if not some:
                self._has_due = trio.Event()
            elif await self._context.report(ReportLoss, some, failure="loss_not_reported"):
                del self._due[: len(some)]
            else:
                await trio.sleep(_RETRY_S)
