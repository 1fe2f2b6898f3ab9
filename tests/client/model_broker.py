"""Naive model of brokers, for the core of a producer.

It appends batches, drops duplicates, refuses gaps and old epochs, and keeps the copies of requests
whose connection was lost: these may arrive late, or never.
"""

from collections import deque
from typing import NamedTuple, final

from tidelog.client.producer.record_accumulator import DrainedBatch, RecordAccumulator
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    DuplicateSequenceError,
    FencedProducerError,
    InvalidBatchError,
    OutOfOrderSequenceError,
    OverloadedError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnexpectedServerError,
)
from tidelog.wire.messages.produce import AckLevel

_WINDOW = 5


class _Remembered(NamedTuple):
    base_sequence: int
    base_offset: int


@final
class _Stream:
    """State of one producer in one partition."""

    def __init__(self) -> None:
        self.epoch = -1
        self.next_sequence = 0
        self.window: deque[_Remembered] = deque(maxlen=_WINDOW)


@final
class ModelPartition:
    """One partition's log, without bytes."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._streams: dict[int, _Stream] = {}

    def append(self, encoded: bytes) -> int | BrokerError:
        """Return the base offset, or the error of the batch."""
        header = parse_header(encoded)
        assert header is not None
        values = decode_columns(header, encoded, uncompressed_length_max=1 << 30).values or []
        if header.producer_id:
            stream = self._streams.setdefault(header.producer_id, _Stream())
            if header.producer_epoch < stream.epoch:
                return FencedProducerError("an old epoch")
            if header.producer_epoch > stream.epoch:
                if header.base_sequence != 0:
                    return OutOfOrderSequenceError("a new epoch", expected_sequence=0)
                stream.epoch, stream.next_sequence = header.producer_epoch, 0
                stream.window.clear()
            for remembered in stream.window:
                if remembered.base_sequence == header.base_sequence:
                    return remembered.base_offset
            if header.base_sequence < stream.next_sequence:
                return DuplicateSequenceError("long ago")
            if header.base_sequence > stream.next_sequence:
                return OutOfOrderSequenceError("a gap", expected_sequence=stream.next_sequence)
            stream.next_sequence = header.next_sequence
            stream.window.append(_Remembered(header.base_sequence, len(self.values)))
        base_offset = len(self.values)
        self.values.extend(value for value in values if value is not None)
        return base_offset


class _Request(NamedTuple):
    drained: DrainedBatch
    copy: bytes


@final
class ModelBroker:
    """The leader of all partitions, at the other end of one connection."""

    def __init__(self, accumulator: RecordAccumulator, partition_count: int) -> None:
        self.partitions = [ModelPartition() for _ in range(partition_count)]
        self._accumulator = accumulator
        self._requests: deque[_Request] = deque()
        self._replies: deque[tuple[DrainedBatch, int | Exception]] = deque()
        self._late: deque[tuple[int, bytes]] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._requests and not self._replies

    def receive(self, drained_batches: list[DrainedBatch]) -> None:
        """Take a request that the producer submitted."""
        for drained in drained_batches:
            self._requests.append(_Request(drained, bytes(drained.batch.encoded)))

    def execute(self, failure: type[BrokerError] | None = None) -> None:
        """Execute the oldest request and send its reply.

        With a failure, the batch is appended first if the failure leaves that open.
        """
        if not self._requests:
            return
        drained, copy = self._requests.popleft()
        outcome: int | Exception
        if failure in (None, RequestTimedOutError, UnexpectedServerError):
            outcome = self.partitions[drained.queue.partition].append(copy)
            if failure is not None and isinstance(outcome, int):
                outcome = failure("it may have been appended")
        elif failure is RecordTooLargeError:
            outcome = RecordTooLargeError("too large", size_bytes=2, limit_bytes=1 << 20)
        else:
            assert failure is not None
            outcome = failure("it was not appended")
        self._replies.append((drained, outcome))

    def reply(self, now: float) -> None:
        """Deliver the oldest reply."""
        if self._replies:
            drained, outcome = self._replies.popleft()
            if isinstance(outcome, Exception):
                self._accumulator.retry_or_fail(drained, outcome, now)
            else:
                self._accumulator.acknowledge(drained, outcome, AckLevel.DURABLE)

    def lose_connection(self, now: float) -> None:
        """Break the connection: replies are lost, requests may still arrive."""
        lost = [drained for drained, _ in self._replies]
        lost += [request.drained for request in self._requests]
        self._late.extend(
            (request.drained.queue.partition, request.copy) for request in self._requests
        )
        self._requests.clear()
        self._replies.clear()
        for drained in lost:
            self._accumulator.retry_or_fail(drained, ConnectionLostError("lost"), now)

    def let_late_arrive(self) -> None:
        """Deliver the oldest copy from a lost connection; its reply is dropped."""
        if self._late:
            partition, copy = self._late.popleft()
            self.partitions[partition].append(copy)

    def drop_late(self) -> None:
        """Lose all copies from lost connections."""
        self._late.clear()


FAILURES: list[type[BrokerError]] = [
    OverloadedError,
    RequestTimedOutError,
    UnexpectedServerError,
    RecordTooLargeError,
    InvalidBatchError,
]
"""Not appended, may be repeated; unknown, may be repeated; unknown and final; not appended, may be
repeated in parts; not appended and final."""
