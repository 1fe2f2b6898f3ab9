"""A naive model of a log: lists without a disk."""

from dataclasses import dataclass, field

from tests.logstore.logs import Producer
from tidelog.wire.errors import DuplicateSequenceError, FencedProducerError, OutOfOrderSequenceError

WINDOW = 5


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """One batch with its offset."""

    base_offset: int
    values: tuple[bytes, ...]
    timestamp_ms: int
    producer: Producer

    @property
    def end_offset(self) -> int:
        """The offset after its last record."""
        return self.base_offset + len(self.values)

    @property
    def next_sequence(self) -> int:
        """The sequence after its last record."""
        return self.producer.sequence + len(self.values)


@dataclass(slots=True)
class ModelProducer:
    """State of a producer: its batches, oldest first, all of one epoch."""

    epoch: int
    batches: list[ModelBatch] = field(default_factory=list[ModelBatch])
    first_sequence: int = 0
    """Next sequence without batches."""

    def without(self, left: list[ModelBatch]) -> "ModelProducer":
        """Return the state after a truncation to some batches."""
        recent = self.batches[-WINDOW:]
        kept = [batch for batch in recent if batch in left]
        gone = [batch.producer.sequence for batch in recent if batch not in left]
        return ModelProducer(self.epoch, kept, min(gone, default=self.first_sequence))


@dataclass(slots=True)
class ModelLog:
    """The batches of the log."""

    batches: list[ModelBatch] = field(default_factory=list[ModelBatch])
    start: int = 0
    forgotten: dict[int, ModelProducer] = field(default_factory=dict[int, ModelProducer])
    """Producers after the last truncation."""
    forgotten_count: int = 0
    """Number of batches at that time."""

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.batches[-1].end_offset if self.batches else 0

    def bounds(self) -> list[int]:
        """Return the offsets at which the log may be truncated."""
        return [0, *(batch.end_offset for batch in self.batches)]

    def records(self, start: int, end: int) -> dict[int, bytes]:
        """Return the records of whole batches below `end`, from `start` on."""
        return {
            batch.base_offset + number: value
            for batch in self.batches
            for number, value in enumerate(batch.values)
            if start <= batch.base_offset + number and batch.end_offset <= end
        }

    def append(self, batch: ModelBatch) -> None:
        """Add a batch that is no duplicate."""
        assert batch.base_offset == self.end
        self.batches.append(batch)

    def producers(self) -> dict[int, ModelProducer]:
        """Return the state of each producer, from all batches since the last truncation."""
        producers = {
            producer_id: ModelProducer(known.epoch, list(known.batches), known.first_sequence)
            for producer_id, known in self.forgotten.items()
        }
        for batch in self.batches[self.forgotten_count :]:
            producer_id, epoch = batch.producer.producer_id, batch.producer.epoch
            known = producers.get(producer_id)
            if known is None or known.epoch != epoch:
                known = producers[producer_id] = ModelProducer(epoch)
            known.batches.append(batch)
        return producers

    def verdict(self, producer: Producer, count: int) -> ModelBatch | type[Exception] | None:
        """Return the batch that this one repeats, the error it deserves, or `None`."""
        known = self.producers().get(producer.producer_id)
        if producer.producer_id == 0:
            return None
        if known is None:
            return None if producer.sequence == 0 else OutOfOrderSequenceError
        if producer.epoch < known.epoch:
            return FencedProducerError
        if producer.epoch > known.epoch:
            return None if producer.sequence == 0 else OutOfOrderSequenceError
        return self._verdict_on_sequence(known, producer.sequence, count)

    @staticmethod
    def _verdict_on_sequence(
        known: ModelProducer, sequence: int, count: int
    ) -> ModelBatch | type[Exception] | None:
        batches = known.batches
        expected = batches[-1].next_sequence if batches else known.first_sequence
        if sequence >= expected:
            return None if sequence == expected else OutOfOrderSequenceError
        for batch in batches[-WINDOW:]:
            if (batch.producer.sequence, len(batch.values)) == (sequence, count):
                return batch
        return DuplicateSequenceError

    def lose_end(self, end: int) -> None:
        """Revert to an earlier end, as a power failure does."""
        self.batches = [batch for batch in self.batches if batch.end_offset <= end]
        assert len(self.batches) >= self.forgotten_count

    def truncate(self, offset: int) -> None:
        """Remove batches that reach to or above `offset`, and old batches of producers."""
        left = [batch for batch in self.batches if batch.end_offset <= offset]
        self.forgotten = {
            producer_id: known.without(left) for producer_id, known in self.producers().items()
        }
        self.batches = left
        self.forgotten_count = len(left)
        self.start = min(self.start, self.end)

    def find_time(self, timestamp_ms: int, high_watermark: int) -> int | None:
        """Return the base offset of the first batch with a record at or after a time."""
        for batch in self.batches:
            if batch.end_offset <= self.start or batch.end_offset > high_watermark:
                continue
            if batch.timestamp_ms >= timestamp_ms:
                return batch.base_offset
        return None
