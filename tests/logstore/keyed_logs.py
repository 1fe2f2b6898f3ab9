"""Logs with keys for tests of compaction, and what is in them."""

from tests.logstore.logs import NOW_MS, OWNER, Opened, Producer, new_log
from tidelog.logstore.compaction.cleaner_run import CleanerRun, LogToClean
from tidelog.logstore.compaction.policy import CompactionConfig
from tidelog.logstore.log import PartitionLog
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import Columns, check_produced, encode_batch, parse_header

EAGER = CompactionConfig(min_cleanable_dirty_ratio=0.0)
MEMORY_BYTES = 1 << 20
Records = dict[int, tuple[bytes | None, bytes | None]]
"""Keys and values, by offset."""


def append(
    opened: Opened,
    *records: tuple[bytes | None, bytes | None],
    leader_epoch: int = 0,
    producer: Producer | None = None,
    now_ms: int = NOW_MS,
) -> None:
    """Append one batch of keys and values."""
    producer = producer or Producer()
    batch = encode_batch(
        Columns(
            len(records), keys=[key for key, _ in records], values=[value for _, value in records]
        ),
        first_timestamp_ms=NOW_MS,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )
    header = check_produced(memoryview(batch))
    opened.log.append(memoryview(batch), header, leader_epoch=leader_epoch, now_ms=now_ms)


def keyed_log(count: int = 60, *, keys: int = 7, size: int = 60) -> Opened:
    """Return a log of `count` batches of two records, all committed, with small segments."""
    opened = new_log()
    for number in range(count):
        key = b"key-%d" % (number % keys)
        loose = b"%d" % number if number % 9 else None
        value = None if number % 13 == 5 else b"%d" % number + b"." * size
        producer = Producer(producer_id=1 + number % 2, sequence=number - number % 2)
        append(opened, (key, value), (loose, b"-"), leader_epoch=number // 25, producer=producer)
        if number % 7 == 6:
            opened.flush()
            opened.log.roll_if_old(now_ms=NOW_MS, force=True)
    commit(opened)
    return opened


def commit(opened: Opened) -> None:
    """Roll the log, flush it with a checkpoint, and commit all records."""
    opened.log.roll_if_old(now_ms=NOW_MS, force=True)
    opened.log.high_watermark = opened.log.log_end_offset
    opened.flush(checkpoint=True)


def begin(
    opened: Opened, *, config: CompactionConfig = EAGER, now_ms: int = NOW_MS + 1
) -> CleanerRun:
    """Start a cleaner run."""
    return CleanerRun(
        opened.log, OWNER, opened.disk, config=config, memory_bytes=MEMORY_BYTES, now_ms=now_ms
    )


def compact(
    opened: Opened, *, config: CompactionConfig = EAGER, now_ms: int = NOW_MS + 1
) -> CleanerRun | None:
    """Complete a cleaner run as a broker does; `None` if there is nothing to clean."""
    if not LogToClean(opened.log, config, now_ms=now_ms).urgency:
        return None
    cleaning = begin(opened, config=config, now_ms=now_ms)
    while not cleaning.is_done:
        cleaning.run(1)
        if cleaning.ready is not None:
            swap_ready(cleaning)
    cleaning.end()
    opened.flush()
    return cleaning


def swap_ready(cleaning: CleanerRun) -> None:
    """Swap the ready rewrite."""
    swap = cleaning.begin_swap()
    assert swap is not None
    swap.prepare()
    assert cleaning.commit(swap)
    swap.finish()
    cleaning.end_swap(swap)


def rows_of(log: PartitionLog) -> Records:
    """Return all records as a consumer sees them; damage is an error."""
    found: Records = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1000, high_watermark=log.log_end_offset)
        assert part is not None
        rows, offset = rows_in((part if part.is_ready() else part.load()).read(), offset)
        found |= rows
    return {at: row for at, row in found.items() if at >= log.log_start_offset}


def rows_in(data: bytes, offset: int) -> tuple[Records, int]:
    """Return the records of whole batches from `offset` on, and the offset after them."""
    found: Records = {}
    view = memoryview(data)
    while view:
        header = parse_header(view)
        assert header is not None
        assert header.base_offset <= offset, "batches are consecutive"
        columns = decode_columns(header, view[: header.size], uncompressed_length_max=1 << 20)
        count = columns.record_count
        for place, delta in enumerate(columns.offset_deltas or range(count)):
            key = columns.keys[place] if columns.keys else None
            value = columns.values[place] if columns.values else None
            found[header.base_offset + delta] = key, value
        offset, view = header.next_offset, view[header.size :]
    return found, offset


def newest_of(rows: Records, end_offset: int) -> Records:
    """Return the result of a cleaning below `end_offset`, tombstones aside."""
    newest = {key: offset for offset, (key, _) in rows.items() if offset < end_offset}
    return {
        offset: (key, value)
        for offset, (key, value) in rows.items()
        if key is None or offset >= end_offset or newest[key] == offset
    }
