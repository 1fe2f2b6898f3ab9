"""A slice is checked when it comes from the disk, and its good part is sent."""

import pytest

from tests.logstore.logs import numbered, records_in, stored
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.segments.log_slice import LogSlice, corrupt
from tidelog.wire.batch.record_batch import HEADER_SIZE
from tidelog.wire.errors import CorruptRecordError

BATCHES = [stored([numbered(offset)], base_offset=offset) for offset in range(5)]
SIZE = len(BATCHES[0])


def slice_for(
    offset: int,
    *damaged: int,
    count: int = 5,
    is_trusted: bool = False,
    at: int = 8,
    end_offset: int = 5,
) -> LogSlice:
    """Return a slice of `count` batches for `offset`; some batches of the file are damaged."""
    data = bytearray(b"".join(BATCHES))
    for number in damaged:
        data[number * SIZE + at] ^= 1
    file = FaultyDisk().open("segment", create=True)
    file.write_at(0, [data])
    return LogSlice(
        file, 0, count * SIZE, offset=offset, end_offset=end_offset, is_trusted=is_trusted
    )


def offsets(part: LogSlice) -> list[int]:
    return list(records_in(part.read()))


def test_whole_batches_are_read() -> None:
    part = slice_for(0)

    assert offsets(part) == [0, 1, 2, 3, 4]
    assert offsets(part.load()) == [0, 1, 2, 3, 4]


def test_batches_below_the_requested_offset_are_skipped() -> None:
    assert offsets(slice_for(3).load()) == [3, 4]


def test_misplaced_copies_of_earlier_batches_hide_no_later_batch() -> None:
    small, large = BATCHES[1], stored([numbered(2), b"x" * 500], base_offset=2)
    behind = stored([numbered(4)], base_offset=4), stored([numbered(5)], base_offset=5)
    copies = (small + large)[: len(large)]
    assert len(copies) - len(small) > HEADER_SIZE
    data = b"".join([copies, *behind])
    file = FaultyDisk().open("segment", create=True)
    file.write_at(0, [data])
    part = LogSlice(file, 0, len(data), offset=3, end_offset=6, is_trusted=False)
    part.start_offset = 3

    with pytest.raises(CorruptRecordError) as refusal:
        part.load()

    assert refusal.value.detail("next_offset") == 4


@pytest.mark.parametrize("at", [0, 8, 90])
def test_damage_below_the_requested_offset_is_skipped(at: int) -> None:
    assert offsets(slice_for(3, 0, 1, at=at).load()) == [3, 4]
    assert offsets(slice_for(3, 2, at=at).load()) == [3, 4]


@pytest.mark.parametrize("at", [0, 8, 90])
def test_a_slice_ends_before_damage_above_the_offset(at: int) -> None:
    part = slice_for(1, 3, at=at).load()

    assert offsets(part) == [1, 2]
    assert part.has_more


@pytest.mark.parametrize("at", [0, 8, 90])
@pytest.mark.parametrize(("damaged", "next_offset"), [((2,), 3), ((2, 3), 4), ((2, 3, 4), 5)])
def test_damage_at_the_requested_offset_is_an_error_with_the_next_offset(
    damaged: tuple[int, ...], next_offset: int, at: int
) -> None:
    with pytest.raises(CorruptRecordError, match="reading can continue at") as caught:
        slice_for(2, *damaged, at=at).load()

    assert (caught.value.offset, caught.value.next_offset) == (2, next_offset)


def test_the_next_readable_offset_may_be_after_the_slice() -> None:
    with pytest.raises(CorruptRecordError) as caught:
        slice_for(2, 2, count=3).load()

    assert caught.value.next_offset == 3


def test_a_slice_without_the_offset_is_damaged() -> None:
    with pytest.raises(CorruptRecordError) as caught:
        slice_for(3, count=2, end_offset=9).load()

    assert (caught.value.offset, caught.value.next_offset) == (3, 9)


def test_the_next_readable_offset_is_always_higher() -> None:
    error = corrupt(10, 7)

    assert (error.offset, error.next_offset) == (10, 11)


def test_a_checked_and_cached_slice_is_ready() -> None:
    assert slice_for(0, is_trusted=True).is_ready()
    assert slice_for(0).load().is_ready()


def test_an_unchecked_or_uncached_slice_is_not_ready() -> None:
    assert not slice_for(0).is_ready()
    disk = FaultyDisk()
    disk.cold_paths.add("segment")
    file = disk.open("segment", create=True)
    assert not LogSlice(file, 0, 10, offset=0, end_offset=5, is_trusted=True).is_ready()


def test_an_unsynced_slice_counts_as_cached() -> None:
    disk = FaultyDisk()
    disk.cold_paths.add("segment")
    file = disk.open("segment", create=True)
    part = LogSlice(file, 0, 10, offset=0, end_offset=5, is_trusted=True)
    part.is_unsynced = True

    assert part.is_ready()

    unchecked = LogSlice(file, 0, 10, offset=0, end_offset=5, is_trusted=False)
    unchecked.is_unsynced = True
    assert not unchecked.is_ready()


def test_no_header_is_read_to_begin_where_a_checked_slice_begins() -> None:
    disk = FaultyDisk()
    disk.fail("read_at")
    part = LogSlice(
        disk.open("segment", create=True), 64, SIZE, offset=2, end_offset=5, is_trusted=True
    )
    part.start_offset = 2
    part.begin_at(2)

    assert (part.position, part.length) == (64, SIZE)


def test_a_followers_slice_begins_exactly_at_its_log_end() -> None:
    part = slice_for(2, is_trusted=True)
    part.begin_at(2)

    assert offsets(part) == [2, 3, 4]


def test_loading_a_slice_keeps_has_more() -> None:
    part = slice_for(0, count=3)
    part.has_more = True

    assert part.load().has_more
    assert not slice_for(0).load().has_more


def test_a_misplaced_batch_is_not_sent() -> None:
    file = FaultyDisk().open("segment", create=True)
    file.write_at(0, [BATCHES[3], BATCHES[1], BATCHES[4]])
    part = LogSlice(file, 0, 3 * SIZE, offset=3, end_offset=5, is_trusted=False)

    assert offsets(part.load()) == [3]
