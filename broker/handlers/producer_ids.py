"""How far idempotent producers are."""

from typing import Final, final

import trio

from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.requests.commit_wait import CommitWait
from tidelog.wire.errors import RequestTimedOutError
from tidelog.wire.messages.produce import Acks, DescribeProducerReply, DescribeProducerRequest

_TIMEOUT_S: Final = 10.0


@final
class ProducersHandler:
    """Says what is in logs of producers."""

    def __init__(self, partitions: ReplicaManager) -> None:
        """Look into `partitions`."""
        self._partitions = partitions

    async def describe(self, request: DescribeProducerRequest) -> DescribeProducerReply:
        """Say how far a producer is, when all is committed that the answer rests on.

        Raises:
            RequestTimedOutError: It is not committed in time.
            BrokerError: This broker does not lead the partition, or nothing can be committed there.
        """
        partition = self._partitions.find(request.topic_id, request.partition)
        leader, log = partition.leader, partition.log
        assert leader is not None, "it was found, so it is led here"
        leader.require_enough_in_sync(Acks.ALL)
        partition.require_disk()
        position, end = log.producers.position(request.producer_id), log.log_end_offset
        if end > leader.acknowledged_offset(Acks.ALL):
            commit = CommitWait()
            partition.wait_for_ack(Acks.ALL, end, commit, index=0)
            with trio.move_on_after(_TIMEOUT_S) as waiting:
                await commit.wait()
            if waiting.cancelled_caught:
                raise RequestTimedOutError("what the partition has is not committed in time")
        if position is None:
            return DescribeProducerReply(None, None)
        return DescribeProducerReply(position.epoch, position.next_sequence)
