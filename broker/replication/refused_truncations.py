"""Refused truncations of the replicas that follow one leader, and their reports to the controller.

Shell: owns the task that reports, with one command at a time for all of them. The follower goes on
to ask its leader, so a report that was lost, or that the controller could not act on yet, is sent
again.
"""

from typing import Final, final

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext
from tidelog.coordinator.metadata.commands import RefusedTruncation, RefuseTruncation
from tidelog.coordinator.metadata.leaderless import acceptance_command
from tidelog.coordinator.metadata.records import RefusingReplica
from tidelog.isr.divergence import LogShape
from tidelog.isr.fetch_session import Key
from tidelog.isr.follower import Refuse

_AT_ONCE_MAX: Final = 1000


@final
class RefusedTruncations:
    """The refused truncations of one fetcher.

    Invariant: while a refused truncation waits to be reported, a task runs that reports it.
    """

    def __init__(self, context: ReplicationContext) -> None:
        """Start without any."""
        self._context = context
        self._due: dict[Key, RefusedTruncation] = {}
        self._told: dict[Key, int] = {}
        """Leader epoch of the last warning, by partition."""
        self._is_reporting = False

    def add(self, partition: Partition, step: Refuse, *, shape: LogShape) -> None:
        """Report a refused truncation to the controller while it does not know of it.

        The log gets one warning in a leader epoch.
        """
        follower = partition.follower
        assert follower is not None, "only a follower refuses"
        refused = RefusedTruncation(
            *partition.key,
            follower.leader_epoch,
            step.offset,
            follower.high_watermark,
            shape.log_end_offset,
            shape.leader_epochs.latest,
            partition.is_whole,
        )
        if self._told.get(partition.key) != follower.leader_epoch:
            self._told[partition.key] = follower.leader_epoch
            count = follower.committed_count(shape, step.offset)
            self._tell(refused, follower.leader_id, count)
        if self._is_recorded(refused):
            return
        self._due[partition.key] = refused
        if not self._is_reporting:
            self._is_reporting = True
            self._context.nursery.start_soon(self._report)

    def _tell(self, refused: RefusedTruncation, leader_id: int | None, count: int) -> None:
        state = self._context.state
        topic = state.catalog.topic_by_id(refused.topic_id)
        if topic is None:
            return  # It was deleted meanwhile.
        self._context.env.probe(
            "truncation_refused",
            severity="warning",
            topic=topic.name,
            partition=refused.partition,
            leader_id=leader_id,
            leader_epoch=refused.leader_epoch,
            offset=refused.offset,
            high_watermark=refused.high_watermark,
            record_count=count,
            advice=(
                "the leader lacks committed records that this replica has; if no other replica"
                " takes over, restart brokers that are down; to accept the loss:"
                f" {acceptance_command(state, topic, refused.partition)}"
            ),
        )

    def _is_recorded(self, refused: RefusedTruncation) -> bool:
        """Return whether the cluster has recorded a refusal, and has no other use for it."""
        known = self._context.state.partition(refused.topic_id, refused.partition)
        if known is None or known.leader_epoch > refused.leader_epoch:
            return True
        node_id = self._context.node_id
        mine = RefusingReplica(node_id, refused.offset, refused.high_watermark)
        return mine in known.refusing_replicas and node_id not in known.in_sync_or_eligible

    async def _report(self) -> None:
        """Report all that is due; after a failure the follower refuses again."""
        try:
            while self._due:
                due = list(self._due.values())[:_AT_ONCE_MAX]
                for refused in due:
                    del self._due[refused.topic_id, refused.partition]
                await self._context.report(RefuseTruncation, due, failure="refusal_not_reported")
        finally:
            self._is_reporting = False
