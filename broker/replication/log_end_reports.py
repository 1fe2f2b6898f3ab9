"""Reports of the log ends of unverified replicas, from which the controller elects a leader.

Shell: owns the task that submits them. It acts on the present state, not on events: a replica is
reported while its partition has no leader and the cluster does not know the end of its log.
"""

from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext
from tidelog.coordinator.metadata.commands import ReportedLog, ReportLogEnds
from tidelog.coordinator.metadata.records import LogEnd
from tidelog.coordinator.metadata.recovery_elections import is_log_end_awaited
from tidelog.logstore.log import LogStatus

_RETRY_S: Final = 0.5
_AT_ONCE_MAX: Final = 1000
_UNKNOWN: Final = -1


@final
class LogEndReports:
    """The unverified replicas of this broker whose log ends are to be reported."""

    def __init__(self, context: ReplicationContext) -> None:
        """Start without replicas; `run` must run in a task."""
        self._context = context
        self._due: dict[Partition, None] = {}
        self._has_due = trio.Event()

    def look_at(self, partition: Partition) -> None:
        """Report a replica if its partition has no leader and the cluster needs its log end."""
        if self._report_of(partition) is not None:
            self._due[partition] = None
            self._has_due.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._has_due.wait()
            reports = self._reports()[:_AT_ONCE_MAX]
            if not reports:
                self._has_due = trio.Event()
                continue
            await self._context.report(ReportLogEnds, reports, failure="log_ends_not_reported")
            if reports[0] in self._reports():
                await trio.sleep(_RETRY_S)  # The cluster has not taken it, or not yet.

    def _reports(self) -> list[ReportedLog]:
        """Return the reports that the cluster needs, and forget other replicas."""
        reports = {each: self._report_of(each) for each in self._due}
        self._due = {each: None for each, report in reports.items() if report is not None}
        return [report for report in reports.values() if report is not None]

    def _report_of(self, partition: Partition) -> ReportedLog | None:
        """Return the report of a replica, `None` if the cluster does not need it."""
        context, log, shape = self._context, partition.log, partition.shape
        known = context.state.partition(*partition.key)
        if (
            known is None
            or not is_log_end_awaited(known, context.node_id)
            or partition.is_held  # It is looked at again when it is released.
            or log.status is LogStatus.OFFLINE
            or not context.is_open(partition)
        ):
            return None
        latest = shape.leader_epochs.latest  # An empty log keeps that of the last deleted record.
        last_epoch = _UNKNOWN if latest is None else latest
        end = LogEnd(last_epoch, shape.log_end_offset, is_whole=not shape.damage)
        return ReportedLog(*partition.key, known.leader_epoch, end)
