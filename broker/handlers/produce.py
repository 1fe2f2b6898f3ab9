"""Handler of PRODUCE: appends batches, and waits until they may be acknowledged.

The hot path of a broker: it has no task, no await and no loop over records. A request with very
many batches is carried out in steps.
"""

from collections.abc import Callable
from typing import Protocol, final

from tidelog.broker.handlers.held_batches import HeldBatches
from tidelog.broker.hot.hot_traffic import Sample, no_sample
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.request_usage import RequestUsage, usage_of
from tidelog.broker.requests.response import ResponseHandle
from tidelog.broker.requests.steps import Steps
from tidelog.isr.durability import ack_level
from tidelog.logstore.log import Appended
from tidelog.wire.batch.record_batch import FORMAT_VERSION, BatchHeader, check_produced
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    InvalidTopicError,
    RequestTimedOutError,
)
from tidelog.wire.messages.produce import (
    AckLevel,
    Acks,
    PartitionAppended,
    PartitionBatch,
    ProduceReply,
    ProduceRequest,
)
from tidelog.wire.security.audit_topic import AUDIT_TOPIC

_AUDIT_IS_OF_BROKERS = f"only brokers write the audit topic {AUDIT_TOPIC!r}; use another topic"
_ACKS = {int(acks): acks for acks in Acks}
_TIMEOUT_MS_MAX = 10 * 60 * 1000
_OPEN = PartitionAppended(0, 0, 0)
"""Result of a batch that is not settled."""
_BATCHES_AT_ONCE = 64
"""Batches that are appended before other tasks run."""


class Finder(Protocol):
    """Finds partitions that this broker leads."""

    def find(self, topic_id: bytes, number: int) -> Partition:
        """Return a partition that accepts appends now.

        Raises:
            BrokerError: The partition does not accept appends.
        """
        ...


@final
class DelayedProduce:
    """A produce request that waits for acknowledgements.

    Invariant: `open_count` results are still open, and the reply is sent when it is 0.
    """

    def __init__(self, response: ResponseHandle, purgatory: Purgatory, batch_count: int) -> None:
        """Collect the results of `batch_count` batches."""
        self.response = response
        self._purgatory = purgatory
        self._results = [_OPEN] * batch_count
        self._places = [(0, 0)] * batch_count
        self.open_count = batch_count
        """Batches whose result is not known yet."""
        self._is_parked = False
        self.usage: RequestUsage | None = None
        """Traffic of the principal; `None` while it is not counted."""

    @property
    def is_of_broker(self) -> bool:
        """Whether a node of the cluster sent the request."""
        return self.response.context.node_id is not None

    def settle(self, index: int, result: PartitionAppended) -> None:
        """Record the result of one batch."""
        if self._results[index] is _OPEN:
            self._results[index] = result
            self.open_count -= 1

    def expect(self, index: int, base_offset: int, log_start_offset: int) -> None:
        """Record the place of a batch that is not acknowledged yet."""
        self._places[index] = (base_offset, log_start_offset)

    def wait(self, timeout_ms: int) -> None:
        """Reply when all batches are settled, or when the time is over."""
        self._is_parked = True
        self._purgatory.add(self, self.response.context.clock() + timeout_ms / 1000)

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        base_offset, log_start_offset = self._places[index]
        self.settle(index, PartitionAppended(base_offset, level, log_start_offset))
        self._reply_if_complete()

    def failed(self, index: int, error: BrokerError) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        self.settle(index, _failed(error))
        self._reply_if_complete()

    def expire(self) -> None:
        """Answer with a timeout for the batches that are not acknowledged."""
        error = RequestTimedOutError("not acknowledged in time; the records may still be kept")
        for index in range(len(self._results)):
            self.settle(index, _failed(error))
        self._reply_if_complete()

    def close(self) -> None:
        """Keep waiting: a shutdown waits for acknowledgements."""

    def _reply_if_complete(self) -> None:
        # Not parked: the request is still being handled, or was answered already.
        if self._is_parked and not self.open_count:
            self._is_parked = False
            self._purgatory.done(self)
            with self.response:
                self.reply()

    def reply(self) -> None:
        """Reply that all batches are settled."""
        assert not self.open_count, "a batch is not settled"
        response = self.response
        response.reply(ProduceReply(self._results))
        # The reply has read the clock.
        self._purgatory.commit_waits.observe(response.context.now - response.arrived_at)


@final
class ProduceHandler:
    """Appends batches to partitions."""

    def __init__(
        self,
        env: Env,
        partitions: Finder,
        group_commit: GroupCommit,
        *,
        purgatory: Purgatory,
        require_format: Callable[[BatchHeader], None],
        sample: Sample = no_sample,
        held: HeldBatches | None = None,
    ) -> None:
        """Append to partitions of `partitions`; `purgatory` keeps unacknowledged requests.

        `require_format` refuses a batch of a later format version than the cluster allows now.
        `held` keeps batches without acknowledgement whose logs are being opened.
        """
        self._env = env
        self._partitions = partitions
        self._group_commit = group_commit
        self._purgatory = purgatory
        self._require_format = require_format
        self._sample = sample
        self._held = held

    def handle(
        self, request: ProduceRequest, attachment: memoryview, response: ResponseHandle
    ) -> Steps | None:
        """Append the batches, and reply now or later; return the rest of many batches as steps.

        Raises:
            InvalidRequestError: The request as a whole is malformed; nothing was appended.
        """
        acks = _ACKS.get(request.acks)
        batches = request.batches
        announced = batches[0].batch_bytes if len(batches) == 1 else _announced_bytes(request)
        if acks is None or announced != len(attachment):
            raise _why_invalid(request, len(attachment))
        steps = self._append_all(request, attachment, acks, response=response)
        if len(batches) > _BATCHES_AT_ONCE:
            return steps
        for _ in steps:
            pass
        return None

    def _append_all(
        self,
        request: ProduceRequest,
        attachment: memoryview,
        acks: Acks,
        *,
        response: ResponseHandle,
    ) -> Steps:
        batches = request.batches
        pending = DelayedProduce(response, self._purgatory, len(batches))
        if response.context.audit.usage is not None:
            pending.usage = usage_of(response.context)
        position = 0
        now_ms = self._env.clock.now_ms()
        for index, entry in enumerate(batches):
            if index and index % _BATCHES_AT_ONCE == 0:
                yield
            end = position + entry.batch_bytes
            self._append(
                entry, attachment[position:end], acks, pending=pending, index=index, now_ms=now_ms
            )
            position = end
        if acks is Acks.NONE:
            response.nothing()
        elif not pending.open_count:
            pending.reply()
        else:
            is_impatient = self._env.buggify("produce without waiting")
            pending.wait(0 if is_impatient else min(request.timeout_ms, _TIMEOUT_MS_MAX))

    def _append(
        self,
        entry: PartitionBatch,
        batch: memoryview,
        acks: Acks,
        *,
        pending: DelayedProduce,
        index: int,
        now_ms: int,
    ) -> None:
        partition = None
        try:
            partition = self._partitions.find(entry.topic_id, entry.partition)
            leader = partition.leader
            assert leader is not None, "`find` returns only partitions that are led here"
            if partition.is_audit and not pending.is_of_broker:
                raise InvalidTopicError(_AUDIT_IS_OF_BROKERS)
            leader.require_enough_in_sync(acks)
            if partition.is_stalled or partition.storage_refusal is not None:
                partition.require_disk()
            header = check_produced(batch)
            if header.format_version != FORMAT_VERSION:
                self._require_format(header)
            appended = partition.log.append(
                batch, header, leader_epoch=leader.leader_epoch, now_ms=now_ms
            )
        except BrokerError as error:
            if partition is not None:
                partition.traffic.refused()
                partition.note_status(str(error))
                error = partition.passing(error)
            elif acks is Acks.NONE and self._is_held(entry, batch, pending):
                return
            pending.settle(index, _failed(error))
            return
        if not appended.is_duplicate:
            partition.traffic.received(header)
            if pending.usage is not None:
                pending.usage.received(partition.resource, header)
            self._group_commit.appended(partition)
            partition.progressed()
            self._sample(partition, header, batch)
        if acks is not Acks.NONE:
            self._settle_or_wait(partition, appended, acks, pending=pending, index=index)

    def _is_held(self, entry: PartitionBatch, batch: memoryview, pending: DelayedProduce) -> bool:
        """Keep a batch that is not acknowledged until its log is open, if it is being opened."""

        def append(kept: memoryview) -> None:
            now_ms = self._env.clock.now_ms()
            with pending.response:
                self._append(entry, kept, Acks.NONE, pending=pending, index=0, now_ms=now_ms)

        key = (entry.topic_id, entry.partition)
        return self._held is not None and self._held.hold(key, batch, append)

    @staticmethod
    def _settle_or_wait(
        partition: Partition,
        appended: Appended,
        acks: Acks,
        *,
        pending: DelayedProduce,
        index: int,
    ) -> None:
        leader = partition.leader
        assert leader is not None, "the leader cannot change between append and acknowledgement"
        log_start_offset = partition.log.log_start_offset
        if appended.next_offset <= leader.acknowledged_offset(acks):
            level = ack_level(acks, leader.durability)
            pending.settle(index, PartitionAppended(appended.base_offset, level, log_start_offset))
        else:
            pending.expect(index, appended.base_offset, log_start_offset)
            partition.wait_for_ack(acks, appended.next_offset, pending, index=index)


def _failed(error: BrokerError) -> PartitionAppended:
    return PartitionAppended(0, 0, 0, error.to_wire())


def _announced_bytes(request: ProduceRequest) -> int:
    return sum(entry.batch_bytes for entry in request.batches)


def _why_invalid(request: ProduceRequest, attached_bytes: int) -> InvalidRequestError:
    if request.acks not in _ACKS:
        return InvalidRequestError(f"acks is {request.acks}; it must be 0, 1 or 2 (all)")
    announced = _announced_bytes(request)
    return InvalidRequestError(
        f"the request announces {announced} bytes of batches and carries {attached_bytes}"
    )
