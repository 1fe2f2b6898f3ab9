"""Two replicas of one log, one of them damaged."""

from collections.abc import Callable, Container

from tests.logstore.logs import (
    NOW_MS,
    Image,
    Opened,
    Producer,
    batch_bounds,
    behind,
    disk_of,
    image_of,
    name_of,
    new_log,
    numbered,
    records_in,
    reopen,
)
from tidelog.logstore.log import LogStatus, PartitionLog
from tidelog.logstore.producer_state import ProducerState
from tidelog.wire.batch.record_batch import HEADER_SIZE, parse_header, stamp_replica
from tidelog.wire.errors import CorruptRecordError

COUNT = 70
"""Offsets of the log; each batch has one."""

Spoil = Callable[[Image], None]
"""Damages the files of a log."""


def source_of(count: int = COUNT) -> Opened:
    """Return the log of the intact replica, with three segments and as many epochs."""
    source = new_log()
    for number in range(count):
        producer = Producer(producer_id=1 + number % 3, sequence=number // 3)
        source.append(numbered(number), leader_epoch=number // 25, producer=producer)
        if number % 7 == 6:
            source.flush()
    source.flush(checkpoint=True)
    return source


def spoiled(source: Opened, spoil: Spoil) -> Opened:
    """Return a damaged copy of `source` with known damage."""
    image = image_of(source.disk)
    spoil(image)
    opened = reopen(disk_of(image))
    note_all_damage(opened.log)
    return opened


def flip(offsets: Container[int], *, at: int = HEADER_SIZE) -> Spoil:
    """Flip a bit of each of these batches, `at` so many bytes behind its begin."""

    def spoil(image: Image) -> None:
        for name, data in image.items():
            if name.endswith(".log"):
                changed = bytearray(data)
                for number, position in enumerate(batch_bounds(data)[:-1]):
                    if int(name[:20]) + number in offsets:
                        changed[position + at] ^= 4
                image[name] = bytes(changed)

    return spoil


def lose(*bases: int) -> Spoil:
    """Lose the segments that begin at these offsets, with their indexes."""

    def spoil(image: Image) -> None:
        for base in bases:
            del image[name_of(base)]
            image.pop(name_of(base, ".index"), None)

    return spoil


def cut(base: int, size: int) -> Spoil:
    """Leave `size` bytes of a segment."""

    def spoil(image: Image) -> None:
        image[name_of(base)] = image[name_of(base)][:size]

    return spoil


def batches_of(source: PartitionLog, offset: int, end_offset: int) -> bytearray:
    """Return the batches with these offsets, as another replica sends them."""
    data = bytearray()
    while offset < end_offset:
        part = source.read(offset, max_bytes=1 << 20, high_watermark=source.log_end_offset)
        assert part is not None
        part.begin_at(offset)
        rest = memoryview(part.load().read())
        while rest and offset < end_offset:
            header = parse_header(rest)
            assert header is not None
            data += rest[: header.size]
            offset, rest = header.next_offset, rest[header.size :]
    return data


def repair(log: PartitionLog, source: PartitionLog, offset: int, *, end_offset: int) -> None:
    """Repair these offsets."""
    batches = memoryview(batches_of(source, offset, end_offset))
    log.repair_range(offset, end_offset, batches, now_ms=NOW_MS)


def repair_all(log: PartitionLog, source: PartitionLog, *, at_once: int = COUNT) -> None:
    """Repair all known damage, lowest first, at most `at_once` offsets per call."""
    while log.damage:
        damaged = log.damage[0]
        end_offset = min(damaged.end_offset, damaged.offset + at_once)
        repair(log, source, damaged.offset, end_offset=end_offset)


def note_all_damage(log: PartitionLog) -> None:
    """Read everything, and add the damage as a broker does."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            part = log.read(offset, max_bytes=1, high_watermark=log.log_end_offset)
            assert part is not None
            offset = max(records_in(part.load().read())) + 1
        except CorruptRecordError as error:
            log.note_damage(error)
            offset = behind(error, offset)


def sent_by(log: PartitionLog) -> bytes:
    """Return all batches as this replica sends them, without its own stamps."""
    batches = memoryview(batches_of(log, log.log_start_offset, log.log_end_offset))
    position = 0
    while position < len(batches):
        header = parse_header(batches, position)
        assert header is not None
        stamp_replica(batches[position : position + HEADER_SIZE], durable_position=0)
        position += header.size
    return bytes(batches)


def check_whole(opened: Opened, source: Opened) -> None:
    """Check that a log equals the source, also after a restart."""
    _check_whole(opened, source)
    again = opened.kill()
    assert not again.report.damage
    assert not again.report.notes
    _check_whole(again, source)


def _check_whole(opened: Opened, source: Opened) -> None:
    assert opened.log.status is LogStatus.ONLINE
    assert sent_by(opened.log) == sent_by(source.log)
    assert opened.log.leader_epochs.entries == source.log.leader_epochs.entries
    assert opened.log.log_end_offset == source.log.log_end_offset
    assert producers_of(opened) == producers_of(source)


def producers_of(opened: Opened) -> dict[int, ProducerState]:
    """Return the producer states of a log by producer id."""
    return {state.producer_id: state for state in opened.log.producers.snapshot()}


def sizes(opened: Opened) -> dict[str, int]:
    """Return the lengths of all segments and indexes, by name."""
    image = image_of(opened.disk)
    return {name: len(data) for name, data in image.items() if name != "checkpoint"}
