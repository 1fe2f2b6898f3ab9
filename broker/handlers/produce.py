"""Appending records, and waiting until they may be acknowledged.

The hot path of a broker: no task, no await, no loop over records.
"""

from typing import final

import trio

from broker.flusher import Flusher
from broker.partition import Partition
from broker.partitions import Partitions
from broker.replier import Replier
from broker.waiting import Waiting
from isr.durability import ack_level
from logstore.log import Appended, LogStatus
from wire.env import Env
from wire.errors import BrokerError, InvalidRequestError, RequestTimedOutError
from wire.produce import Acks, PartitionAppended, PartitionBatch, ProduceReply, ProduceRequest
from wire.record_batch import check_produced

_ACKS = {int(acks): acks for acks in Acks}
_TIMEOUT_MS_MAX = 10 * 60 * 1000


@final
class PendingProduce:
    """A produce request that waits for acknowledgements.

    Invariant: `_open_count` results are still `None`; the reply is sent when none is.
    """

    def __init__(self, replier: Replier, waiting: Waiting, batch_count: int) -> None:
        """Collect the results of `batch_count` batches."""
        self._replier = replier
        self._waiting = waiting
        self._results: list[PartitionAppended | None] = [None] * batch_count
        self._expected: list[PartitionAppended | None] = [None] * batch_count
        self._open_count = batch_count

    def settle(self, index: int, result: PartitionAppended) -> None:
        """Note what became of one batch."""
        self._results[index] = result
        self._open_count -= 1

    def expect(self, index: int, result: PartitionAppended) -> None:
        """Note what will be the result of one batch once it is acknowledged."""
        self._expected[index] = result

    def reply_if_complete(self) -> bool:
        """Answer when nothing is open; return whether that was so."""
        if self._open_count:
            return False
        results = [result for result in self._results if result is not None]
        assert len(results) == len(self._results)
        self._replier.reply(ProduceReply(results))
        return True

    def acknowledged(self, index: int, error: BrokerError | None) -> None:
        """See `broker.partition.AckWaiter`."""
        if self._results[index] is not None:  # It timed out before.
            return
        expected = self._expected[index]
        assert expected is not None
        if error is not None:
            expected = _failed(error, expected.log_start_offset)
        self.settle(index, expected)
        if self.reply_if_complete():
            self._waiting.done(self)

    def expire(self) -> None:
        """Answer that what is still open was not acknowledged in time."""
        error = RequestTimedOutError("not acknowledged in time; the records may still be kept")
        for index, result in enumerate(self._results):
            if result is None:
                self.settle(index, _failed(error, 0))
        self.reply_if_complete()

    def close(self) -> None:
        """Go on waiting: a shutdown waits for acknowledgements."""


@final
class ProduceHandler:
    """Appends batches to partitions."""

    def __init__(
        self, env: Env, partitions: Partitions, flusher: Flusher, waiting: Waiting
    ) -> None:
        """Append to `partitions`; park what cannot be acknowledged at once in `waiting`."""
        self._env = env
        self._partitions = partitions
        self._flusher = flusher
        self._waiting = waiting

    def handle(self, request: ProduceRequest, attachment: memoryview, replier: Replier) -> None:
        """Append, and reply now or later."""
        acks = _ACKS.get(request.acks)
        batches = request.batches
        if acks is None or sum(entry.batch_bytes for entry in batches) != len(attachment):
            replier.fail(_why_invalid(request, len(attachment)))
            return
        pending = PendingProduce(replier, self._waiting, len(batches))
        position = 0
        now_ms = self._env.clock.now_ms()
        for index, entry in enumerate(batches):
            end = position + entry.batch_bytes
            self._append(entry, attachment[position:end], acks, pending, index, now_ms)
            position = end
        if acks is Acks.NONE:
            replier.nothing()
        elif not pending.reply_if_complete():
            timeout_ms = min(request.timeout_ms, _TIMEOUT_MS_MAX)
            self._waiting.add(pending, trio.current_time() + timeout_ms / 1000)

    def _append(
        self,
        entry: PartitionBatch,
        batch: memoryview,
        acks: Acks,
        pending: PendingProduce,
        index: int,
        now_ms: int,
    ) -> None:
        partition = None
        try:
            partition = self._partitions.find(entry.topic_id, entry.partition)
            header = check_produced(batch)
            appended = partition.log.append(
                batch, header, leader_epoch=partition.leader.leader_epoch, now_ms=now_ms
            )
        except BrokerError as error:
            pending.settle(index, _failed(error, 0))
            if partition is not None:
                self._log_refused(partition, error)
            return
        if not appended.is_duplicate:
            self._flusher.appended(partition)
            partition.progressed()
        if acks is Acks.NONE:
            return
        self._settle_or_wait(partition, appended, acks, pending, index)

    @staticmethod
    def _settle_or_wait(
        partition: Partition,
        appended: Appended,
        acks: Acks,
        pending: PendingProduce,
        index: int,
    ) -> None:
        leader = partition.leader
        result = PartitionAppended(
            appended.base_offset,
            ack_level(acks, leader.durability),
            partition.log.log_start_offset,
        )
        if appended.next_offset <= leader.acknowledged_offset(acks):
            pending.settle(index, result)
        else:
            pending.expect(index, result)
            partition.wait_for_ack(acks, appended.next_offset, pending, index)

    def _log_refused(self, partition: Partition, error: BrokerError) -> None:
        """Tell the operator, and those who wait, when it is the disk that refused."""
        status = partition.log.status
        if status is LogStatus.OFFLINE:
            partition.failed(error)
        if status in (LogStatus.OFFLINE, LogStatus.READ_ONLY):
            self._env.probe(
                "append_refused",
                severity="error",
                directory=partition.log.directory,
                status=status.value,
                reason=str(error),
            )


def _failed(error: BrokerError, log_start_offset: int) -> PartitionAppended:
    return PartitionAppended(0, 0, log_start_offset, error.to_wire())


def _why_invalid(request: ProduceRequest, attached_bytes: int) -> InvalidRequestError:
    if request.acks not in _ACKS:
        return InvalidRequestError(f"acks is {request.acks}; it must be 0, 1 or 2 (all)")
    announced = sum(entry.batch_bytes for entry in request.batches)
    return InvalidRequestError(
        f"the request announces {announced} bytes of batches and brings {attached_bytes}"
    )
