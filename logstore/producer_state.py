"""State of a log's idempotent producers (Kafka: ProducerStateManager).

Pure: no clock, no I/O. Checkpoints keep the whole window of recent batches. So a retry of each of
them gets its original offset after a restart too (Kafka's snapshot keeps only the last batch).
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, final

import msgspec

from tidelog.wire.batch.record_batch import FLAG_CONTROL, BatchHeader
from tidelog.wire.errors import (
    DuplicateSequenceError,
    FencedProducerError,
    OutOfOrderSequenceError,
    OverloadedError,
)
from tidelog.wire.messages.produce import BROKER_PRODUCER_IDS_FROM, STAGED_PRODUCER_ID

WINDOW_BATCHES: Final = 5
"""Maximum batches of one partition that a producer has in flight (Kafka's limit as well)."""
STAGED_WINDOW_BATCHES: Final = 65
"""The same for the producer of staged records, of which there is one in a log. Small commits of
many names share a sync of the disk only while they are in flight together."""
PRODUCERS_MAX: Final = 100_000
"""Maximum producers of a log without brokers; with a window each they take about 50 MB."""
KEPT_AT_LEAST_MS: Final = 15 * 60 * 1000
"""Minimum time before another producer may replace a silent one; all retries have ended by then."""


class AppendedBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One batch in the window of a producer."""

    base_sequence: int
    next_sequence: int
    """Exclusive end."""
    base_offset: int


class ProducerState(msgspec.Struct, frozen=True, array_like=True):
    """State of one producer; a checkpoint stores it unchanged."""

    producer_id: int
    producer_epoch: int
    last_append_ms: int
    """Time of its last append by the broker's clock; record timestamps do not matter."""
    window: tuple[AppendedBatch, ...] = ()
    """Its last batches, oldest first."""
    first_sequence: int = 0
    """Next sequence if the window is empty."""

    @property
    def expected_sequence(self) -> int:
        """Sequence after its last record."""
        return self.window[-1].next_sequence if self.window else self.first_sequence


class ProducerPosition(NamedTuple):
    """Epoch and next sequence of a producer."""

    epoch: int
    next_sequence: int | None
    """Sequence after its last record; `None` if its whole window was truncated."""


@final
class ProducerStates:
    """The last batches of every producer that wrote to this log.

    Invariant: offsets grow within a window. A window is empty only if all of it was truncated; its
    epoch stays known and fences. Producers are in the order of their last appends.
    """

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        """Start with the producers of a checkpoint."""
        self._producers = {state.producer_id: state for state in states}

    def __len__(self) -> int:
        """Return the number of known producers."""
        return len(self._producers)

    def check(self, header: BatchHeader) -> int | None:
        """Return the offset of an earlier append of this batch, `None` if the batch is new.

        A producer that is not known (any more) starts at 0, because it may have several batches in
        flight. If the log refused the first and accepted a later one, a retry of the first would
        look like a duplicate and be acknowledged. Brokers have one batch in flight and start at any
        sequence; the producer of staged records may also skip sequences.

        Raises:
            FencedProducerError: The batch carries an older epoch.
            OutOfOrderSequenceError: A batch before this one is missing.
            DuplicateSequenceError: The batch was appended, but longer ago than the window.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if header.base_sequence == 0 or _is_broker(header.producer_id):
                return None
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} is not known (any more), but sent sequence"
                f" {header.base_sequence}; it must start again at 0 under its next epoch",
                expected_sequence=0,
            )
        if header.producer_epoch != producer.producer_epoch:
            return self._check_new_epoch(header, producer.producer_epoch)
        if not producer.window and _is_broker(header.producer_id):
            return None
        expected = producer.expected_sequence
        if header.base_sequence == expected:
            return None
        if header.was_staged and header.base_sequence > expected:
            return None
        if header.base_sequence > expected:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} sent sequence {header.base_sequence},"
                f" the log expects {expected}",
                expected_sequence=expected,
            )
        for batch in producer.window:
            if (
                batch.base_sequence == header.base_sequence
                and batch.next_sequence == header.next_sequence
            ):
                return batch.base_offset
        raise DuplicateSequenceError(
            f"producer {header.producer_id} sent sequence {header.base_sequence} again,"
            f" which was appended before the last {_window_size(header.producer_id)} batches"
        )

    @staticmethod
    def _check_new_epoch(header: BatchHeader, known_epoch: int) -> None:
        if header.producer_epoch < known_epoch:
            raise FencedProducerError(
                f"producer {header.producer_id} has epoch {known_epoch} now,"
                f" the batch carries {header.producer_epoch}"
            )
        if header.base_sequence != 0:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} began epoch {header.producer_epoch} with"
                f" sequence {header.base_sequence} instead of 0",
                expected_sequence=0,
            )

    def find(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the appended batch with the producer and base sequence of a batch, if known.

        It may have other content.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.producer_epoch != header.producer_epoch:
            return None
        for batch in producer.window:
            if batch.base_sequence == header.base_sequence:
                return batch
        return None

    def admit(self, header: BatchHeader, *, now_ms: int) -> int | None:
        """Return the offset of an earlier append of a batch, `None` if the batch is to be appended.

        Raises:
            OverloadedError: Too many other producers wrote recently. A producer that is forgotten
                too soon could retry a batch and duplicate it. Brokers are few, and have no limit.
            BrokerError: As `check` raises.
        """
        producer_id = header.producer_id
        if producer_id == 0 or header.flags & FLAG_CONTROL:
            return None
        producer = self._producers.get(producer_id)
        if (
            producer is not None
            and producer.window
            and producer.producer_epoch == header.producer_epoch
            and producer.window[-1].next_sequence == header.base_sequence
        ):
            return None  # As `check` decides, without its calls.
        known_at = self.check(header)
        if known_at is None and producer is None and not _is_broker(producer_id):
            self._require_room(now_ms=now_ms)
        return known_at

    def _require_room(self, *, now_ms: int) -> None:
        if len(self._producers) < PRODUCERS_MAX:
            return
        oldest = self._oldest()
        if oldest is None or oldest.last_append_ms > now_ms - KEPT_AT_LEAST_MS:
            raise OverloadedError(
                f"{len(self._producers)} producers wrote to this partition in the last"
                f" {KEPT_AT_LEAST_MS // 60_000} minutes, and the log tracks no more; reuse each"
                " producer for more than a few batches"
            )

    def appended(self, header: BatchHeader, base_offset: int, *, now_ms: int) -> None:
        """Add a batch that is in the log at `base_offset`, after all known batches."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer_id == 0 or header.flags & FLAG_CONTROL:
            return
        known = self._producers.pop(producer_id, None)
        window = known.window if known is not None and known.producer_epoch == epoch else ()
        sequence = header.base_sequence
        batch = AppendedBatch(sequence, sequence + header.last_offset_delta + 1, base_offset)
        self._producers[producer_id] = ProducerState(
            producer_id, epoch, now_ms, (*window[1 - _window_size(producer_id) :], batch)
        )
        if len(self._producers) > PRODUCERS_MAX and not _is_broker(producer_id):
            oldest = self._oldest()
            if oldest is not None:
                del self._producers[oldest.producer_id]

    def learn(self, headers: Iterable[BatchHeader], *, now_ms: int) -> None:
        """Add batches that are in the log, maybe before known batches.

        For batches that were damaged when the log was opened. All batches of a log, in any order
        and more than once, lead to the same state as their appends.
        """
        for header in headers:
            if header.is_sequenced:
                self._learn(header, now_ms=now_ms)

    def _learn(self, header: BatchHeader, *, now_ms: int) -> None:
        known = self._producers.get(header.producer_id)
        if known is None or known.producer_epoch < header.producer_epoch:
            has_room = len(self._producers) < PRODUCERS_MAX or _is_broker(header.producer_id)
            if known is not None or has_room:
                self.appended(header, header.base_offset, now_ms=now_ms)
            return
        is_gap_behind = not known.window and header.next_sequence != known.first_sequence
        # Without a window, what came between the two was known and cut off. Of what was staged less
        # than a window is cut off at a time, and sequences are left out: nothing came between.
        is_cut_between = is_gap_behind and not header.was_staged
        if known.producer_epoch > header.producer_epoch or is_cut_between:
            return
        by_offset = {batch.base_offset: batch for batch in known.window}
        by_offset[header.base_offset] = _batch(header, header.base_offset)
        kept = sorted(by_offset)[-_window_size(header.producer_id) :]
        window = tuple(by_offset[offset] for offset in kept)
        self._producers[header.producer_id] = msgspec.structs.replace(known, window=window)

    def truncate(self, log_end_offset: int) -> None:
        """Remove batches at or above the new end of the log.

        A producer has at most a window of batches in flight, so its retries are in the window even
        if all of it is truncated. Then it must start with the first of them.
        """
        for producer in list(self._producers.values()):
            kept = tuple(each for each in producer.window if each.base_offset < log_end_offset)
            if len(kept) < len(producer.window):
                first_sequence = producer.window[len(kept)].base_sequence
                self._producers[producer.producer_id] = msgspec.structs.replace(
                    producer, window=kept, first_sequence=first_sequence
                )

    def position(self, producer_id: int) -> ProducerPosition | None:
        """Return the position of a producer, `None` if it is not known."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        next_sequence = producer.expected_sequence if producer.window else None
        return ProducerPosition(producer.producer_epoch, next_sequence)

    def expire(self, *, before_ms: int, is_kept: Callable[[int], bool]) -> None:
        """Forget producers whose last append is before `before_ms`, except if `is_kept`."""
        # By time and not by order, because the clock may have jumped.
        states = self._producers.values()
        silent = [each.producer_id for each in states if each.last_append_ms < before_ms]
        for producer_id in silent:
            if not is_kept(producer_id):
                del self._producers[producer_id]

    def snapshot(self) -> list[ProducerState]:
        """Return the states for a checkpoint."""
        return list(self._producers.values())

    def _oldest(self) -> ProducerState | None:
        """Return the producer with the oldest append; brokers are never forgotten."""
        for producer in self._producers.values():
            if not _is_broker(producer.producer_id):
                return producer
        return None


def _is_broker(producer_id: int) -> bool:
    return producer_id >= BROKER_PRODUCER_IDS_FROM


def _window_size(producer_id: int) -> int:
    return STAGED_WINDOW_BATCHES if producer_id == STAGED_PRODUCER_ID else WINDOW_BATCHES


def _batch(header: BatchHeader, base_offset: int) -> AppendedBatch:
    return AppendedBatch(header.base_sequence, header.next_sequence, base_offset)
