"""Leader's side of repair: rereads for a follower's repair, and checks of its own bytes.

Shell: a thread reads and checks the batches, from the disk.
"""

from collections.abc import Callable
from typing import Final, final

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext
from tidelog.broker.requests.response import ResponseHandle
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.range_repair import check_repair
from tidelog.wire.errors import BrokerError, CorruptRecordError, OffsetOutOfRangeError
from tidelog.wire.messages.replication import (
    FollowedPartition,
    ReplicaReadReply,
    ReplicaReadRequest,
)

_BYTES_MAX: Final = 4 << 20
_DOUBTED_BYTES: Final = 1 << 20
"""Maximum bytes of one partition that a follower is sent at a time."""

Led = Callable[[FollowedPartition, int], tuple[Partition, PartitionLeader]]


@final
class RepairReader:
    """Reads partitions that this broker leads, for its followers."""

    def __init__(self, context: ReplicationContext, led: Led) -> None:
        """Read from partitions that `led` returns for a follower, or refuses."""
        self._context = context
        self._led = led
        self._doubted: dict[Partition, None] = {}
        """Partitions whose bytes are being checked."""

    def read(self, request: ReplicaReadRequest, response: ResponseHandle) -> None:
        """Reply with batches once they have been read.

        Raises:
            BrokerError: The request is refused.
        """
        self._context.check_identity(request.identity)
        self._context.nursery.start_soon(self._read_and_reply, request, response)

    def doubt(self, partition: Partition, offset: int) -> None:
        """Check the bytes from an offset on: a follower received damaged ones."""
        if partition not in self._doubted:
            self._doubted[partition] = None
            self._context.nursery.start_soon(self._look, partition, offset)

    async def _read_and_reply(self, request: ReplicaReadRequest, response: ResponseHandle) -> None:
        with response:
            followed = FollowedPartition(
                0, request.topic_id, request.partition, request.leader_epoch
            )
            partition, _ = self._led(followed, request.identity.node_id)
            log = partition.log
            start, end = log.log_start_offset, log.log_end_offset
            if request.end_offset > end:
                raise OffsetOutOfRangeError(
                    f"the leader has offsets {start} to {end} (exclusive), not up to"
                    f" {request.end_offset}",
                    log_start_offset=start,
                    log_end_offset=end,
                )
            offset = max(request.offset, start)
            data = b""
            if offset < request.end_offset:
                max_bytes = min(request.max_bytes, _BYTES_MAX)
                data = await self._load(partition, offset, request.end_offset, max_bytes=max_bytes)
            response.reply(ReplicaReadReply(start), [data])

    async def _look(self, partition: Partition, offset: int) -> None:
        log = partition.log
        damage_before = log.damage
        try:
            remaining = _DOUBTED_BYTES
            while remaining > 0 and log.log_start_offset <= offset < log.log_end_offset:
                data = await self._load(partition, offset, log.log_end_offset, max_bytes=remaining)
                # A read ends before damage; the next one begins at it and raises.
                offset = check_repair(
                    memoryview(data), offset=offset, end_offset=offset + 1
                ).end_offset
                remaining -= len(data)
            reason = "they are valid"
        except BrokerError as error:
            reason = str(error)
        finally:
            del self._doubted[partition]
        partition.probe(
            "follower_doubts",
            severity="warning",
            offset=offset,
            is_damaged=log.damage != damage_before,
            reason=reason,
        )

    async def _load(
        self, partition: Partition, offset: int, end_offset: int, *, max_bytes: int
    ) -> bytes:
        """Return freshly checked batches, the first of which has `offset`.

        Raises:
            CorruptRecordError: The batch is damaged; the partition records it.
            LogOfflineError: The disk failed.
        """
        log = partition.log
        part = log.read(offset, max_bytes=max_bytes, high_watermark=end_offset)
        if part is None:
            # The batch extends behind the end.
            part = log.read(offset, max_bytes=1, high_watermark=log.log_end_offset)
        assert part is not None, "the log has a batch below its end"
        found = part

        def load() -> bytes:
            return found.load().read()

        try:
            return await self._context.env.run_in_thread(load)
        except CorruptRecordError as error:
            partition.damage_found(error)
            raise
        except OSError as error:
            raise partition.reading_failed(error) from error
