"""Follower's side of repair: damaged ranges are replaced by batches of the leader.

Shell: owns the task that fetches batches and writes them over the damage. A replica is only
repaired while it follows, and after the leader has found its log to be a prefix of its own: then
equal offsets are equal records. The replica follows again after each piece, so it does not fall
behind.
"""

from collections.abc import Callable
from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext
from tidelog.isr.follower import PartitionFollower
from tidelog.logstore.log import LogStatus
from tidelog.logstore.range_repair import check_repair
from tidelog.wire.errors import (
    BrokerError,
    BrokerNotReadyError,
    ConnectionLostError,
    InvalidBatchError,
    TidelogError,
)
from tidelog.wire.messages.replication import ReplicaReadReply, ReplicaReadRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

_AGAIN_S: Final = 1.0
"""Time in seconds after which a failed repair is tried again."""
_SOON_S: Final = 0.1
_CONNECT_TIMEOUT_S: Final = 1.0
_ANSWER_TIMEOUT_S: Final = 10.0
_CATCH_UP_TIMEOUT_S: Final = 5.0
_PIECE_BYTES: Final = 4 << 20


@final
class ReplicaRepair:
    """Repairs the replicas of this broker, one after the other."""

    def __init__(
        self,
        context: ReplicationContext,
        leave: Callable[[tuple[bytes, int]], None],
        released: Callable[[Partition], None],
    ) -> None:
        """Start without damaged replicas; `run` must run in a task.

        Args:
            context: This broker.
            leave: Called before a log is held: no fetcher may use it.
            released: Called when the log is no longer held, for it to take its role again.
        """
        self._context = context
        self._leave = leave
        self._released = released
        self._damaged: dict[Partition, None] = {}
        self._has_work = trio.Event()

    def look_at(self, partition: Partition) -> None:
        """Schedule the repair of a replica if its log has known damage."""
        if partition.log.damage and partition not in self._damaged:
            self._damaged[partition] = None
            self._has_work.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work = trio.Event()
            while self._damaged:
                # A replica that has just begun to follow is retried soon.
                await trio.sleep(_SOON_S)
                is_stuck = False
                for partition in list(self._damaged):
                    is_stuck |= not await self._repair(partition)
                if is_stuck:
                    await trio.sleep(_AGAIN_S)

    async def _repair(self, partition: Partition) -> bool:
        """Repair one replica as far as possible; return whether it needs no retry."""
        if not self._context.is_open(partition) or not partition.log.damage:
            self._damaged.pop(partition, None)
            return True
        follower = self._ready(partition)
        if follower is None:
            return False
        before = partition.log.damage
        try:
            await self._repair_from(partition, follower)
        except TidelogError as error:
            partition.probe(
                "replica_not_repaired",
                severity="warning",
                leader_id=follower.leader_id,
                reason=str(error),
            )
            return False
        if not partition.log.damage:
            self._damaged.pop(partition, None)
            partition.probe(
                "replica_repaired",
                leader_id=follower.leader_id,
                offset=before[0].offset,
                end_offset=before[-1].end_offset,
            )
        return True

    @staticmethod
    def _ready(partition: Partition) -> PartitionFollower | None:
        """Return the follower's state, if its leader may repair the log now."""
        follower = partition.follower
        if follower is None or not follower.is_beginning or follower.leader_id is None:
            return None
        if partition.is_held or partition.log.status is LogStatus.OFFLINE:
            return None
        return follower

    async def _repair_from(self, partition: Partition, follower: PartitionFollower) -> None:
        context, leader_id = self._context, follower.leader_id
        assert leader_id is not None
        address = context.cluster.addresses.address_of(leader_id)
        if address is None:
            raise ConnectionLostError(f"the address of node {leader_id} is not known")
        name = f"repair of node {context.node_id}"
        with trio.CancelScope(deadline=trio.current_time() + _CONNECT_TIMEOUT_S) as connecting:
            async with context.cluster.dialer.open(*address, name=name) as connection:
                connecting.deadline = float("inf")
                while partition.log.damage and self._ready(partition) is follower:
                    await self._repair_piece(connection, partition, follower)
        if connecting.cancelled_caught:
            raise ConnectionLostError(f"node {leader_id} does not answer")

    async def _repair_piece(
        self, connection: RpcConnection, partition: Partition, follower: PartitionFollower
    ) -> None:
        """Repair as much of the lowest damage as one reply holds.

        Raises:
            TidelogError: The leader does not have the records, or the disk failed.
        """
        log, (damaged, *_) = partition.log, partition.log.damage
        if damaged.offset < log.log_start_offset:
            await self._recreate(partition)
            return
        offset, end_offset = max(damaged.offset, log.log_start_offset), damaged.end_offset
        identity = self._context.own_identity()
        if identity is None:
            raise ConnectionLostError("this broker is not registered")
        request = ReplicaReadRequest(
            identity, *partition.key, follower.leader_epoch, offset, end_offset, _PIECE_BYTES
        )
        reply, batches = await _ask(connection, request)
        if self._ready(partition) is not follower:
            return  # Another broker leads now, and may have other records there.
        if reply.log_start_offset > offset:
            # The leader has deleted these offsets; deleted records need no repair.
            start = min(reply.log_start_offset, log.log_end_offset)
            log.delete_records(start, high_watermark=log.log_end_offset)
            self._context.group_commit.request(partition)
            return
        checked = check_repair(batches, offset=offset, end_offset=offset + 1)
        try:
            await self._put(partition, offset, min(end_offset, checked.end_offset), batches=batches)
        except InvalidBatchError:
            is_sparse = any(header.is_sparse for header in checked.headers)
            if not (is_sparse or log.cleaner.clean_offset):
                raise
            # Both logs have the same records at these offsets, but not in the same batches.
            await self._recreate(partition)

    async def _recreate(self, partition: Partition) -> None:
        """Recreate a log that no batch of another replica fits into.

        Its damage begins with records that are deleted everywhere, so that the position of the rest
        in its file is unknown; or it was compacted, here or at the source of the batches.

        Raises:
            BrokerError: The replica may still be in the ISR, or the disk failed.
        """
        context = self._context
        # This broker's metadata may be old: the replica may have joined the ISR meanwhile.
        await context.cluster.command_client.catch_up(timeout_s=_CATCH_UP_TIMEOUT_S)
        known = context.state.partition(*partition.key)
        if known is None or context.node_id in known.in_sync_or_eligible:
            raise BrokerNotReadyError(
                "its log must be recreated, but it is still in the ISR or eligible"
            )
        if not context.is_open(partition):
            return
        self._leave(partition.key)
        async with context.group_commit.hold(partition):
            if context.is_open(partition):
                await context.partitions.restart(partition, partition.log.log_start_offset)
        self._released(partition)

    async def _put(
        self, partition: Partition, offset: int, end_offset: int, *, batches: memoryview
    ) -> None:
        context, log = self._context, partition.log
        now_ms = context.env.clock.now_ms()
        failure: BrokerError | None = None
        self._leave(partition.key)
        async with context.group_commit.hold(partition):
            try:
                await context.env.run_in_thread(
                    lambda: log.repair_range(offset, end_offset, batches, now_ms=now_ms)
                )
            except BrokerError as error:
                failure = error
        partition.note_status("it was repaired" if failure is None else str(failure))
        self._released(partition)
        if failure is not None:
            raise failure


async def _ask(
    connection: RpcConnection, request: ReplicaReadRequest
) -> tuple[ReplicaReadReply, memoryview]:
    with trio.move_on_after(_ANSWER_TIMEOUT_S):
        return await connection.call(api.REPLICA_READ, request, take=_copied)
    raise ConnectionLostError(f"no answer for {_ANSWER_TIMEOUT_S:g} s")


def _copied(reply: ReplicaReadReply, attachment: memoryview) -> tuple[ReplicaReadReply, memoryview]:
    return reply, memoryview(bytes(attachment))
