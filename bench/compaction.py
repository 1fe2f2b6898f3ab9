"""Benchmark of the compaction core: memory for keys, and time for each record.

Without files.
"""

import resource
from collections.abc import Iterator
from time import perf_counter

from bench.figures import Row, Settings
from tidelog.logstore.compaction.batch_cleaner import BatchCleaner, CleaningRules, KeyRange
from tidelog.logstore.compaction.offset_map import OffsetMap
from tidelog.wire.batch.record_batch import (
    BatchHeader,
    Columns,
    encode_batch,
    has_valid_payload,
    parse_header,
    stamp_leader,
    stamp_replica,
)

_MEMORY_BYTES = 150 << 20
_QUICK_MEMORY_BYTES = 4 << 20
_GROWTH_GOAL_MB = 200
_BATCH_RECORDS = 1_000
_VALUE = b"v" * 100


def run(settings: Settings) -> list[Row]:
    """Cover many keys in rounds, and clean a half-superseded log."""
    return [*_keys(settings), *_cleaning(settings)]


def _keys(settings: Settings) -> list[Row]:
    """Compact very many records with distinct keys."""
    count = settings.choose(20_000_000, 400_000)
    memory_bytes = settings.choose(_MEMORY_BYTES, _QUICK_MEMORY_BYTES)
    before_bytes = _peak_bytes()
    began = perf_counter()
    rounds = end_offset = 0
    while end_offset < count:
        end_offset = _round(end_offset, count, memory_bytes)
        rounds += 1
    took_s = perf_counter() - began
    growth_mb = (_peak_bytes() - before_bytes) / 1e6
    return [
        Row(
            f"compaction: memory for {count:,} keys in {rounds} rounds, in MB",
            f"{growth_mb:.0f}",
            f"< {_GROWTH_GOAL_MB}",
            growth_mb < _GROWTH_GOAL_MB,
        ),
        Row("compaction: making and taking in a record, in us", f"{took_s / count * 1e6:.2f}"),
    ]


def _round(first_offset: int, end_offset: int, memory_bytes: int) -> int:
    found = KeyRange(OffsetMap(memory_bytes=memory_bytes), first_offset)
    for header, batch in _log(first_offset, end_offset, end_offset):
        if not found.add(header, batch):
            break
    return found.end_offset


def _cleaning(settings: Settings) -> list[Row]:
    """Clean a log with two records of every key, against checking and copying its bytes."""
    count = settings.choose(2_000_000, 100_000)
    log = list(_log(0, count, count // 2))
    size_bytes = sum(len(batch) for _, batch in log)

    began = perf_counter()
    copied = bytearray()
    for header, batch in log:
        assert has_valid_payload(header, batch)
        copied += batch
    copy_s = perf_counter() - began

    began = perf_counter()
    found = KeyRange(OffsetMap(memory_bytes=_MEMORY_BYTES), 0)
    for header, batch in log:
        assert found.add(header, batch)
    take_s = perf_counter() - began
    rules = CleaningRules(found, drops_tombstones=False, is_header_needed=lambda _: False)
    left = bytearray()
    cleaner = BatchCleaner(rules)
    for header, batch in log:
        for part in cleaner.take(header, batch):
            left += part
    for part in cleaner.end():
        left += part
    clean_s = perf_counter() - began
    assert len(left) < size_bytes * 0.6
    return [
        Row(
            "compaction: MB/s of a log whose keys are all there twice, to checking and copying it",
            f"{copy_s / clean_s:.4f} ({size_bytes / clean_s / 1e6:.0f} MB/s)",
        ),
        Row(
            "compaction: a record, in us: finding the newest, and cleaning",
            f"{take_s / count * 1e6:.2f} and {(clean_s - take_s) / count * 1e6:.2f}",
        ),
    ]


def _log(
    first_offset: int, end_offset: int, key_count: int
) -> Iterator[tuple[BatchHeader, bytearray]]:
    for base_offset in range(first_offset, end_offset, _BATCH_RECORDS):
        end = min(base_offset + _BATCH_RECORDS, end_offset)
        keys = [b"user-%012d" % (number % key_count) for number in range(base_offset, end)]
        columns = Columns(len(keys), keys=keys, values=[_VALUE] * len(keys))
        batch = encode_batch(columns, first_timestamp_ms=0)
        stamp_leader(memoryview(batch), base_offset=base_offset, leader_epoch=0)
        stamp_replica(memoryview(batch), durable_position=0)
        header = parse_header(batch)
        assert header is not None
        yield header, batch


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
