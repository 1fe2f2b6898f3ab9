"""Record accumulator of a producer: batches by partition, and the memory that they take.

Pure: decides, given the time; no clock, no I/O.

A record is routed to the queue of its partition and appended to the open batch there. While the
partitions of a topic are not known, its records wait unrouted, in order. `drain` returns the
batches to send to each broker now; the shell reports the outcome of a batch to its queue.

Memory is reserved in steps, so that the fastest append compares only with the room of its batch.
"""

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from operator import countOf
from typing import NamedTuple, final

import msgspec

from tidelog.client.cluster.clock import Timestamp
from tidelog.client.cluster.metadata import check_partition
from tidelog.client.metrics.counters import ProducerCounters, count_error
from tidelog.client.producer.partition_batches import (
    TIME_MARK_INTERVAL,
    DeliveryRules,
    PartitionBatches,
    ProducerIdentity,
)
from tidelog.client.producer.partitioner import TopicPartitioner
from tidelog.client.producer.producer_batch import RECORD_OVERHEAD_BYTES, ProducerBatch
from tidelog.client.producer.producer_record import ManyRecords, ProducerRecord
from tidelog.client.producer.ready_partitions import Destination, ReadyPartitions
from tidelog.wire.batch.record_batch import PRODUCED_COUNT_MAX
from tidelog.wire.errors import (
    DeliveryTimeoutError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tidelog.wire.messages.produce import AckLevel

_RESERVE_STEP = 16 * 1024


@final
class Limits(msgspec.Struct, frozen=True):
    """Sizes of batches and of the buffer, and times of records."""

    batch_size: int
    buffer_memory: int
    linger: float
    """Seconds that a batch waits to be filled."""
    delivery_timeout: float
    """Seconds until a record fails."""


@final
class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """Place where records were appended."""

    queue: PartitionBatches
    batch: ProducerBatch
    place: int
    """Place of the first record in the batch."""
    count: int


@final
class DrainedBatch(msgspec.Struct, frozen=True, gc=False):
    """Batch to be sent now."""

    queue: PartitionBatches
    batch: ProducerBatch


class _UnroutedRecord(NamedTuple):
    """Record of a topic whose partitions are not known yet."""

    record: ProducerRecord
    deadline: float
    """Monotonic time at which it fails."""


@final
class RecordAccumulator:
    """All records of one producer that are not settled.

    Invariant: `buffered_bytes` is the sum of `held_bytes` of the unsettled batches and of the
    sizes of unrouted records.
    """

    def __init__(
        self,
        limits: Limits,
        rules: DeliveryRules,
        entropy: random.Random,
        *,
        counters: ProducerCounters,
    ) -> None:
        """Start empty, without topics."""
        self.queues_by_topic: dict[str, dict[bytes | None, PartitionBatches]] = {}
        """Queues by key, for topics whose partitions are known: the queue of each recent key, and
        under `None` that for records without a key. The hot path reads it and appends to the
        queue's open batch while that has room; everything else goes through `append`. Empty while
        there is a failure to be raised."""
        self.ready_partitions = ReadyPartitions()
        self.buffered_bytes = 0
        self.failed_record_count = 0
        """Records that failed since `take_failure` and that no call waited for."""
        self.acknowledged_record_count = 0
        self.has_full_batch = False
        """Whether a full batch was closed since the last `drain`."""
        self.delivery_timeout = limits.delivery_timeout
        """Seconds between the opening of a batch and its deadline."""
        self._limits = limits
        self._rules = rules
        self._entropy = entropy
        self._counters = counters
        self._first_wake_s = min(
            TIME_MARK_INTERVAL, limits.linger or math.inf, limits.delivery_timeout
        )
        """Seconds after the opening of a batch at which time changes something."""
        self.unrouted_until = math.inf
        """Time of the next look at unrouted records: no later than any deadline of theirs."""
        self._identity: ProducerIdentity | None = None
        self._failure: Exception | None = None
        self._topics: dict[str, TopicPartitioner] = {}
        self.knows = self._topics.__contains__
        """Returns whether the partitions of a topic are known."""
        self._retired: dict[str, list[PartitionBatches]] = {}
        """Queues of topics that brokers have called unknown. If the topic exists after all, they
        continue. New queues would start again at a sequence that brokers have seen, and brokers
        would drop their records as duplicates."""
        self._unrouted: dict[str, deque[_UnroutedRecord]] = {}
        self._unsettled: dict[int, tuple[PartitionBatches, ProducerBatch]] = {}
        self._orders = itertools.count(0, PRODUCED_COUNT_MAX)
        self._last_order = -1
        self._is_exhausted = False
        self._is_routing = False
        """Whether unrouted records are being routed: they need no room of their own."""

    @property
    def free_bytes(self) -> int:
        """Bytes of the buffer that are free."""
        return self._limits.buffer_memory - self.buffered_bytes

    @property
    def has_failure(self) -> bool:
        """Whether `take_failure` would return an error."""
        return self._failure is not None

    @property
    def has_unrouted(self) -> bool:
        """Whether records wait for the partitions of their topic to be known."""
        return bool(self._unrouted)

    @property
    def unsettled_record_count(self) -> int:
        """Number of records that are neither acknowledged nor failed."""
        # Copies: another thread may ask, for `Client.statistics`.
        unrouted = sum(len(waiting) for waiting in self._unrouted.copy().values())
        return unrouted + sum(batch.count for _, batch in self._unsettled.copy().values())

    @property
    def topics(self) -> list[str]:
        """Topics of all records so far, with known partitions or not."""
        return [*self._topics, *self._unrouted]

    def append(self, record: ProducerRecord, now: Timestamp) -> AppendResult | None:
        """Append a record to a known topic; return `None` when the buffer is full.

        Raises:
            RecordTooLargeError: The record can never fit into the buffer.
            UnknownPartitionError: The topic does not have the partition.
        """
        size = record.size
        if size > self._limits.buffer_memory:
            raise self._too_large(size)
        topic = self._topics[record.topic]
        partition = record.partition
        if partition is not None:
            check_partition(record.topic, partition, len(topic.queues))
        elif record.key is not None:
            partition = topic.partition_for(record.key)
        queue = self._queue_with_room(topic, partition, size, total_bytes=size, now=now)
        if queue is None:
            return None
        batch = queue.open
        place = len(batch.values)
        batch.room -= size
        if record.headers:
            batch.append_headers(record.headers)
        if record.timestamp_ms is not None:
            batch.append_timestamp(record.timestamp_ms)
        if record.key is not None:
            batch.append_keyed(record.key, record.value)
        else:
            batch.append_value(record.value)
        return AppendResult(queue, batch, place, 1)

    def append_many(
        self, name: str, partition: int | None, records: ManyRecords, *, now: Timestamp
    ) -> AppendResult | None:
        """Append as many records as one batch takes; return `None` when the buffer is full.

        Raises:
            UnknownPartitionError: The topic does not have the partition.
        """
        topic = self._topics[name]
        if partition is not None:
            check_partition(name, partition, len(topic.queues))
        queue = self._queue_with_room(
            topic, partition, records.next_size, total_bytes=records.remaining_bytes, now=now
        )
        if queue is None:
            return None
        batch = queue.open
        place = len(batch.values)
        return AppendResult(queue, batch, place, records.move_to(batch))

    def append_unrouted(self, record: ProducerRecord, now: Timestamp) -> bool:
        """Keep a record until the partitions of its topic are known; `False` when there is no room.

        No call can wait for the outcome of such a record.
        """
        if record.size > self.free_bytes:
            return False
        self.buffered_bytes += record.size
        waiting = self._unrouted.setdefault(record.topic, deque())
        deadline = now.monotonic + self._limits.delivery_timeout
        waiting.append(_UnroutedRecord(record, deadline))
        self.unrouted_until = min(self.unrouted_until, deadline)
        return True

    def places_by_partition(
        self, name: str, keys: Sequence[bytes | None]
    ) -> dict[int | None, list[int]]:
        """Return the places of the keys by partition, in order.

        `None` means the sticky partition, for records without a key.
        """
        queues: Sequence[PartitionBatches | None] = self._topics[name].queues_of(keys)
        if countOf(map(type, keys), bytes) != len(keys):
            queues = [
                None if key is None else queue for key, queue in zip(keys, queues, strict=True)
            ]
        places: dict[PartitionBatches | None, list[int]] = {
            queue: [] for queue in dict.fromkeys(queues)
        }
        if len(places) == 1:
            places[queues[0]] += range(len(queues))
        else:
            for place, queue in enumerate(queues):
                places[queue].append(place)
        return {
            None if queue is None else queue.partition: found for queue, found in places.items()
        }

    def set_topic(self, name: str, is_available: list[bool], now: Timestamp) -> None:
        """Set the partitions of a topic and which have a leader; route its unrouted records."""
        count = len(is_available)
        topic = self._topics.get(name)
        if topic is not None and len(topic.queues) > count:
            what = f"topic {name!r} was created again and has {count} partitions now"
            self.fail_topic(name, UnknownTopicError(what))
            topic = None
        if topic is None:
            queues = self._retired.pop(name, [])[:count]
            queues += [self._new_queue(name, partition) for partition in range(len(queues), count)]
            topic = TopicPartitioner(queues, self._entropy.randrange(count))
            self._topics[name] = topic
            if self._failure is None:
                self.queues_by_topic[name] = topic.queue_by_key
        elif len(topic.queues) < count:
            for partition in range(len(topic.queues), count):
                topic.queues.append(self._new_queue(name, partition))
            topic.forget_keys()
        topic.is_available = is_available
        self._is_routing = True
        for record, _ in self._unrouted.pop(name, ()):
            self.buffered_bytes -= record.size
            try:
                appended = self.append(record, now)
            except UnknownPartitionError as error:
                self._fail_unrouted(name, error)
            else:
                assert appended is not None, "the record had its room already"
        self._is_routing = False

    def fail_topic(self, name: str, error: Exception) -> None:
        """Fail all records of a topic that are not in flight; it is unknown from now on."""
        for record, _ in self._unrouted.pop(name, ()):
            self.buffered_bytes -= record.size
            self._fail_unrouted(name, error)
        topic = self._topics.pop(name, None)
        self.queues_by_topic.pop(name, None)
        if topic is not None:
            for queue in topic.queues:
                queue.fail_all(error)
            self._retired[name] = topic.queues

    def drain(
        self,
        now: float,
        destination_of: Callable[[PartitionBatches], Destination | None],
        *,
        only_full: bool = False,
    ) -> dict[Destination, list[DrainedBatch]]:
        """Return at most one batch of each partition, by the destination to send it to now.

        To be called until it returns nothing.

        Args:
            now: Monotonic seconds.
            destination_of: Returns the leader of a partition if it can be reached.
            only_full: Keep batches that have room left.
        """
        self.has_full_batch = False
        partitions = self.ready_partitions
        ready: dict[Destination, list[PartitionBatches]] = {}
        while not ready and (partitions.backed_up or (partitions.candidates and not only_full)):
            ready = partitions.take_ready(
                now, destination_of, only_full=only_full, is_urgent=self._is_exhausted
            )
            if not partitions.without_identity or not self._use_latest_identity():
                break
        drained: dict[Destination, list[DrainedBatch]] = {}
        for destination, queues in ready.items():
            drained[destination] = [DrainedBatch(queue, self._start(queue)) for queue in queues]
        return drained

    def acknowledge(
        self, drained: DrainedBatch, base_offset: int | None, ack_level: AckLevel | None
    ) -> None:
        """Settle a batch that is in the log."""
        drained.queue.acknowledge(drained.batch, base_offset, ack_level)
        self.ready_partitions.touch(drained.queue)

    def retry_or_fail(self, drained: DrainedBatch, error: Exception, now: float) -> None:
        """Retry or fail a batch after a failed attempt to send it."""
        count_error(self._counters.errors, error)
        topic = self._topics.get(drained.queue.topic)
        if isinstance(error, RecordTooLargeError) and error.limit_bytes and topic is not None:
            topic.batch_size = min(topic.batch_size, error.limit_bytes)
        drained.queue.retry_or_fail(drained.batch, error, now)
        self.ready_partitions.touch(drained.queue)
        self.ready_partitions.plan_wake(drained.queue, now)

    def wake(self, now: Timestamp) -> None:
        """Do what is due at this time; to be called at `next_wake`."""
        for queue in self.ready_partitions.take_due(now.monotonic):
            queue.expire(now.monotonic)
            queue.mark_time(now)
            self.ready_partitions.plan_wake(queue, now.monotonic)
        for topic, waiting in list(self._unrouted.items()):
            while waiting and waiting[0].deadline <= now.monotonic:
                record, _ = waiting.popleft()
                self.buffered_bytes -= record.size
                self._fail_unrouted(topic, _never_routed(topic))
            if not waiting:
                del self._unrouted[topic]
        self.unrouted_until = min(
            (waiting[0].deadline for waiting in self._unrouted.values()), default=math.inf
        )

    @property
    def next_wake(self) -> float:
        """When to call `wake`, in monotonic seconds, maybe inf."""
        return min(self.ready_partitions.next_wake, self.unrouted_until)

    def close_all(self) -> int:
        """Close all open batches; return a barrier for `is_settled`."""
        for queue, batch in list(self._unsettled.values()):
            if batch is queue.open:
                self._close(queue)
        return self._last_order

    def is_settled(self, barrier: int) -> bool:
        """Return whether every batch from the time of `close_all` is settled."""
        return not self._unsettled or next(iter(self._unsettled)) > barrier

    def stop_awaiting(self, appended: AppendResult) -> None:
        """Stop waiting for these records; surface a failure through `take_failure`."""
        batch = appended.batch
        batch.awaited_count -= appended.count
        if batch.is_settled and batch.failure is not None:
            end = appended.place + appended.count
            failed_count = batch.failed_count(appended.place, end)
            if failed_count:
                self.keep_failure(batch.failure, failed_count)

    def take_failure(self) -> Exception | None:
        """Return the first failure of records that no call waited for, once."""
        failure, self._failure = self._failure, None
        self.failed_record_count = 0
        for name, topic in self._topics.items():
            self.queues_by_topic[name] = topic.queue_by_key
        return failure

    @property
    def producer_id(self) -> int | None:
        """Producer id of new batches, `None` before there is one."""
        return None if self._identity is None else self._identity.producer_id

    def identity_to_renew(self) -> ProducerIdentity | None:
        """Return the identity whose next epoch a broker is to be asked for, if one is needed.

        `ProducerIdentity(0, 0)` asks for a new identity. The answer goes to `set_identity`.
        """
        if not self.ready_partitions.without_identity:
            return None
        waiting = self.ready_partitions.awaiting_producer_id()
        if not waiting:
            return None
        if self._identity is None or any(queue.is_fenced for queue in waiting):
            return ProducerIdentity(0, 0)
        return self._identity

    def discard_identity(self) -> None:
        """Discard the latest identity, so that a new one is requested."""
        self._identity = None

    def fail_partitions_awaiting_producer_id(self, error: Exception) -> None:
        """Fail the partitions that wait for an identity, after a broker refused it."""
        for queue in self.ready_partitions.awaiting_producer_id():
            queue.fail_all(error)

    def set_identity(self, identity: ProducerIdentity) -> None:
        """Set the identity from a broker, and resume the partitions that wait for it."""
        self._identity = identity
        self._use_latest_identity()

    def _queue_with_room(
        self,
        topic: TopicPartitioner,
        partition: int | None,
        size: int,
        *,
        total_bytes: int,
        now: Timestamp,
    ) -> PartitionBatches | None:
        """Return a queue whose open batch has room for `size` bytes, `None` when there is none.

        Args:
            topic: Topic of the records.
            partition: Partition; `None` means the sticky partition.
            size: Bytes of the next record.
            total_bytes: Bytes of all records of the call.
            now: Time of the call.
        """
        batch_size = min(self._limits.batch_size, topic.batch_size)
        queue = topic.queues[topic.sticky if partition is None else partition]
        batch = queue.open
        used = batch.held_bytes - batch.room
        while used and (used + size > batch_size or len(batch.values) >= PRODUCED_COUNT_MAX):
            self._close(queue)
            self.has_full_batch = True
            queue = topic.queues[topic.sticky if partition is None else partition]
            batch = queue.open
            used = batch.held_bytes - batch.room
        missing = size - batch.room
        if missing <= 0:
            return queue
        free = self._limits.buffer_memory - self.buffered_bytes
        if self._is_routing:
            free = max(free, missing)
        if missing > free:
            self._exhaust()
            return None
        if batch.deadline == math.inf:  # No batch is open.
            batch = self._open_batch(queue, now)
        # Each record takes at least its overhead from the room: so the room bounds their number.
        most = (PRODUCED_COUNT_MAX - len(batch.values)) * RECORD_OVERHEAD_BYTES - batch.room
        reserved = min(max(total_bytes, _RESERVE_STEP, used), batch_size - used, most)
        reserved = max(missing, reserved)
        reserved = min(int(reserved), free)
        batch.held_bytes += reserved
        self.buffered_bytes += reserved
        batch.room += reserved
        return queue

    def _too_large(self, size: int) -> RecordTooLargeError:
        limit = self._limits.buffer_memory
        return RecordTooLargeError(
            f"a record of {size} bytes does not fit into the producer's buffer of {limit} bytes;"
            " raise buffer_memory",
            size_bytes=size,
            limit_bytes=limit,
        )

    def _open_batch(self, queue: PartitionBatches, now: Timestamp) -> ProducerBatch:
        self._last_order = next(self._orders)
        batch = ProducerBatch(
            self._last_order,
            timestamp_ms=now.unix_ms,
            linger_until=now.monotonic + self._limits.linger,
            deadline=now.monotonic + self._limits.delivery_timeout,
        )
        queue.open_batch(batch, now.monotonic)
        self._unsettled[batch.order] = (queue, batch)
        self.ready_partitions.touch(queue)
        if now.monotonic + self._first_wake_s < queue.wakes_at:
            self.ready_partitions.plan_wake(queue, now.monotonic)
        return batch

    def _close(self, queue: PartitionBatches) -> None:
        batch = queue.open
        self._hold(batch, batch.held_bytes - batch.room)
        self._shut(queue)
        self.ready_partitions.touch(queue)

    def _shut(self, queue: PartitionBatches) -> None:
        queue.close_batch()
        topic = self._topics.get(queue.topic)
        if topic is not None and topic.queues[topic.sticky] is queue and len(topic.queues) > 1:
            topic.rotate()

    def _start(self, queue: PartitionBatches) -> ProducerBatch:
        is_last = not (queue.ready or queue.unsent)
        if is_last:
            self._shut(queue)
        batch = queue.start()
        if batch.attempt_count > 1:
            self._counters.topics.of(queue.topic).retries += 1
        if batch.parent is None:  # A part uses the reservation of the batch it was split from.
            self._hold(batch, len(batch.encoded))
        if not is_last:
            self.ready_partitions.touch(queue)
        return batch

    def _exhaust(self) -> None:
        """Send lingering batches now, because a call waits for room."""
        if not self._is_exhausted:
            self._is_exhausted = True
            for queue, batch in self._unsettled.values():
                if batch is queue.open:
                    self.ready_partitions.touch(queue)

    def _hold(self, batch: ProducerBatch, held_bytes: int) -> None:
        self.buffered_bytes += held_bytes - batch.held_bytes
        batch.held_bytes = held_bytes
        if self._is_exhausted and self.free_bytes >= self._limits.batch_size:
            self._is_exhausted = False

    def _new_queue(self, topic: str, partition: int) -> PartitionBatches:
        return PartitionBatches(topic, partition, self._rules, on_settled=self._on_settled)

    def _use_latest_identity(self) -> bool:
        """Apply the latest identity to partitions that wait for one; return whether one used it."""
        identity = self._identity
        if identity is None or not self.ready_partitions.without_identity:
            return False
        waiting = self.ready_partitions.awaiting_producer_id()
        waiting = [queue for queue in waiting if queue.identity != identity]
        for queue in waiting:
            queue.restart_sequences(identity)
            self.ready_partitions.touch(queue)
        return bool(waiting)

    def _on_settled(self, batch: ProducerBatch) -> None:
        byte_count = batch.held_bytes
        self._hold(batch, 0)
        queue, _ = self._unsettled.pop(batch.order)
        failed_count = 0
        if batch.failure is not None or batch.parts:
            failed_count = batch.failed_count(0, batch.record_count)
        acknowledged_count = batch.record_count - failed_count
        self.acknowledged_record_count += acknowledged_count
        self._counters.settled(
            queue.topic,
            acknowledged=acknowledged_count,
            failed=failed_count,
            byte_count=byte_count,
        )
        unawaited_count = min(failed_count, batch.record_count - batch.awaited_count)
        if batch.failure is not None and unawaited_count:
            self.keep_failure(batch.failure, unawaited_count)

    def _fail_unrouted(self, topic: str, failure: Exception) -> None:
        """Fail one record that waited for the partitions of its topic."""
        self._counters.topics.of(topic).failed_records += 1
        self.keep_failure(failure, 1)

    def keep_failure(self, failure: Exception, record_count: int) -> None:
        """Keep a failure of records that no call waits for, for `take_failure`."""
        self._failure = self._failure or failure
        self.queues_by_topic.clear()
        self.failed_record_count += record_count


def _never_routed(topic: str) -> DeliveryTimeoutError:
    return DeliveryTimeoutError(
        f"a record for topic {topic!r} could not be delivered in time and is not in the log:"
        f" no broker knew the partitions of the topic"
    )
