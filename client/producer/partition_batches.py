"""Batches of one partition: open, ready, sent, to be sent again.

Pure: decides, given the time; no clock, no I/O.

A batch moves through these places, and batches never overtake each other:

    open -> ready -> sent -> settled
                      | ^
                      v |
                     unsent     came back with an error that another attempt may cure

With idempotence, every batch gets a base sequence when it is first sent, and the broker appends a
batch only if it has the one before. A gap arises when a batch fails for good. The next steps
depend on what is certain:

1. The batch was certainly never appended and nothing was sent after it: the next batch takes over
   its sequence.
2. It was certainly never appended, but later batches are in flight: the broker refuses them for
   the gap, so they were not appended either. Once all batches before the gap are settled and all
   after it are back, these start again at sequence 0 under a new epoch. A batch that was in flight
   on a lost connection fails instead: a copy of it may still reach the broker, together with a copy
   of the batch that was to fill the gap, before the new epoch fences them.
3. Its outcome is unknown: later batches continue under the old sequences. If the broker accepts
   them, the failed batch is in the log and there is no gap. If it refuses them for a gap, see 2.

The epoch belongs to the stream of this partition: other partitions keep theirs until they need a
new one, so that one failure does not hold up the rest.
"""

import copy
import math
from collections import deque
from collections.abc import Callable
from typing import final

import msgspec

from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.clock import Timestamp
from tidelog.client.cluster.metadata import PASSING_ERRORS, MetadataCache
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    COLUMNAR_COUNT_MIN,
    FORMAT_VERSION,
    format_for,
    restamp_producer,
)
from tidelog.wire.errors import (
    BrokerNotReadyError,
    ConnectError,
    ConnectionLostError,
    CorruptBatchError,
    DeliveryTimeoutError,
    DuplicateSequenceError,
    FencedProducerError,
    InvalidRequestError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    OverloadedError,
    PartitionFullError,
    RecordTooLargeError,
    ThrottledError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tidelog.wire.messages.produce import AckLevel

_CERTAINLY_NOT_APPENDED = (
    BrokerNotReadyError,
    ConnectError,
    CorruptBatchError,
    FencedProducerError,
    InvalidRequestError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    OverloadedError,
    PartitionFullError,
    ThrottledError,
    UnknownPartitionError,
    UnknownTopicError,
)
"""After any other error the batch may be in the log. For instance, a leader that is deposed or
shuts down while it waits for `acks` has appended already."""

TIME_MARK_INTERVAL = 0.05
"""Seconds after which records in the same open batch get a new timestamp."""


class ProducerIdentity(msgspec.Struct, frozen=True):
    """Identity of an idempotent producer at brokers."""

    producer_id: int
    producer_epoch: int


@final
class DeliveryRules:
    """Settings that all partitions of one producer share."""

    def __init__(
        self,
        *,
        codec: Codec,
        metadata: MetadataCache | None = None,
        is_idempotent: bool,
        in_flight_max: int,
        backoff: Backoff,
    ) -> None:
        """Without idempotence one batch of a partition is in flight at a time, to keep order.

        Batches have the latest format that leaders accept by `metadata`, format version 1 without.
        """
        self.codec = codec
        self.columnar_from = COLUMNAR_COUNT_MIN
        """Minimum records of a batch of format version 2."""
        self._metadata = metadata
        self.is_idempotent = is_idempotent
        self.in_flight_max = in_flight_max if is_idempotent else 1
        self.backoff = backoff

    def format_version(self, record_count: int) -> int:
        """Return the format version of a batch with so many records."""
        highest = FORMAT_VERSION if self._metadata is None else self._metadata.batch_format
        return format_for(record_count, highest, columnar_from=self.columnar_from)


_CLOSED = ProducerBatch(-1, timestamp_ms=0, linger_until=math.inf, deadline=math.inf)
"""Placeholder for "no batch is open": it has no room and no records."""


@final
class PartitionBatches:
    """The batches of one partition.

    Invariant: in order of `ProducerBatch.order` come `sent` and `unsent` (mixed), then `ready`,
    then `open`. At most `in_flight_max` batches are `sent`, and none is sent while a later one is.
    A sent batch that fails at its deadline stays in `sent` until its outcome is known, which the
    sequences of later batches depend on.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        rules: DeliveryRules,
        *,
        on_settled: Callable[[ProducerBatch], None],
    ) -> None:
        """Start empty; `on_settled` is called with every batch that is acknowledged or fails."""
        self.topic = topic
        self.partition = partition
        self.open = _CLOSED
        self.ready: deque[ProducerBatch] = deque()
        self.sent: dict[int, ProducerBatch] = {}
        self.unsent: deque[ProducerBatch] = deque()
        self.identity: ProducerIdentity | None = None
        self.is_fenced = False
        """Whether another producer took over the identity; only a new id helps."""
        self.unreachable: Exception | None = None
        """Why the leader could not be reached lately, for errors."""
        self.wakes_at = math.inf
        """Time of the accumulator's next look at this partition; owned by the accumulator."""
        self._rules = rules
        self._on_settled = on_settled
        self._next_sequence = 0
        # Batches of a higher order need a new identity. At first, all do.
        self._gap_order: int | None = -1 if rules.is_idempotent else None
        # The latest failed batch that may or may not be in the log.
        self._unresolved_order: int | None = None
        self._failure_count = 0
        self._retry_at = 0.0
        self._mark_time_at = math.inf

    @property
    def has_open(self) -> bool:
        """Whether a batch is open."""
        return self.open is not _CLOSED

    @property
    def awaits_producer_id(self) -> bool:
        """Whether sending waits for `restart_sequences`, and `restart_sequences` may be called."""
        if self._gap_order is None or self.sent:
            return False
        if self.unsent:
            return self.unsent[0].order > self._gap_order
        return bool(self.ready) or self.open is not _CLOSED

    def open_batch(self, batch: ProducerBatch, now: float) -> None:
        """Set the new batch that records are appended to."""
        assert self.open is _CLOSED, "one batch is open at a time"
        self.open = batch
        self._mark_time_at = now + TIME_MARK_INTERVAL

    def close_batch(self) -> None:
        """Close the open batch: no more records are appended to it."""
        assert self.open is not _CLOSED, "no batch is open"
        self.open.room = 0
        self.ready.append(self.open)
        self.open = _CLOSED

    def can_send(self, now: float, *, only_full: bool, is_urgent: bool) -> bool:
        """Return whether `start` has a batch to send, once an open batch is closed.

        Args:
            now: Monotonic seconds.
            only_full: Whether to keep a batch that has room left.
            is_urgent: Whether to send such a batch before it has lingered.
        """
        if len(self.sent) >= self._rules.in_flight_max:
            return False
        if self.unsent:
            return now >= self._retry_at and self._may_send_again(self.unsent[0])
        if self._gap_order is not None:
            return False
        if self.ready:
            return True
        if only_full or self.sent or self.open is _CLOSED:
            return False
        return is_urgent or now >= self.open.linger_until

    def start(self) -> ProducerBatch:
        """Return the next batch to send; it counts as sent from now on."""
        if self.unsent:
            batch = self.unsent.popleft()
        else:
            batch = self.ready.popleft()
            self._encode(batch)
        batch.attempt_count += 1
        self.sent[batch.order] = batch
        return batch

    def acknowledge(
        self, batch: ProducerBatch, base_offset: int | None, ack_level: AckLevel | None
    ) -> None:
        """Settle a batch that is in the log."""
        del self.sent[batch.order]
        self.unreachable = None
        self._failure_count = 0
        if self._unresolved_order is not None and batch.order > self._unresolved_order:
            # The broker leaves no gaps, so the ambiguous batch is in the log, too.
            self._unresolved_order = None
        self._settle(batch, None, base_offset, ack_level=ack_level)

    def retry_or_fail(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """Retry or fail a batch after a failed attempt to send it."""
        if isinstance(error, DuplicateSequenceError) and batch.is_ambiguous:
            self.acknowledge(batch, None, None)
            return
        del self.sent[batch.order]
        if not isinstance(error, _CERTAINLY_NOT_APPENDED):
            batch.is_ambiguous = True
        if batch.is_settled:  # It was past its deadline.
            self._fail(batch, error)
        elif isinstance(error, RecordTooLargeError) and self._may_split(batch):
            for part in batch.split(self._rules.codec):
                self._insert_unsent(part)
        elif not self._may_cure(batch, error):
            if batch.is_ambiguous:
                error = copy.copy(error)
                error.add_note("the records may be in the log, by this attempt or an earlier one")
            self._fail(batch, error)
        elif now >= batch.deadline:
            self._fail(batch, self._timed_out(batch, error))
        else:
            batch.last_error = error
            self._failure_count += 1
            self._retry_at = now + self._rules.backoff.delay(self._failure_count)
            self._insert_unsent(batch)

    def restart_sequences(self, identity: ProducerIdentity) -> None:
        """Start again at sequence 0 under a new identity."""
        assert self.awaits_producer_id, "an identity was not asked for"
        for batch in [batch for batch in self.unsent if batch.is_ambiguous]:
            self.unsent.remove(batch)
            self._settle(batch, self._cannot_go_on(batch), None, ack_level=None)
        self.identity = identity
        self.is_fenced = False
        self._gap_order = self._unresolved_order = None
        self._next_sequence = 0
        for batch in self.unsent:
            batch.base_sequence = self._next_sequence
            self._next_sequence += batch.record_count
            restamp_producer(
                batch.encoded,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=batch.base_sequence,
            )

    def expire(self, now: float) -> None:
        """Fail the batches that are past their deadline."""
        for batch in self.sent.values():
            if batch.deadline > now:
                break
            if not batch.is_settled:
                batch.is_ambiguous = True
                error = self._timed_out(batch, batch.last_error)
                self._settle(batch, error, None, ack_level=None)
        while self.unsent and self.unsent[0].deadline <= now:
            batch = self.unsent.popleft()
            self._fail(batch, self._timed_out(batch, self.unreachable or batch.last_error))
        while not self.unsent and self.ready and self.ready[0].deadline <= now:
            batch = self.ready.popleft()
            self._settle(batch, self._timed_out(batch, self.unreachable), None, ack_level=None)
        if not self.unsent and not self.ready and self.open.deadline <= now:
            batch, self.open = self.open, _CLOSED
            self._settle(batch, self._timed_out(batch, self.unreachable), None, ack_level=None)

    def fail_all(self, error: Exception) -> None:
        """Fail every batch that is not in flight."""
        if self.has_open:
            self.close_batch()
        while self.unsent:
            self._fail(self.unsent.popleft(), error)
        while self.ready:
            self._settle(self.ready.popleft(), error, None, ack_level=None)

    def mark_time(self, now: Timestamp) -> None:
        """Set a new timestamp for the next records, if it is time."""
        if now.monotonic >= self._mark_time_at and self.has_open:
            self.open.mark_time(now.unix_ms)
            self._mark_time_at = now.monotonic + TIME_MARK_INTERVAL

    def next_wake(self, now: float) -> float:
        """Return when time alone will change something here, in monotonic seconds, maybe inf.

        Overdue work waits for another event, such as a reply or a leader.
        """
        times = [batch.deadline for batch in self.sent.values() if not batch.is_settled]
        if self.open is not _CLOSED:
            times += (self.open.linger_until, self.open.deadline, self._mark_time_at)
        if self.ready:
            times.append(self.ready[0].deadline)
        if self.unsent:
            times += (self._retry_at, self.unsent[0].deadline)
        wakes_at = math.inf
        for time in times:
            if now < time < wakes_at:
                wakes_at = time
        return wakes_at

    def _encode(self, batch: ProducerBatch) -> None:
        identity = self.identity or ProducerIdentity(0, 0)
        batch.encode(
            self._rules.codec,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=self._next_sequence,
            format_version=self._rules.format_version(len(batch.values)),
        )
        if self._rules.is_idempotent:
            batch.has_sequence = True
            self._next_sequence += batch.record_count

    def _may_send_again(self, batch: ProducerBatch) -> bool:
        """Return whether order allows sending a returned batch."""
        if self.sent and next(reversed(self.sent)) > batch.order:
            return False  # A later batch is not back yet.
        return self._gap_order is None or batch.order < self._gap_order

    def _may_cure(self, batch: ProducerBatch, error: Exception) -> bool:
        """Return whether another attempt may succeed, and prepare it."""
        if isinstance(error, FencedProducerError):
            self.is_fenced = True
            self._gap_order = -1
            return not batch.is_ambiguous
        if isinstance(error, OutOfOrderSequenceError):
            return self._may_close_gap(batch, error)
        # With `over_quota = error`, the program decides when to send again.
        return isinstance(error, PASSING_ERRORS) and not isinstance(error, ThrottledError)

    def _may_close_gap(self, batch: ProducerBatch, error: OutOfOrderSequenceError) -> bool:
        if any(other.order < batch.order for other in (*self.sent.values(), *self.unsent)):
            return True  # The batch before it is sent again first.
        if self._gap_order is not None and batch.order > self._gap_order:
            return True
        # Either a batch before it failed, or the broker has forgotten this producer, for instance
        # after a long idle time. In any other case, acknowledged records are missing from the log.
        # That must be reported once: later batches continue under a new identity.
        is_forgotten = error.detail("expected_sequence") == 0 and batch.base_sequence > 0
        if self._unresolved_order is not None or is_forgotten:
            self._gap_order = batch.order - 1
            return True
        self._gap_order = batch.order
        return False

    @staticmethod
    def _may_split(batch: ProducerBatch) -> bool:
        return batch.record_count > 1 and not batch.is_ambiguous

    def _fail(self, batch: ProducerBatch, error: Exception) -> None:
        """Settle a batch that had a sequence, and handle the gap that it leaves."""
        if batch.has_sequence:
            if batch.is_ambiguous:
                self._unresolved_order = max(batch.order, self._unresolved_order or -1)
            elif any(other.order > batch.order for other in (*self.sent.values(), *self.unsent)):
                if self._gap_order is None or self._gap_order > batch.order:
                    self._gap_order = batch.order
            else:
                self._next_sequence = batch.base_sequence
        self._settle(batch, error, None, ack_level=None)

    def _settle(
        self,
        batch: ProducerBatch,
        failure: Exception | None,
        base_offset: int | None,
        *,
        ack_level: AckLevel | None,
    ) -> None:
        if batch.is_settled:
            return
        batch.settle(failure, base_offset, ack_level)
        parent = batch.parent
        if parent is None:
            self._on_settled(batch)
        elif all(part.is_settled for part in parent.parts):
            failures = [part.failure for part in parent.parts if part.failure is not None]
            self._settle(parent, failures[0] if failures else None, None, ack_level=None)

    def _insert_unsent(self, batch: ProducerBatch) -> None:
        unsent = self.unsent
        place = len(unsent)
        while place and unsent[place - 1].order > batch.order:
            place -= 1
        unsent.insert(place, batch)

    def _cannot_go_on(self, batch: ProducerBatch) -> ConnectionLostError:
        return ConnectionLostError(
            f"{self._records_of(batch)} may or may not be in the log: their outcome is unknown"
            f" ({batch.last_error}); they cannot be sent again without risking duplicates, because"
            f" an earlier batch failed"
        )

    def _timed_out(self, batch: ProducerBatch, error: Exception | None) -> DeliveryTimeoutError:
        if batch.is_ambiguous:
            fate = "were not acknowledged in time and may or may not be in the log"
        else:
            fate = "could not be delivered in time and are not in the log"
        why = f"; the last attempt failed: {error}" if error is not None else ""
        return DeliveryTimeoutError(f"{self._records_of(batch)} {fate}{why}")

    def _records_of(self, batch: ProducerBatch) -> str:
        count = batch.count
        return f"{count} record{'s' if count > 1 else ''} for {self.topic}/{self.partition}"
