"""What the log knows of its idempotent producers.

Pure: no clock, no I/O. The whole window of recent batches is kept, also in checkpoints, so that
a retry of any of them gets its original offset after a restart too (Kafka's snapshot keeps only
the last batch).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, final

import msgspec

from wire.errors import DuplicateSequenceError, FencedProducerError, OutOfOrderSequenceError
from wire.produce import BROKER_PRODUCER_IDS_FROM
from wire.record_batch import BatchHeader

WINDOW_BATCHES = 5
"""A producer may have so many batches of one partition under way (Kafka's limit as well)."""


class AppendedBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One batch in the window of a producer."""

    base_sequence: int
    next_sequence: int
    """Exclusive end."""
    base_offset: int


class ProducerSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint keeps of one producer."""

    producer_id: int
    producer_epoch: int
    last_append_ms: int
    """When its last batch was appended, by the broker's clock. Records may be of any age."""
    window: list[AppendedBatch]


class ProducerPosition(NamedTuple):
    """How far a producer is."""

    epoch: int
    next_sequence: int | None
    """What follows its last record; `None` when all that was known of it was truncated."""


@final
class _Producer:
    __slots__ = ("epoch", "first_sequence", "last_append_ms", "window")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.first_sequence = 0
        """What comes next if the window is empty; after a start the beginning of its next epoch."""
        self.last_append_ms = 0
        self.window: deque[AppendedBatch] = deque(maxlen=WINDOW_BATCHES)


@final
class ProducerStates:
    """The last batches of every producer that wrote to this log.

    Invariant: offsets grow within a window. A window is empty only when all of it was truncated;
    the epoch is still known then, and fences.
    """

    def __init__(self, snapshots: Iterable[ProducerSnapshot] = ()) -> None:
        """Start with what a checkpoint kept."""
        self._producers: dict[int, _Producer] = {}
        for snapshot in snapshots:
            producer = _Producer(snapshot.producer_epoch)
            producer.last_append_ms = snapshot.last_append_ms
            producer.window.extend(snapshot.window)
            self._producers[snapshot.producer_id] = producer

    def __len__(self) -> int:
        """Return the number of producers known."""
        return len(self._producers)

    def check(self, header: BatchHeader) -> int | None:
        """Return the offset at which this very batch was appended before, `None` when it is new.

        A producer that is not known (any more) starts at 0. It may have several batches under way:
        if one was refused and a later one taken instead, the first would look like a duplicate when
        it is sent again, and be acknowledged. Brokers have one under way, and start
        anywhere; as the one of staged records they also leave sequences out.

        Raises:
            FencedProducerError: The batch carries an older epoch.
            OutOfOrderSequenceError: A batch before this one is missing.
            DuplicateSequenceError: The batch was appended, but longer ago than the window.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if header.base_sequence == 0 or header.producer_id >= BROKER_PRODUCER_IDS_FROM:
                return None
            raise OutOfOrderSequenceError(
                f"nothing is known (any more) of producer {header.producer_id}, which sent sequence"
                f" {header.base_sequence}; it must start again at 0, under its next epoch",
                expected_sequence=0,
            )
        if header.producer_epoch != producer.epoch:
            return self._check_new_epoch(header, producer.epoch)
        window = producer.window
        if not window and header.producer_id >= BROKER_PRODUCER_IDS_FROM:
            return None
        expected = window[-1].next_sequence if window else producer.first_sequence
        if header.base_sequence == expected:
            return None
        if header.was_staged and header.base_sequence > expected:
            return None
        if header.base_sequence > expected:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} sent sequence {header.base_sequence},"
                f" the next one here is {expected}",
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
            f" which was appended before the last {WINDOW_BATCHES} batches"
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
        """Return what was appended under the identity and base sequence of a batch, if known.

        It may be another batch.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for batch in producer.window:
            if batch.base_sequence == header.base_sequence:
                return batch
        return None

    def appended(self, header: BatchHeader, base_offset: int, *, now_ms: int) -> None:
        """Take note that a batch is in the log at `base_offset`."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        producer.last_append_ms = now_ms
        producer.window.append(
            AppendedBatch(header.base_sequence, header.next_sequence, base_offset)
        )

    def truncate(self, log_end_offset: int) -> None:
        """Forget batches at or above the new end of the log.

        A producer has at most a window of batches under way, so what it may still retry lies in
        the window even when all of it is truncated; then it has to start with the first of them.
        """
        for producer in self._producers.values():
            window = producer.window
            while window and window[-1].base_offset >= log_end_offset:
                producer.first_sequence = window.pop().base_sequence

    def position(self, producer_id: int) -> ProducerPosition | None:
        """Return how far a producer is, `None` if nothing is known of it."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        window = producer.window
        return ProducerPosition(producer.epoch, window[-1].next_sequence if window else None)

    def expire(self, *, before_ms: int, is_kept: Callable[[int], bool]) -> None:
        """Forget producers whose last batch was appended before `before_ms`.

        Not those of which `is_kept` returns that they are never to be forgotten.
        """
        for producer_id in list(self._producers):
            is_old = self._producers[producer_id].last_append_ms < before_ms
            if is_old and not is_kept(producer_id):
                del self._producers[producer_id]

    def snapshot(self) -> list[ProducerSnapshot]:
        """Return what a checkpoint must keep."""
        return [
            ProducerSnapshot(
                producer_id, producer.epoch, producer.last_append_ms, list(producer.window)
            )
            for producer_id, producer in self._producers.items()
        ]
