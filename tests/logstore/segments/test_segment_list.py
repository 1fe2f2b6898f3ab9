"""The segments of a log in order, with searches by offset and time."""

import errno

import pytest

from tests.logstore.logs import NOW_MS, header_of, records_in, stored
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.config import LogConfig
from tidelog.logstore.damage import DamagedRange, DamagedRanges
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.logstore.segments.segment_list import SegmentList
from tidelog.wire.errors import CorruptRecordError

DIRECTORY = "log"
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200)
HEADER = SegmentHeader(b"sixteen bytes id", 0, 0)


def new_segments(
    disk: FaultyDisk, *, count: int = 0, damage: DamagedRanges | None = None
) -> SegmentList:
    """Return segments of 10 batches each, `count` in all, the active one not full."""
    disk.make_directory(DIRECTORY)
    files = FileCache(disk)
    first = Segment(files, DIRECTORY, 0)
    first.create(HEADER, CONFIG)
    segments = SegmentList(
        HEADER,
        DIRECTORY,
        files,
        segments=[first],
        damage=damage or DamagedRanges(),
        leader_epochs=LeaderEpochs(),
    )
    for number in range(count):
        if number and number % 10 == 0:
            segments.roll(CONFIG, now_ms=NOW_MS)
        append(segments, timestamp_ms=1000 + number)
    return segments


def append(segments: SegmentList, *, timestamp_ms: int = 0) -> None:
    offset = segments.active.end_offset
    header = header_of([b"value"], timestamp_ms=timestamp_ms)
    batch = stored([b"value"], base_offset=offset, timestamp_ms=timestamp_ms)
    segments.active.append(header, memoryview(batch), base_offset=offset)


def offsets(
    segments: SegmentList, offset: int, *, max_bytes: int = 10_000, high_watermark: int = 1000
) -> list[int] | None:
    part = segments.read(offset, CONFIG, max_bytes=max_bytes, high_watermark=high_watermark)
    return None if part is None else list(records_in(part.read()))


def test_the_last_segment_is_the_active_one() -> None:
    segments = new_segments(FaultyDisk(), count=25)

    assert len(segments) == 3
    assert segments.base_offset == 0
    assert [segment.base_offset for segment in segments.sealed] == [0, 10]
    assert segments.active.base_offset == 20
    assert segments.size_bytes == sum(
        segment.size_bytes for segment in [*segments.sealed, segments.active]
    )


def test_every_offset_is_held_by_one_segment() -> None:
    segments = new_segments(FaultyDisk(), count=25)

    assert [segments.floor_segment(offset).base_offset for offset in (0, 9, 10, 19, 20, 99)] == [
        0, 0, 10, 10, 20, 20,
    ]  # fmt: skip


def test_an_empty_segment_is_never_rolled() -> None:
    segments = new_segments(FaultyDisk())

    assert not segments.must_roll(100_000, 1, CONFIG)
    append(segments)
    assert segments.must_roll(100_000, 2, CONFIG)
    assert not segments.must_roll(100, 2, CONFIG)


@pytest.mark.invariant("I5")
def test_a_segment_is_rolled_before_its_offsets_outgrow_the_index() -> None:
    segments = new_segments(FaultyDisk(), count=1)

    assert not segments.must_roll(1, (1 << 32) - 1, CONFIG)
    assert segments.must_roll(1, 1 << 32, CONFIG)


def test_a_read_ends_with_the_segment_and_says_that_there_is_more() -> None:
    segments = new_segments(FaultyDisk(), count=25)

    part = segments.read(0, CONFIG, max_bytes=10_000, high_watermark=25)

    assert part is not None
    assert list(records_in(part.read())) == list(range(10))
    assert part.has_more
    last = segments.read(20, CONFIG, max_bytes=10_000, high_watermark=25)
    assert last is not None
    assert not last.has_more


def test_a_read_ends_at_the_high_watermark() -> None:
    segments = new_segments(FaultyDisk(), count=25)

    for high_watermark in range(1, 26):
        found = offsets(segments, 0, high_watermark=high_watermark)
        assert found == list(range(min(high_watermark, 10)))


def test_a_read_ends_before_damage_and_does_not_begin_in_it() -> None:
    damage = DamagedRanges([DamagedRange(4, 7)])
    segments = new_segments(FaultyDisk(), count=10, damage=damage)

    assert offsets(segments, 0) == [0, 1, 2, 3]
    part = segments.read(7, CONFIG, max_bytes=10_000, high_watermark=10)
    assert part is not None
    assert not part.is_ready(), "the damage covers its base offset"
    for offset in 4, 5, 6:
        with pytest.raises(CorruptRecordError) as caught:
            offsets(segments, offset)
        assert (caught.value.offset, caught.value.next_offset) == (offset, 7)


def test_a_partly_committed_batch_is_not_read() -> None:
    segments = new_segments(FaultyDisk(), count=2)
    values = [b"a", b"b", b"c"]
    batch = memoryview(stored(values, base_offset=2))
    segments.active.append(header_of(values), batch, base_offset=2)

    assert offsets(segments, 2, high_watermark=4) is None
    assert offsets(segments, 3, high_watermark=4) is None
    assert offsets(segments, 0, high_watermark=4) == [0, 1]
    assert offsets(segments, 3, high_watermark=5) == [2, 3, 4]


def test_unknown_damage_is_found_right_below_the_high_watermark() -> None:
    """Otherwise a consumer would wait for ever."""
    segments = new_segments(disk := FaultyDisk(), count=3)
    start = segments.active.end_below(1, CONFIG)[0]
    file = disk.open(segments.active.path)
    file.write_at(start, [bytes(100)])

    part = segments.read(1, CONFIG, max_bytes=10_000, high_watermark=2)

    assert part is not None
    assert not part.is_ready()
    with pytest.raises(CorruptRecordError) as caught:
        part.load()
    assert (caught.value.offset, caught.value.next_offset) == (1, 2)


def test_known_damage_within_a_batch_is_found_from_its_base_offset_too() -> None:
    segments = new_segments(FaultyDisk())
    values = [b"a", b"b", b"c"]
    batch = bytearray(stored(values, base_offset=0))
    batch[-1] ^= 1
    segments.active.append(header_of(values), memoryview(batch), base_offset=0)
    append(segments)
    segments.damage.add(1, 3)

    part = segments.read(0, CONFIG, max_bytes=10_000, high_watermark=4)

    assert part is not None
    with pytest.raises(CorruptRecordError) as caught:
        part.load()
    assert (caught.value.offset, caught.value.next_offset) == (0, 3)


def test_the_oldest_segments_are_dropped_and_their_files_stay_for_now() -> None:
    segments = new_segments(disk := FaultyDisk(), count=35)

    removed = segments.drop_oldest(2)

    assert [segment.base_offset for segment in removed] == [0, 10]
    assert segments.base_offset == 20
    assert disk.exists(removed[0].path)


def test_a_truncation_makes_a_sealed_segment_active() -> None:
    segments = new_segments(disk := FaultyDisk(), count=35)

    removed = segments.cut(15, CONFIG)
    segments.cut_files(removed)

    assert [segment.base_offset for segment in removed] == [30, 20]
    assert (len(segments), segments.active.base_offset) == (2, 10)
    assert segments.active.end_offset == 15
    assert not segments.active.is_sealed
    assert disk.list_directory(DIRECTORY) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000010.log",
    ]
    assert offsets(segments, 10) == [10, 11, 12, 13, 14]


def test_a_truncation_between_segments_keeps_the_first_one_whole() -> None:
    segments = new_segments(FaultyDisk(), count=25)

    segments.cut_files(segments.cut(20, CONFIG))

    assert (len(segments), segments.active.end_offset) == (2, 20)
    assert not segments.active.is_sealed


def test_a_full_truncation_keeps_one_segment() -> None:
    segments = new_segments(FaultyDisk(), count=25)

    segments.cut_files(segments.cut(0, CONFIG))

    assert (len(segments), segments.active.end_offset) == (1, 0)


def test_a_roll_on_a_full_disk_changes_nothing() -> None:
    for operation in "create", "write_at":
        segments = new_segments(disk := FaultyDisk(), count=5)
        before = disk.list_directory(DIRECTORY)
        disk.fail(operation, error_number=errno.ENOSPC)

        with pytest.raises(OSError, match="No space left"):
            segments.roll(CONFIG, now_ms=NOW_MS)

        assert disk.list_directory(DIRECTORY) == before
        assert not segments.active.is_sealed
        append(segments)
        assert offsets(segments, 5) is not None


def test_a_roll_that_cannot_seal_removes_the_new_segment() -> None:
    segments = new_segments(disk := FaultyDisk(), count=5)
    before = disk.list_directory(DIRECTORY)
    disk.fail("write_at", path=segments.active.path, error_number=errno.ENOSPC)

    with pytest.raises(OSError, match="No space left"):
        segments.roll(CONFIG, now_ms=NOW_MS)

    assert disk.list_directory(DIRECTORY) == before
    assert len(segments) == 1
