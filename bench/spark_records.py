"""Records of the Spark benchmark, as log batches and as Arrow columns.

All values differ, and they are text that a compressor halves. So Parquet can neither store them in
a dictionary nor keep them uncompressed.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from bench.raw import RawConnection
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.messages.topics import CreateTopicRequest
from tidelog.wire.protocol import api

PARTITIONS: Final = 4
RECORDS_IN_BATCH: Final = 1000
_POOL_BYTES: Final = 1 << 20
_NUMBER_BYTES: Final = 12
_TEXT_BYTES: Final = 88
_KEYS: Final = 10_000
_RECORDS_IN_A_MILLISECOND: Final = 100


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of the records."""

    topic: str
    has_keys: bool
    """Whether records have keys of one to four bytes, and times that differ within a batch."""

    @property
    def text(self) -> str:
        """Return the shape for row labels."""
        return "keys and times of their own" if self.has_keys else "values only"


SHAPES: Final = (Shape("values", has_keys=False), Shape("keyed", has_keys=True))


@final
class Records:
    """Generator of values, keys and times; deterministic."""

    def __init__(self, shape: Shape) -> None:
        """Begin with the first record."""
        self._shape = shape
        self._random = random.Random(5)
        self._pool = self._random.randbytes(_POOL_BYTES).hex().encode()
        self._number = 0

    def take(self, count: int) -> Columns:
        """Return the next records."""
        first, self._number = self._number, self._number + count
        values = [b"%0*d" % (_NUMBER_BYTES, first + row) + self._text() for row in range(count)]
        if not self._shape.has_keys:
            return Columns(count, values=values)
        keys = [b"%d" % self._random.randrange(_KEYS) for _ in range(count)]
        deltas = [row // _RECORDS_IN_A_MILLISECOND for row in range(count)]
        return Columns(count, timestamp_deltas=deltas, keys=keys, values=values)

    def _text(self) -> bytes:
        place = self._random.randrange(len(self._pool) - _TEXT_BYTES)
        return self._pool[place : place + _TEXT_BYTES]


def fill(broker: RawConnection, shape: Shape, record_count: int) -> None:
    """Create a topic of `PARTITIONS` partitions and write records to them in turn."""
    request = CreateTopicRequest(shape.topic, PARTITIONS, {"durability": "replicated"})
    topic_id = broker.ask(api.CREATE_TOPIC, request).topic_id
    for number, batch in enumerate(_batches(shape, record_count)):
        entry = PartitionBatch(topic_id, number % PARTITIONS, len(batch))
        request_of_batch = ProduceRequest(int(Acks.LEADER), 30_000, [entry])
        (result,) = broker.ask(api.PRODUCE, request_of_batch, batch).results
        assert result.error is None, result.error


def _batches(shape: Shape, record_count: int) -> Iterator[bytes]:
    records = Records(shape)
    for _ in range(record_count // RECORDS_IN_BATCH):
        # The time of today, because retention would delete older records.
        now_ms = time.time_ns() // 1_000_000
        yield bytes(encode_batch(records.take(RECORDS_IN_BATCH), first_timestamp_ms=now_ms))
