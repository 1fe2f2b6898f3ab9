"""Handler of DESCRIBE_PRODUCER: epoch and next sequence of a producer in a partition."""

from typing import Final, final

import trio

from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.requests.commit_wait import CommitWait
from tidelog.coordinator.metadata.catalog import TakeProducerIds
from tidelog.coordinator.metadata.commands import ProducerIds
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.errors import InvalidRequestError, RequestTimedOutError
from tidelog.wire.messages.produce import (
    Acks,
    DescribeProducerReply,
    DescribeProducerRequest,
    InitProducerReply,
    InitProducerRequest,
)

_TIMEOUT_S: Final = 10.0
_EPOCH_MAX: Final = 0xFFFF_FFFF


@final
class ProducerIdsHandler:
    """Assigns producer ids, from blocks that the controller assigns to this broker."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Take no block yet."""
        self._cluster = cluster
        self._taking = trio.Lock()
        self._ids = range(0)
        """Ids that this broker has taken and not given out yet."""

    async def init(self, request: InitProducerRequest) -> InitProducerReply:
        """Assign a producer id, or the next epoch of an existing one.

        Raises:
            InvalidRequestError: The id was never assigned.
            RequestTimedOutError: No majority of the voters is there.
        """
        producer_id = request.producer_id
        if producer_id and producer_id >= self._cluster.metadata.state.catalog.next_producer_id:
            # Another broker may have given it out, of which this one has not heard yet.
            block = await self._take()
            if producer_id >= block.start:
                raise InvalidRequestError(f"producer id {producer_id} was never assigned")
        if producer_id and request.producer_epoch < _EPOCH_MAX:
            return InitProducerReply(producer_id, request.producer_epoch + 1)
        # The lock keeps concurrent requests from each taking a block when the last one is used up.
        async with self._taking:
            if not self._ids:
                self._ids = await self._take()
            taken, self._ids = self._ids[0], self._ids[1:]
        return InitProducerReply(taken, 0)

    async def _take(self) -> range:
        """Return a block of producer ids for this broker alone."""
        reply = await self._cluster.command_client.submit(TakeProducerIds(), timeout_s=_TIMEOUT_S)
        assert isinstance(reply, ProducerIds)
        return range(reply.first, reply.end)


@final
class ProducersHandler:
    """Describes the producers of the partitions that are led here."""

    def __init__(self, partitions: ReplicaManager) -> None:
        """Describe producers of `partitions`."""
        self._partitions = partitions

    async def describe(self, request: DescribeProducerRequest) -> DescribeProducerReply:
        """Return a producer's position once all records that it rests on are committed.

        Raises:
            RequestTimedOutError: The records are not committed in time.
            BrokerError: This broker does not lead the partition, or the partition cannot commit
                records.
        """
        partition = self._partitions.find(request.topic_id, request.partition)
        leader, log = partition.leader, partition.log
        assert leader is not None, "`find` returns only partitions that are led here"
        leader.require_enough_in_sync(Acks.ALL)
        partition.require_disk()
        position, end = log.producers.position(request.producer_id), log.log_end_offset
        if end > leader.acknowledged_offset(Acks.ALL):
            commit = CommitWait()
            partition.wait_for_ack(Acks.ALL, end, commit, index=0)
            with trio.move_on_after(_TIMEOUT_S) as waiting:
                await commit.wait()
            if waiting.cancelled_caught:
                raise RequestTimedOutError(
                    "timed out waiting for the partition's high watermark; ask again"
                )
        if position is None:
            return DescribeProducerReply(None, None)
        return DescribeProducerReply(position.epoch, position.next_sequence)
