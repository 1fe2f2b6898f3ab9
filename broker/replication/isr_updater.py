"""ISR updater: proposes the ISR changes of leaders to the cluster (Kafka: AlterPartitionManager).

Shell around `isr.followers`: owns the task that advances time for leaders with followers, and the
one that submits their changes. Changes that arise while a command is under way go into the next.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext, now_ms
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    InSyncReplica,
    PartitionAnswers,
    ProposedIsr,
)
from tidelog.isr.followers import IsrChange
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.errors import (
    BrokerError,
    BrokerNotReadyError,
    ConnectionLostError,
    DiskFullError,
    InvalidRequestError,
    NotControllerError,
    StaleBrokerEpochError,
    WireFormatError,
)

_TICK_S: Final = 0.2
"""Maximum delay in seconds in detecting that a follower lags."""
_SUBMIT_TIMEOUT_S: Final = 5.0
_REFUSALS: Final = (
    BrokerNotReadyError,
    DiskFullError,
    InvalidRequestError,
    NotControllerError,
    StaleBrokerEpochError,
)


class _PendingChange(NamedTuple):
    """An ISR change that one leader proposes."""

    partition: Partition
    leader: PartitionLeader
    change: IsrChange


@final
class IsrUpdater:
    """Watches the partitions with followers that this broker leads."""

    def __init__(self, context: ReplicationContext) -> None:
        """Start without partitions; `run` must run in a task."""
        self._context = context
        self._active: dict[Partition, None] = {}
        """Partitions whose ISR may change as time passes."""
        self._is_active = trio.Event()
        self._isr_changes: list[_PendingChange] = []
        self._has_changes = trio.Event()

    def changed(self, partition: Partition) -> None:
        """See `broker.partitions.partition.Watcher`."""
        if partition.leader is not None and partition not in self._active:
            self._active[partition] = None
            self._is_active.set()

    def reported(self, partition: Partition) -> None:
        """Check the ISR after a report of a follower, which may have to join at once."""
        leader = partition.leader
        if leader is not None and not leader.is_all_in_sync and not self._look(partition):
            self.changed(partition)

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._submit_changes)
            while True:
                await self._is_active.wait()
                await trio.sleep(_TICK_S)
                for partition in list(self._active):
                    was_looked_at = self._look(partition)
                    leader = partition.leader
                    # An idle follower does not report again, so its report must not be lost.
                    if leader is None or (was_looked_at and leader.next_deadline_ms() is None):
                        self._active.pop(partition, None)
                if not self._active:
                    self._is_active = trio.Event()

    def _look(self, partition: Partition) -> bool:
        """Submit the next ISR change of a leader; return whether the leader could be asked."""
        leader = partition.leader
        if leader is None or not self._context.lifecycle.may_lead():
            return False
        change = leader.next_isr_change(now_ms=now_ms())
        partition.progressed()
        if change is not None:
            self._isr_changes.append(_PendingChange(partition, leader, change))
            self._has_changes.set()
        return True

    async def _submit_changes(self) -> None:
        while True:
            await self._has_changes.wait()
            self._has_changes = trio.Event()
            changes, self._isr_changes = self._isr_changes, []
            await self._submit(changes)

    async def _submit(self, changes: list[_PendingChange]) -> None:
        context = self._context
        epoch = context.lifecycle.broker_epoch
        assert epoch is not None, "a leader is registered"
        command = AlterPartitions(
            context.node_id,
            epoch,
            [
                ProposedIsr(
                    *each.partition.key,
                    each.leader.leader_epoch,
                    each.change.partition_epoch,
                    [InSyncReplica(*member) for member in each.change.in_sync_replicas],
                )
                for each in changes
            ],
        )
        reasons: Sequence[str | None]
        try:
            # Without a retry: a delayed copy could be carried out after a refusal.
            reply = await context.cluster.command_client.submit(
                command, timeout_s=_SUBMIT_TIMEOUT_S, retry=False
            )
        except (ConnectionLostError, BrokerError, WireFormatError) as error:
            reasons, is_certain = [str(error) for _ in changes], is_refusal(error)
        else:
            assert isinstance(reply, PartitionAnswers)
            reasons = [
                None if answer.error is None else answer.error.message for answer in reply.answers
            ]
            is_certain = True
        for each, reason in zip(changes, reasons, strict=True):
            self._settle(each, reason, is_certain=is_certain)

    def _settle(self, each: _PendingChange, reason: str | None, *, is_certain: bool) -> None:
        partition, leader, change = each
        if reason is None:
            leader.on_isr_change_committed(change)
        else:
            leader.on_isr_change_rejected(change, is_certain=is_certain, now_ms=now_ms())
            partition.probe(
                "in_sync_replicas_not_changed",
                severity="warning",
                reason=reason,
            )
        if partition.leader is leader:
            self.changed(partition)
            partition.progressed()


def is_refusal(error: Exception) -> bool:
    """Return whether a command that was sent once will never be carried out.

    Any other error may hide that it was: a lost reply, a failed disk, a defect.
    """
    return isinstance(error, _REFUSALS)
