"""The gap scan tells good batches from gaps, wherever bytes are bad or missing."""

from tests.logstore.logs import stored
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.damage import DamagedRange, DamagedRanges
from tidelog.logstore.disk.disk import File
from tidelog.logstore.segments.gap_scan import Gap, ValidBatch, scan_for_gaps
from tidelog.logstore.segments.log_position import OffsetPosition
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE
from tidelog.wire.batch.record_batch import HEADER_SIZE

BATCHES = [
    stored([b"x" * 9] * 2, base_offset=2 * number, leader_epoch=number) for number in range(4)
]
SIZE = len(BATCHES[0])
END = SEGMENT_HEADER_SIZE + 4 * SIZE


def file_of(data: bytes) -> File:
    file = FaultyDisk().open("file", create=True)
    file.write_at(SEGMENT_HEADER_SIZE, [data])
    return file


def look(data: bytes, *, end_offset: int = 8) -> list[ValidBatch | Gap]:
    end = OffsetPosition(end_offset, SEGMENT_HEADER_SIZE + len(data))
    start = OffsetPosition(0, SEGMENT_HEADER_SIZE)
    return list(scan_for_gaps(file_of(data), start=start, end=end, chunk_bytes=64))


def gaps(data: bytes) -> list[Gap]:
    return [each for each in look(data) if isinstance(each, Gap)]


def at(number: int) -> int:
    return SEGMENT_HEADER_SIZE + number * SIZE


def test_good_batches_are_found_with_their_positions() -> None:
    found = look(b"".join(BATCHES))

    assert [each.end_offset for each in found] == [2, 4, 6, 8]
    assert [each.position for each in found] == [at(number) for number in range(4)]
    assert all(isinstance(each, ValidBatch) for each in found)


def test_every_flipped_bit_makes_its_batch_a_gap() -> None:
    for place in range(4 * SIZE):
        data = bytearray(b"".join(BATCHES))
        data[place] ^= 0x10
        number = place // SIZE

        (gap,) = gaps(bytes(data))

        assert (gap.offset, gap.end_offset) == (2 * number, 2 * number + 2)
        assert (gap.position, gap.end_position) == (at(number), at(number + 1))
        assert gap.leader_epoch == max(number - 1, 0)
        assert (gap.behind is None) == (number == 3)


def test_every_lost_end_is_a_gap() -> None:
    for size in range(4 * SIZE):
        whole = size // SIZE

        (gap,) = gaps(b"".join(BATCHES)[:size])

        assert (gap.offset, gap.end_offset, gap.position) == (2 * whole, 8, at(whole))
        assert gap.end_position == SEGMENT_HEADER_SIZE + size
        assert gap.behind is None


def test_missing_offsets_are_a_gap_without_bytes() -> None:
    (gap,) = gaps(BATCHES[0] + BATCHES[2] + BATCHES[3])

    assert (gap.offset, gap.end_offset) == (2, 4)
    assert gap.position == gap.end_position == at(1)


def test_bytes_that_are_no_batch_are_a_gap_without_offsets() -> None:
    (gap, last) = gaps(BATCHES[0] + b"...." + b"".join(BATCHES[1:]) + b".")

    assert (gap.offset, gap.end_offset, gap.end_position - gap.position) == (2, 2, 4)
    assert (last.offset, last.end_offset, last.end_position - last.position) == (8, 8, 1)


def test_a_batch_in_known_damage_is_in_a_gap() -> None:
    data = b"".join(BATCHES)
    found = list(
        scan_for_gaps(
            file_of(data),
            start=OffsetPosition(0, SEGMENT_HEADER_SIZE),
            end=OffsetPosition(8, END),
            damage=DamagedRanges([DamagedRange(3, 5)]),
        )
    )

    assert [type(each) for each in found] == [ValidBatch, Gap, ValidBatch]
    assert [(each.offset, each.end_offset) for each in found] == [(0, 2), (2, 6), (6, 8)]


def test_a_batch_that_reaches_beyond_the_end_is_in_a_gap() -> None:
    data = b"".join(BATCHES)

    (*_, last) = look(data, end_offset=7)

    assert isinstance(last, Gap)
    assert (last.offset, last.end_offset, last.end_position) == (6, 7, END)


def test_a_batch_inside_of_a_damaged_payload_is_ignored() -> None:
    inner = stored([b"inner"], base_offset=1)
    outer = bytearray(stored([inner], base_offset=0))
    outer[HEADER_SIZE] ^= 1

    found = look(bytes(outer), end_offset=1)

    assert [type(each) for each in found] == [Gap]
