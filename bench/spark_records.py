"""Records of the Spark benchmark, as log batches and as Arrow columns.

They are like those of users: values of varied lengths with keys and times, and JSON like the
reports of flights. All values differ, and they are text that a compressor halves. So Parquet can
neither store them in a dictionary nor keep them uncompressed.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final, final

from bench.raw import RawConnection
from tidelog.wire.batch.record_batch import FORMAT_COLUMNAR, Columns, encode_batch
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.messages.topics import CreateTopicRequest
from tidelog.wire.protocol import api

PARTITIONS: Final = 4
RECORDS_IN_BATCH: Final = 1000
_DISTINCT_BATCHES: Final = 200
_POOL_BYTES: Final = 1 << 20
_KEYS: Final = 100_000
_RECORDS_IN_A_MILLISECOND: Final = 4
_JITTER_MS: Final = 20
_VALUE_BYTES: Final = (60, 140)
_AIRPORTS: Final = ("ZRH", "GVA", "LHR", "CDG", "FRA", "AMS", "MAD", "VIE", "CPH", "OSL")
_MODELS: Final = ("Airbus A220-300", "Airbus A320neo", "Boeing 737 MAX 8", "Embraer E195-E2")


@final
class _Source:
    """Source of texts and numbers; deterministic."""

    def __init__(self) -> None:
        self.random = random.Random(5)
        self._pool = self.random.randbytes(_POOL_BYTES).hex()

    def text(self, length: int) -> str:
        """Return text of a length that a compressor halves."""
        place = self.random.randrange(len(self._pool) - length)
        return self._pool[place : place + length]


def _event(source: _Source, number: int) -> tuple[bytes, bytes]:
    """Return key and value of an event of a customer."""
    draw = source.random.randrange
    value = f"{number:012}{source.text(draw(_VALUE_BYTES[0], _VALUE_BYTES[1] + 1) - 12)}"
    return b"customer-%d" % draw(_KEYS), value.encode()


def _flight(source: _Source, number: int) -> tuple[bytes, bytes]:
    """Return key and value of a report about a flight."""
    draw, aircraft = source.random.randrange, source.random.randrange(_KEYS)
    return b"%06x" % aircraft, (
        f'{{"icao24":"{aircraft:06x}","callsign":"SWR{draw(10_000)}","model":"{_MODELS[draw(4)]}",'
        f'"origin":"{_AIRPORTS[draw(10)]}","destination":"{_AIRPORTS[draw(10)]}",'
        f'"time":{1_700_000_000 + number // 100},"longitude":{draw(-1_800_000, 1_800_000) / 1e4},'
        f'"latitude":{draw(-900_000, 900_000) / 1e4},"altitude":{draw(1_300_000) / 100},'
        f'"on_ground":{"true" if draw(9) == 0 else "false"},"velocity":{draw(30_000) / 100},'
        f'"track":{draw(36_000) / 100},"vertical_rate":{draw(-2_000, 2_000) / 100},'
        f'"squawk":"{draw(8_000):04}","receiver":"{source.text(48)}","sequence":{number},'
        f'"signal_db":{draw(-400, 0) / 10}}}'
    ).encode()


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of the records."""

    topic: str
    text: str
    """The shape for row labels."""
    record: Callable[[_Source, int], tuple[bytes, bytes]]
    """Returns key and value of the record of a number."""
    share: int
    """The number of records is this fraction of the full one, for larger records."""


EVENTS: Final = Shape("events", "60 to 140 bytes with keys and times", _event, 1)
FLIGHTS: Final = Shape("flights", "JSON of about 360 bytes with keys and times", _flight, 4)
SHAPES: Final = (EVENTS, FLIGHTS)


@final
class Records:
    """Generator of values, keys and times; deterministic."""

    def __init__(self, shape: Shape) -> None:
        """Begin with the first record."""
        self._shape = shape
        self._source = _Source()
        self._number = 0

    def take(self, count: int) -> Columns:
        """Return the next records."""
        first, self._number = self._number, self._number + count
        made = [self._shape.record(self._source, number) for number in range(first, self._number)]
        keys, values = (list(column) for column in zip(*made, strict=True))
        jitter = self._source.random.randrange
        deltas = [row // _RECORDS_IN_A_MILLISECOND + jitter(_JITTER_MS) for row in range(count)]
        return Columns(count, timestamp_deltas=deltas, keys=keys, values=values)


def fill(broker: RawConnection, shape: Shape, record_count: int) -> None:
    """Create a topic of `PARTITIONS` partitions and write the share of a shape to them in turn."""
    _write(broker, shape.topic, _batches(Records(shape)), record_count=record_count // shape.share)


def fill_repeated(broker: RawConnection, topic: str, record_count: int) -> None:
    """Do the same with events of which batches repeat: it takes less time to make them."""
    batches = cycle(list(islice(_batches(Records(EVENTS)), _DISTINCT_BATCHES)))
    _write(broker, topic, batches, record_count=record_count)


def _write(
    broker: RawConnection, topic: str, batches: Iterator[bytes], *, record_count: int
) -> None:
    request = CreateTopicRequest(topic, PARTITIONS, {"durability": "replicated"})
    topic_id = broker.ask(api.CREATE_TOPIC, request).topic_id
    for number, batch in enumerate(islice(batches, record_count // RECORDS_IN_BATCH)):
        entry = PartitionBatch(topic_id, number % PARTITIONS, len(batch))
        request_of_batch = ProduceRequest(int(Acks.LEADER), 30_000, [entry])
        while True:
            (result,) = broker.ask(api.PRODUCE, request_of_batch, batch).results
            if result.error is None:
                break
            # A new cluster begins at feature level 0, and rises at once.
            assert result.error.code == ErrorCode.BROKER_NOT_READY, result.error


def _batches(records: Records) -> Iterator[bytes]:
    while True:
        # The time of today, because retention would delete older records.
        now_ms = time.time_ns() // 1_000_000
        columns = records.take(RECORDS_IN_BATCH)
        yield bytes(
            encode_batch(columns, first_timestamp_ms=now_ms, format_version=FORMAT_COLUMNAR)
        )
