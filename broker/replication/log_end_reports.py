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
from tidelog.logstore.log import LogStatus
from tidelog.wire.errors import BrokerError, ConnectionLostError, WireFormatError

_RETRY_S: Final = 0.5
_SUBMIT_TIMEOUT_S: Final = 5.0
_AT_ONCE_MAX: Final = 1000
_EMPTY: Final = -1


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
            reports = {each: self._report_of(each) for each in self._due}
            self._due = {each: None for each, report in reports.items() if report is not None}
            wanted = [report for report in reports.values() if report is not None]
            if not wanted:
                self._has_due = trio.Event()
            elif not await self._submit(wanted[:_AT_ONCE_MAX]):
                await trio.sleep(_RETRY_S)

    def _report_of(self, partition: Partition) -> ReportedLog | None:
        """Return the report of a replica, `None` if the cluster does not need it."""
        context, log = self._context, partition.log
        known = context.state.partition(*partition.key)
        is_asked = known is not None and any(
            each.node_id == context.node_id and each.log_end is None
            for each in known.unverified_replicas
        )
        if (
            known is None
            or known.leader is not None
            or not is_asked
            or partition.is_held  # It is looked at again when it is released.
            or log.status is LogStatus.OFFLINE
            or not context.is_open(partition)
        ):
            return None
        last_epoch = log.leader_epochs.latest
        is_empty = last_epoch is None or log.log_end_offset == log.log_start_offset
        end = LogEnd(
            _EMPTY if is_empty or last_epoch is None else last_epoch,
            log.log_end_offset,
            is_whole=not log.damage,
        )
        return ReportedLog(*partition.key, known.leader_epoch, end)

    async def _submit(self, reports: list[ReportedLog]) -> bool:
        """Submit reports; return whether the cluster has them, and the state here shows it."""
        context = self._context
        epoch = context.lifecycle.broker_epoch
        if epoch is None:
            return False
        command = ReportLogEnds(context.node_id, epoch, reports)
        try:
            await context.cluster.command_client.submit(command, timeout_s=_SUBMIT_TIMEOUT_S)
        except (BrokerError, ConnectionLostError, WireFormatError) as error:
            context.env.probe("log_ends_not_reported", severity="warning", reason=str(error))
            return False
        context.env.probe("log_ends_reported", severity="debug", count=len(reports))
        return True
