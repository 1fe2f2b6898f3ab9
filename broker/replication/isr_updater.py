"""Having the cluster change in-sync replicas as leaders wish.

Shell around `isr.followers`: owns the task that lets time pass for leaders with followers, and the
one that submits their wishes. All that come up while one command is decided go into the next.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.surroundings import Surroundings, now_ms
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    InSyncChange,
    InSyncReplica,
    PartitionAnswers,
)
from tidelog.isr.followers import InSyncWish
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
"""How late it may be seen that a follower is late."""
_SUBMIT_TIMEOUT_S: Final = 5.0
_REFUSALS: Final = (
    BrokerNotReadyError,
    DiskFullError,
    InvalidRequestError,
    NotControllerError,
    StaleBrokerEpochError,
)


class _Wish(NamedTuple):
    """What one leader wants."""

    partition: Partition
    leader: PartitionLeader
    wish: InSyncWish


@final
class InSyncKeeper:
    """Watches the partitions that this broker leads with followers."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Watch nothing yet; `run` must run in a task."""
        self._surroundings = surroundings
        self._active: dict[Partition, None] = {}
        """Partitions of which something is to be decided as time passes."""
        self._is_active = trio.Event()
        self._wishes: list[_Wish] = []
        self._has_wishes = trio.Event()

    def changed(self, partition: Partition) -> None:
        """See `broker.partitions.partition.Watcher`."""
        if partition.leader is not None and partition not in self._active:
            self._active[partition] = None
            self._is_active.set()

    def reported(self, partition: Partition) -> None:
        """Take note that a follower has reported: it may have to join at once."""
        leader = partition.leader
        if leader is not None and not leader.is_all_in_sync and not self._look(partition):
            self.changed(partition)

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._submit_wishes)
            while True:
                await self._is_active.wait()
                await trio.sleep(_TICK_S)
                for partition in list(self._active):
                    was_looked_at = self._look(partition)
                    leader = partition.leader
                    # An idle follower does not report again: what it said is not to be forgotten.
                    if leader is None or (was_looked_at and leader.next_deadline_ms() is None):
                        self._active.pop(partition, None)
                if not self._active:
                    self._is_active = trio.Event()

    def _look(self, partition: Partition) -> bool:
        """Ask for what the leader wishes; return whether it could be asked what that is."""
        leader = partition.leader
        if leader is None or not self._surroundings.lifecycle.may_lead():
            return False
        wish = leader.next_wish(now_ms=now_ms())
        partition.progressed()
        if wish is not None:
            self._wishes.append(_Wish(partition, leader, wish))
            self._has_wishes.set()
        return True

    async def _submit_wishes(self) -> None:
        while True:
            await self._has_wishes.wait()
            self._has_wishes = trio.Event()
            wishes, self._wishes = self._wishes, []
            await self._submit(wishes)

    async def _submit(self, wishes: list[_Wish]) -> None:
        surroundings = self._surroundings
        epoch = surroundings.lifecycle.broker_epoch
        assert epoch is not None, "who leads is registered"
        command = AlterPartitions(
            surroundings.node_id,
            epoch,
            [
                InSyncChange(
                    *each.partition.key,
                    each.leader.leader_epoch,
                    each.wish.partition_epoch,
                    [InSyncReplica(*member) for member in each.wish.in_sync_replicas],
                )
                for each in wishes
            ],
        )
        reasons: Sequence[str | None]
        try:
            # Once only: a copy that is still on its way may be carried out after a refusal.
            reply = await surroundings.cluster.command_client.submit(
                command, timeout_s=_SUBMIT_TIMEOUT_S, retry=False
            )
        except (ConnectionLostError, BrokerError, WireFormatError) as error:
            reasons, is_certain = [str(error) for _ in wishes], is_refusal(error)
        else:
            assert isinstance(reply, PartitionAnswers)
            reasons = [
                None if answer.error is None else answer.error.message for answer in reply.answers
            ]
            is_certain = True
        for each, reason in zip(wishes, reasons, strict=True):
            self._settle(each, reason, is_certain=is_certain)

    def _settle(self, each: _Wish, reason: str | None, *, is_certain: bool) -> None:
        partition, leader, wish = each
        if reason is None:
            leader.wish_granted(wish)
        else:
            leader.wish_refused(wish, is_certain=is_certain, now_ms=now_ms())
            self._surroundings.env.probe(
                "in_sync_replicas_not_changed",
                severity="warning",
                directory=partition.log.directory,
                reason=reason,
            )
        if partition.leader is leader:
            self.changed(partition)
            partition.progressed()


def is_refusal(error: Exception) -> bool:
    """Return whether a command that was given once will never be carried out.

    Anything else may hide that it was: a lost answer, a disk that failed, a defect.
    """
    return isinstance(error, _REFUSALS)
