"""Damage of durable bytes is never truncated: it is reported, and later records stay readable."""

import os
from collections.abc import Iterator

import msgspec
import pytest

from tests.logstore.logs import (
    CHECKPOINT,
    DIRECTORY,
    NOW_MS,
    OWNER,
    SMALL,
    TOPIC_ID,
    Image,
    Opened,
    batch_bounds,
    disk_of,
    expected,
    image_of,
    name_of,
    new_log,
    numbered,
    read_all,
    reopen,
    stored,
)
from tidelog.logstore.checkpoint import LogCheckpoint, read_small_file, write_small_file
from tidelog.logstore.config import LogConfig
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.log import LogStatus
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
)
from tidelog.wire.batch.record_batch import HEADER_SIZE
from tidelog.wire.errors import CorruptRecordError

BITS = range(8) if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else None
"""Bits to flip in each byte; `None` for one that depends on the position."""
FIRST, SECOND = name_of(0), name_of(6)


def flips(image: Image, name: str, start: int, *, end: int) -> Iterator[tuple[int, Image]]:
    """Yield images in which one bit of a file is flipped, at each of these positions."""
    for position in range(start, end):
        for bit in BITS or [position % 8]:
            data = bytearray(image[name])
            data[position] ^= 1 << bit
            yield position, {**image, name: bytes(data)}


def without(offset: int, end: int) -> dict[int, bytes]:
    """Return all records below `end` but one."""
    return {at: value for at, value in expected(0, end).items() if at != offset}


def check_that_it_goes_on(opened: Opened, records: dict[int, bytes]) -> None:
    """Check that these are readable, and that appends and another restart continue from there."""
    assert read_all(opened.log) == records
    end = opened.log.log_end_offset
    opened.append(numbered(end))
    opened.flush()
    again = opened.kill()
    assert again.log.log_end_offset == end + 1
    assert read_all(again.log) == {**records, end: numbered(end)}


@pytest.fixture(scope="module")
def flushed() -> Image:
    """Two segments, 6 and 4 batches; the durable position of each covers the batches before."""
    opened = new_log()
    opened.append_many(6, flush_every=1)
    opened.log.roll_if_old(now_ms=1 << 50)
    opened.append_many(4, flush_every=1)
    image = image_of(opened.disk)
    del image["checkpoint"]
    return image


@pytest.fixture(scope="module")
def checkpointed() -> Image:
    """The same with a checkpoint at its end."""
    opened = new_log()
    opened.append_many(6)
    opened.log.roll_if_old(now_ms=1 << 50)
    opened.append_many(4)
    opened.flush(checkpoint=True)
    return image_of(opened.disk)


@pytest.mark.invariant("I6", "I9")
def test_a_flipped_bit_below_a_later_durable_position_is_damage(flushed: Image) -> None:
    bounds = batch_bounds(flushed[SECOND])
    for position, image in flips(flushed, SECOND, SEGMENT_HEADER_SIZE, end=bounds[-2]):
        hit = 6 + sum(bound <= position for bound in bounds) - 1

        opened = reopen(disk_of(image))

        assert opened.report.damage == [DamagedRange(hit, hit + 1)]
        assert opened.report.truncated_bytes == 0
        assert opened.log.status is LogStatus.DAMAGED
        assert opened.log.log_end_offset == 10
        check_that_it_goes_on(opened, without(hit, 10))


def test_a_flipped_bit_before_a_durable_segment_is_damage(flushed: Image) -> None:
    bounds = batch_bounds(flushed[FIRST])
    for position, image in flips(flushed, FIRST, SEGMENT_HEADER_SIZE, end=bounds[-1]):
        hit = sum(bound <= position for bound in bounds) - 1

        opened = reopen(disk_of(image))

        assert opened.report.damage == [DamagedRange(hit, hit + 1)]
        assert opened.log.log_end_offset == 10
        check_that_it_goes_on(opened, without(hit, 10))


def test_a_flipped_bit_in_a_header_or_footer_of_a_segment_harms_no_record(flushed: Image) -> None:
    size = len(flushed[FIRST])
    for start, end in (0, SEGMENT_HEADER_SIZE), (size - SEGMENT_FOOTER_SIZE, size):
        for _, image in flips(flushed, FIRST, start, end=end):
            opened = reopen(disk_of(image))

            assert not opened.report.damage
            assert opened.report.truncated_bytes == 0
            check_that_it_goes_on(opened, expected(0, 10))


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_flipped_bit_below_the_recovery_point_is_found_by_reading(
    checkpointed: Image, name: str
) -> None:
    bounds = batch_bounds(checkpointed[name])
    first_offset = 0 if name == FIRST else 6
    for position, image in flips(checkpointed, name, 0, end=len(checkpointed[name])):
        opened = reopen(disk_of(image))

        records = read_all(opened.log)

        assert not opened.report.damage
        if SEGMENT_HEADER_SIZE <= position < bounds[-1]:
            hit = first_offset + sum(bound <= position for bound in bounds) - 1
            assert records == without(hit, 10)
            check_that_it_goes_on(opened, records)
        else:
            check_that_it_goes_on(opened, expected(0, 10))


@pytest.mark.invariant("I9")
def test_every_lost_end_of_a_file_below_the_recovery_point_is_damage(checkpointed: Image) -> None:
    bounds = batch_bounds(checkpointed[SECOND])
    for size in range(bounds[-1]):
        left = 6 + max(sum(bound <= size for bound in bounds) - 1, 0)

        opened = reopen(disk_of({**checkpointed, SECOND: checkpointed[SECOND][:size]}))

        assert opened.report.damage == [DamagedRange(left, 10)]
        assert opened.log.log_end_offset == 10, "offsets are never reused"
        check_that_it_goes_on(opened, expected(0, left))


def test_every_lost_end_of_a_sealed_file_is_damage(checkpointed: Image) -> None:
    bounds = batch_bounds(checkpointed[FIRST])
    for size in range(bounds[-1]):
        left = max(sum(bound <= size for bound in bounds) - 1, 0)

        opened = reopen(disk_of({**checkpointed, FIRST: checkpointed[FIRST][:size]}))

        assert opened.report.damage == [DamagedRange(left, 6)]
        records = {**expected(0, left), **expected(6, 10)}
        check_that_it_goes_on(opened, records)


def test_a_lost_last_file_is_damage_and_its_offsets_are_not_reused(checkpointed: Image) -> None:
    opened = reopen(disk_of({name: data for name, data in checkpointed.items() if name != SECOND}))

    assert opened.report.damage == [DamagedRange(6, 10)]
    assert opened.log.log_end_offset == 10
    check_that_it_goes_on(opened, expected(0, 6))


@pytest.mark.invariant("I9")
def test_a_lost_file_in_the_middle_is_damage() -> None:
    before = new_log()
    before.append_many(100, flush_every=10)
    bases = before.segment_bases()
    before.disk.remove(before.path(bases[1]))

    opened = before.kill()

    assert opened.report.damage == [DamagedRange(bases[1], bases[2])]
    check_that_it_goes_on(opened, expected(0, bases[1]) | expected(bases[2], 100))


def test_a_lost_file_in_the_middle_is_damage_without_a_checkpoint_too() -> None:
    before = new_log()
    before.append_many(100, flush_every=10)
    bases = before.segment_bases()
    before.disk.remove(before.path(bases[1]))
    before.disk.remove(f"{before.log.directory}/checkpoint")

    opened = before.kill()

    assert opened.report.damage == [DamagedRange(bases[1], bases[2])]
    check_that_it_goes_on(opened, expected(0, bases[1]) | expected(bases[2], 100))


@pytest.mark.invariant("I23")
def test_all_files_lost_but_the_checkpoint_is_damage(checkpointed: Image) -> None:
    opened = reopen(disk_of({"checkpoint": checkpointed["checkpoint"]}))

    assert opened.report.damage == [DamagedRange(0, 10)]
    assert (opened.log.log_start_offset, opened.log.log_end_offset) == (0, 10)
    check_that_it_goes_on(opened, {})


def test_a_missing_segment_of_the_recovery_point_is_damage() -> None:
    before = new_log()
    before.append_many(40, flush_every=1)
    checkpoint = before.disk.durable_bytes(f"{before.log.directory}/checkpoint")
    before.append_many(40, flush_every=1)
    bases = before.segment_bases()
    image = {**image_of(before.disk), "checkpoint": checkpoint}
    del image[name_of(bases[0])]
    del image[name_of(bases[1])]

    opened = reopen(disk_of(image))

    assert opened.report.damage == [DamagedRange(0, bases[2])]
    assert opened.log.log_start_offset == 0
    assert read_all(opened.log) == expected(bases[2], 80)


@pytest.mark.parametrize("count", [1, 2])
def test_missing_first_segments_without_a_deletion_are_damage(count: int) -> None:
    before = new_log()
    before.append_many(100, flush_every=10)
    bases = before.segment_bases()
    for base in bases[:count]:
        before.disk.remove(before.path(base))

    opened = before.kill()

    assert opened.report.damage == [DamagedRange(0, bases[count])]
    assert opened.log.log_start_offset == 0
    assert read_all(opened.log) == expected(bases[count], 100)
    opened.flush()
    assert opened.kill().report.damage == opened.report.damage


def test_missing_first_segments_of_a_version_without_markers_count_as_deleted() -> None:
    before = new_log()
    before.append_many(100, flush_every=10)
    bases = before.segment_bases()
    before.disk.remove(before.path(bases[0]))
    checkpoint = read_small_file(before.disk, CHECKPOINT, LogCheckpoint)
    assert checkpoint is not None
    older = msgspec.structs.replace(checkpoint, has_deletion_markers=False)
    write_small_file(before.disk, CHECKPOINT, older)

    opened = before.kill()

    assert not opened.report.damage
    assert opened.log.log_start_offset == bases[1]
    assert read_all(opened.log) == expected(bases[1], 100)


def test_a_suspect_log_without_a_checkpoint_has_lost_its_start() -> None:
    before = new_log()
    before.append_many(100, flush_every=10)
    bases = before.segment_bases()
    before.disk.remove(before.path(bases[0]))
    before.disk.remove(CHECKPOINT)
    files = FileCache(before.disk.kill())

    log, report = open_log(DIRECTORY, OWNER, files, config=SMALL, now_ms=NOW_MS, is_suspect=True)

    assert report.damage == [DamagedRange(0, bases[1])]
    assert (log.log_start_offset, log.log_end_offset) == (0, 100)


def test_a_deletion_marker_bounds_the_loss_of_a_suspect_log_without_a_checkpoint() -> None:
    before = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_bytes=5000))
    before.append_many(100, flush_every=10)
    removal = before.log.apply_retention(high_watermark=100, now_ms=NOW_MS)
    assert removal
    removal.run()
    before.disk.remove(CHECKPOINT)
    files = FileCache(before.disk.kill())

    log, report = open_log(DIRECTORY, OWNER, files, config=SMALL, now_ms=NOW_MS, is_suspect=True)

    assert not report.damage
    assert log.log_start_offset == removal.end_offset


def test_a_segment_that_overlaps_is_set_aside(checkpointed: Image) -> None:
    stale = name_of(3)
    header = SegmentHeader(TOPIC_ID, 3, 3).to_bytes()

    opened = reopen(disk_of({**checkpointed, stale: header}))

    assert not opened.report.damage
    (note,) = opened.report.notes
    assert note.endswith(f"{stale}.stale overlaps the segment before it and was set aside")
    check_that_it_goes_on(opened, expected(0, 10))


def test_known_damage_survives_a_restart_and_is_counted_once(flushed: Image) -> None:
    data = bytearray(flushed[FIRST])
    data[SEGMENT_HEADER_SIZE] ^= 1
    opened = reopen(disk_of({**flushed, FIRST: bytes(data)}))
    opened.flush()

    again = opened.kill()

    assert again.report.damage == opened.report.damage == [DamagedRange(0, 1)]
    assert again.report.scanned_bytes == 0
    assert again.log.begin_flush() is None


def test_damage_found_by_a_read_survives_a_restart(checkpointed: Image) -> None:
    data = bytearray(checkpointed[FIRST])
    data[SEGMENT_HEADER_SIZE] ^= 1
    opened = reopen(disk_of({**checkpointed, FIRST: bytes(data)}))
    part = opened.log.read(0, max_bytes=1, high_watermark=10)
    assert part is not None
    with pytest.raises(CorruptRecordError) as caught:
        part.load()

    opened.log.note_damage(caught.value)
    opened.flush()

    assert opened.log.status is LogStatus.DAMAGED
    assert opened.kill().report.damage == [DamagedRange(0, 1)]


def inner_batches() -> dict[str, bytes]:
    """Return batches that a producer may send as the value of a record at offset 1."""
    return {
        "as a producer makes it": stored([b"inner"], base_offset=0),
        "of a lower offset": stored(
            [b"inner"], base_offset=0, leader_epoch=2, durable_position=200
        ),
        "of an older epoch": stored(
            [b"inner"], base_offset=3, leader_epoch=1, durable_position=200
        ),
        "that cannot be here": stored(
            [b"inner"], base_offset=3, leader_epoch=2, durable_position=1 << 40
        ),
    }


FITTING = stored([b"inner"], base_offset=3, leader_epoch=2, durable_position=200)
"""A batch that fits here, if the producer of its value knows the layout of the log."""

PLACES = {"header": 8, "payload": HEADER_SIZE}


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize(
    ("inner", "place"),
    [(inner, place) for inner in inner_batches().values() for place in PLACES]
    + [(FITTING, "payload")],  # If the header is damaged too, this is undetectable.
)
def test_a_batch_inside_of_a_damaged_payload_is_not_served(
    inner: bytes, place: str, *, is_durable: bool
) -> None:
    before = new_log()
    before.append(numbered(0), leader_epoch=2)
    before.flush()
    before.append(inner, leader_epoch=2)
    if is_durable:
        before.flush()
    before.append(numbered(2), leader_epoch=2)
    before.append(numbered(3), leader_epoch=2)
    image = image_of(before.disk)
    damaged = bytearray(image[FIRST])
    damaged[batch_bounds(image[FIRST])[1] + PLACES[place]] ^= 1

    opened = reopen(disk_of({FIRST: bytes(damaged)}))

    if is_durable:
        assert opened.report.damage == [DamagedRange(1, 2)]
        assert read_all(opened.log) == without(1, 4)
    else:
        assert not opened.report.damage
        assert read_all(opened.log) == expected(0, 1)


def test_a_good_batch_with_a_batch_in_its_payload_is_one_batch() -> None:
    before = new_log()
    before.append(FITTING)
    before.append(numbered(1))

    opened = before.kill()

    assert read_all(opened.log) == {0: FITTING, 1: numbered(1)}
