"""Benchmark of the sampling of keys: its CPU time under loads of all kinds, and its cost model."""

from collections.abc import Sequence
from random import Random
from time import thread_time
from typing import Final, NamedTuple

from bench.figures import Row, Settings
from tidelog.broker.hot.key_sampler import KeySampler
from tidelog.broker.hot.sampling_budget import CORE_SHARE, cost_us
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import BatchHeader, Columns, encode_batch, header_of

_KEYS: Final = 100_000


class _Load(NamedTuple):
    records: int
    """In each batch."""
    value_bytes: int
    codec: Codec
    batches_per_s: int

    @property
    def name(self) -> str:
        """Description of the load."""
        return (
            f"{self.batches_per_s:,} batches/s of {self.records:,} x {self.value_bytes:,} B,"
            f" {self.codec.name.lower()}"
        )


_LOADS: Final = (
    _Load(1, 100, Codec.NONE, 10_000),
    _Load(1, 100, Codec.ZSTD, 10_000),
    _Load(100, 100, Codec.NONE, 5_000),
    _Load(100, 100, Codec.LZ4, 5_000),
    _Load(1_000, 100, Codec.LZ4, 1_000),
    _Load(1_000, 1_000, Codec.NONE, 200),
    _Load(1_000, 1_000, Codec.LZ4, 200),
    _Load(1_000, 1_000, Codec.ZSTD, 200),
    _Load(10_000, 20, Codec.NONE, 100),
)

_Batches = Sequence[tuple[BatchHeader, bytearray]]


def run(settings: Settings) -> list[Row]:
    """Offer seconds of traffic as fast as possible, and compare the CPU time with these seconds."""
    seconds = settings.choose(120, 20)
    rows: list[Row] = []
    for load in _LOADS:
        batches = _batches(load)
        share, spent_us = _share_of_core(load, batches, seconds)
        rows.append(
            Row(
                f"hot keys: sampling {load.name}",
                f"{share:.2%} of a core, the model says {spent_us / 1e6 / seconds:.2%}",
                f"<= {CORE_SHARE:.1%}",
                share <= CORE_SHARE,
            )
        )
        real_us = _cost_of_sample(batches)
        model_us = sum(cost_us(header) for header, _ in batches) / len(batches)
        rows.append(
            Row(
                f"hot keys: one sample of {load.records:,} x {load.value_bytes:,} B,"
                f" {load.codec.name.lower()}",
                f"{real_us:.0f} us, the model says {model_us:.0f} us",
            )
        )
    return rows


def _batches(load: _Load) -> _Batches:
    random = Random(1)
    words = [random.randbytes(random.randrange(2, 5)).hex() for _ in range(500)]
    text = " ".join(random.choices(words, k=20_000)).encode()  # Compresses to a half.
    made: list[tuple[BatchHeader, bytearray]] = []
    for _ in range(50):
        keys = [b"user-%d" % random.randrange(_KEYS) for _ in range(load.records)]
        starts = [random.randrange(len(text) - load.value_bytes) for _ in range(load.records)]
        values = [text[start : start + load.value_bytes] for start in starts]
        columns = Columns(load.records, keys=keys, values=values)
        batch = encode_batch(columns, first_timestamp_ms=1, codec=load.codec)
        made.append((header_of(batch), batch))
    return made


def _share_of_core(load: _Load, batches: _Batches, seconds: int) -> tuple[float, float]:
    n = 0
    sampler: KeySampler[int] = KeySampler(Random(1).random, lambda: n / load.batches_per_s)
    count = seconds * load.batches_per_s
    start = thread_time()
    for n in range(count):
        header, batch = batches[n % len(batches)]
        sampler.offer(n % 16, header, batch)
    used = thread_time() - start
    start = thread_time()
    for n in range(count):
        header, batch = batches[n % len(batches)]
        _nothing(n % 16, header, batch)
    return (used - (thread_time() - start)) / seconds, sampler.budget.spent_us


def _cost_of_sample(batches: _Batches) -> float:
    """Return the microseconds of a sample when all batches are sampled."""
    now = 0.0
    sampler: KeySampler[int] = KeySampler(Random(1).random, lambda: now)
    best = 1e9
    for _ in range(7):
        start = thread_time()
        for n, (header, batch) in enumerate(batches):
            now += 100
            sampler.offer(n % 16, header, batch)
        best = min(best, thread_time() - start)
    return best / len(batches) * 1e6


def _nothing(place: int, header: BatchHeader, batch: bytearray) -> None:
    """Cost what a call costs."""
