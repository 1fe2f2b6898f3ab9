"""One segment: appends, seal, truncation, and searches in its file."""

import errno
from random import Random

import pytest

from tests.logstore.logs import NOW_MS, batch_bounds, header_of, stored
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.config import LogConfig
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    Segment,
    base_offset_of,
    segment_path,
)
from tidelog.logstore.segments.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
)

DIRECTORY = "log"
CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=300)
HEADER = SegmentHeader(b"sixteen bytes id", 0, 100)
PATH = segment_path(DIRECTORY, 100)
INDEX_PATH = PATH.replace(".log", ".index")


def new_segment(disk: FaultyDisk, *, count: int = 10) -> Segment:
    """Return a segment of `count` batches from offset 100 on, the first one the newest."""
    disk.make_directory(DIRECTORY)
    segment = Segment(FileCache(disk), DIRECTORY, 100)
    segment.create(HEADER, CONFIG)
    for number in range(count):
        append(segment, timestamp_ms=1000 - number)
    return segment


def append(segment: Segment, *, timestamp_ms: int = 1000) -> None:
    offset = segment.end_offset
    value = b"%03d" % offset
    header = header_of([value], timestamp_ms=timestamp_ms)
    batch = stored([value], base_offset=offset, timestamp_ms=timestamp_ms)
    segment.append(header, memoryview(batch), base_offset=offset)


def bounds(disk: FaultyDisk) -> list[int]:
    file = disk.open(PATH)
    return batch_bounds(file.read_at(0, file.size()))


def reopened(disk: FaultyDisk) -> Segment:
    segment = Segment(FileCache(disk), DIRECTORY, 100)
    footer = segment.read_footer()
    assert footer is not None
    segment.open_sealed(footer)
    return segment


def test_the_name_of_a_file_tells_its_base_offset() -> None:
    assert PATH == "log/00000000000000000100.log"
    assert base_offset_of("00000000000000000100.log", LOG_SUFFIX) == 100
    assert base_offset_of("00000000000000000100.index", INDEX_SUFFIX) == 100


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000100.index",
        "00000000000000000100",
        "0000000000000000100.log",
        "000000000000000000100.log",
        "0000000000000000010x.log",
        "+0000000000000000100.log",
        "\u0660" * 20 + ".log",
        "\u00b20000000000000000100.log",
        "00000000000000000100.log.stale",
        "checkpoint",
    ],
)
def test_other_names_are_not_segments(name: str) -> None:
    assert base_offset_of(name, LOG_SUFFIX) is None


def test_a_new_segment_is_empty() -> None:
    disk = FaultyDisk()

    segment = new_segment(disk, count=0)

    assert (segment.base_offset, segment.end_offset) == (100, 100)
    assert segment.end_position == segment.size_bytes == SEGMENT_HEADER_SIZE
    assert segment.read_header() == HEADER
    assert segment.read_footer() is None
    assert not segment.is_sealed


def test_a_new_segment_replaces_what_is_there() -> None:
    disk = FaultyDisk()
    new_segment(disk)

    new_segment(disk, count=0)

    assert disk.open(PATH).size() == SEGMENT_HEADER_SIZE


def test_a_failed_segment_creation_leaves_no_file() -> None:
    disk = FaultyDisk()
    disk.fail("write_at", error_number=errno.ENOSPC)

    with pytest.raises(OSError, match="No space left"):
        new_segment(disk)

    assert disk.list_directory(DIRECTORY) == []


def test_appended_batches_move_the_end_of_the_segment() -> None:
    disk = FaultyDisk()

    segment = new_segment(disk)

    assert segment.end_offset == 110
    assert segment.end_position == bounds(disk)[-1]
    assert segment.max_timestamp_ms == 1000
    assert segment.index is not None
    assert len(segment.index) == 3


def test_an_append_that_fails_leaves_the_file_as_it_was() -> None:
    disk = FaultyDisk(capacity_bytes=1000)
    segment = new_segment(disk, count=9)

    with pytest.raises(OSError, match="No space left"):
        append(segment)

    assert disk.open(PATH).size() == segment.end_position == bounds(disk)[-1]
    assert segment.end_offset == 109


def test_a_sealed_segment_is_opened_from_its_footer() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    size = segment.size_bytes

    segment.seal(now_ms=NOW_MS)

    copy = reopened(disk)
    for sealed in segment, copy:
        assert sealed.is_sealed
        assert (sealed.end_offset, sealed.end_position) == (110, size)
        assert sealed.size_bytes == size + SEGMENT_FOOTER_SIZE == disk.open(PATH).size()
        assert (sealed.max_timestamp_ms, sealed.sealed_at_ms) == (1000, NOW_MS)
    assert copy.trusted_position == size
    assert segment.trusted_position == SEGMENT_HEADER_SIZE


def test_a_footer_at_a_wrong_position_is_ignored() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    segment.seal(now_ms=NOW_MS)
    file = disk.open(PATH)
    footer = file.read_at(segment.end_position, SEGMENT_FOOTER_SIZE)

    file.write_at(file.size(), [footer])

    assert segment.read_footer() is None


def test_a_segment_that_cannot_be_sealed_stays_active() -> None:
    disk = FaultyDisk(capacity_bytes=1100)
    segment = new_segment(disk)

    with pytest.raises(OSError, match="No space left"):
        segment.seal(now_ms=NOW_MS)

    assert not segment.is_sealed
    assert disk.open(PATH).size() == segment.end_position
    disk.capacity_bytes = None
    append(segment)
    segment.seal(now_ms=NOW_MS)
    assert reopened(disk).end_offset == 111


def test_a_sealed_segment_does_without_an_index_when_there_is_no_room_for_it() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    disk.fail("write_at", path=INDEX_PATH, error_number=errno.ENOSPC, count=2)

    segment.seal(now_ms=NOW_MS)

    assert segment.is_sealed
    assert not disk.exists(INDEX_PATH)
    assert reopened(disk).start_of(109, CONFIG) == (108, bounds(disk)[8])
    assert not disk.exists(INDEX_PATH)


def test_other_errors_of_writing_an_index_are_raised() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    disk.fail("write_at", path=INDEX_PATH)

    with pytest.raises(OSError, match="Input/output error"):
        segment.seal(now_ms=NOW_MS)


def test_the_last_batch_is_found_though_the_index_leaves_it_out() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    ends = bounds(disk)

    assert segment.start_of(109, CONFIG) == (109, ends[9])
    assert segment.start_of(110, CONFIG) == (109, ends[9])
    assert segment.start_of(108, CONFIG) == (108, ends[8])
    assert segment.start_of(107, CONFIG)[0] < 107, "one of four is in the index"

    segment.cut(ends[8], 108, CONFIG)
    assert segment.start_of(108, CONFIG)[1] < ends[8]
    append(segment)
    assert segment.start_of(108, CONFIG) == (108, ends[8])


@pytest.mark.parametrize("ruin", ["keep", "remove", "damage", "cut", "of another segment"])
def test_the_index_of_a_sealed_segment_is_rebuilt_when_it_is_needed(ruin: str) -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    segment.seal(now_ms=NOW_MS)
    places = [segment.start_of(offset, CONFIG) for offset in range(100, 110)]
    file = disk.open(INDEX_PATH)
    data = file.read_at(0, file.size())
    match ruin:
        case "remove":
            disk.remove(INDEX_PATH)
        case "damage":
            file.write_at(30, [b"\xff"])
        case "cut":
            file.truncate(10)
        case "of another segment":
            file.write_at(8, [b"\x01"])
        case _:
            pass

    copy = reopened(disk)

    assert [copy.start_of(offset, CONFIG) for offset in range(100, 110)] == places
    file = disk.open(INDEX_PATH)
    assert file.read_at(0, file.size()) == data


def test_an_index_is_never_overwritten_so_that_an_old_one_cannot_come_back() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    segment.seal(now_ms=NOW_MS)
    for path in PATH, INDEX_PATH:
        disk.open(path).sync()
    disk.sync_directory("")
    disk.sync_directory(DIRECTORY)
    segment.cut(bounds(disk)[2], 102, CONFIG)
    segment.cut_file()
    for _ in range(20):
        append(segment, timestamp_ms=5)
    append(segment, timestamp_ms=50)
    segment.seal(now_ms=NOW_MS)
    segment.file().sync()
    disk.sync_directory(DIRECTORY)
    places = [segment.start_of(offset, CONFIG) for offset in range(100, segment.end_offset)]

    for seed in range(20):
        copy = reopened(disk.power_cut(Random(seed)))

        found = [copy.start_of(offset, CONFIG) for offset in range(100, segment.end_offset)]
        assert found == places


def test_reading_begins_at_most_an_index_interval_early() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk, count=50)
    positions = bounds(disk)

    for number in range(50):
        offset, position = segment.start_of(100 + number, CONFIG)

        assert offset <= 100 + number
        assert 0 <= positions[number] - position < CONFIG.index_interval_bytes
        assert positions[offset - 100] == position


@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_end_below_an_offset_is_the_end_of_a_batch(*, is_sealed: bool) -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    positions = bounds(disk)
    if is_sealed:
        segment.seal(now_ms=NOW_MS)
        segment = reopened(disk)

    for number in range(11):
        assert segment.end_below(100 + number, CONFIG) == (positions[number], 100 + number)
    assert segment.end_below(500, CONFIG) == (positions[10], 110)


def test_a_batch_that_is_only_partly_below_an_offset_is_not_below_it() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk, count=1)
    values = [b"a", b"b", b"c"]
    batch = memoryview(stored(values, base_offset=101))
    segment.append(header_of(values), batch, base_offset=101)

    for offset in 101, 102, 103:
        assert segment.end_below(offset, CONFIG) == (bounds(disk)[1], 101)
    assert segment.end_below(104, CONFIG) == (bounds(disk)[2], 104)


def test_a_truncated_segment_accepts_appends() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    positions = bounds(disk)
    segment.seal(now_ms=NOW_MS)
    segment = reopened(disk)

    segment.cut(positions[4], 104, CONFIG)
    segment.remove_index()
    segment.cut_file()

    assert (segment.end_position, segment.end_offset) == (positions[4], 104)
    assert segment.trusted_position == positions[4]
    assert not segment.is_sealed
    assert not disk.exists(INDEX_PATH)
    assert len(disk.durable_bytes(PATH)) == positions[4]
    append(segment)
    assert bounds(disk)[4:] == positions[4:6]
    assert segment.start_of(104, CONFIG)[1] <= positions[4]


def test_a_fully_truncated_segment_equals_a_new_one() -> None:
    segment = new_segment(FaultyDisk())
    vars(segment)["first_append_ms"] = NOW_MS

    segment.cut(SEGMENT_HEADER_SIZE, 100, CONFIG)

    assert segment.first_append_ms is None
    assert segment.end_offset == 100


def test_a_holder_of_a_removed_file_can_read_it() -> None:
    disk = FaultyDisk()
    segment = new_segment(disk)
    segment.seal(now_ms=NOW_MS)
    held = segment.file()

    segment.forget_files()
    segment.remove_files()

    assert disk.list_directory(DIRECTORY) == []
    assert held.size() == segment.size_bytes
    with pytest.raises(FileNotFoundError):
        segment.file()
