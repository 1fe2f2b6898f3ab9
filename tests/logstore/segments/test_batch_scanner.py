"""The scanner finds batches in a file, and ignores bytes that only look like a batch."""

import pytest

from tests.logstore.logs import stored
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.disk.disk import File
from tidelog.logstore.segments.batch_scanner import FileWindow, Predecessor, walk_headers
from tidelog.wire.batch.record_batch import HEADER_SIZE, BatchHeader

FIRST = stored([b"first"], base_offset=10)
SECOND = stored([b"second"], base_offset=11, leader_epoch=3, durable_position=64)
THIRD = stored([b"third" * 1000], base_offset=12, leader_epoch=3, durable_position=64)
MARKER = FIRST[:4]


def file_of(*parts: bytes) -> File:
    file = FaultyDisk().open("segment", create=True)
    file.write_at(0, [b"".join(parts)])
    return file


def window_on(*parts: bytes, chunk_bytes: int = 1 << 20) -> FileWindow:
    file = file_of(*parts)
    return FileWindow(file, end=file.size(), chunk_bytes=chunk_bytes)


def anything(_header: BatchHeader) -> bool:
    return True


def offsets(file: File, position: int = 0, *, end: int | None = None) -> list[tuple[int, int]]:
    found = walk_headers(file, position, start_offset=0, end=file.size() if end is None else end)
    return [(at, header.base_offset) for at, header in found]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 88, 100, 4096])
def test_a_window_shows_the_same_whatever_its_size(chunk_bytes: int) -> None:
    data = bytes(range(256)) * 4
    window = window_on(data, chunk_bytes=chunk_bytes)

    for position, length in (0, 5), (5, 100), (900, 124), (3, 20), (1020, 4):
        assert bytes(window.view(position, length)) == data[position : position + length]


def test_a_window_ends_where_it_is_told_to() -> None:
    window = FileWindow(file_of(bytes(100)), end=50)

    assert len(window.view(40, 20)) == 10
    assert len(window.view(50, 20)) == 0
    assert len(window.view(99, 20)) == 0


def test_a_whole_batch_is_valid_and_a_part_of_one_is_not() -> None:
    for size in range(len(FIRST)):
        assert window_on(FIRST[:size]).valid_header(0) is None
    header = window_on(FIRST).valid_header(0)
    assert header is not None
    assert header.base_offset == 10


def test_a_header_needs_its_payload_to_be_in_the_file_but_not_to_be_right() -> None:
    damaged = FIRST[:-1] + b"?"

    assert window_on(damaged).header(0) is not None
    assert window_on(damaged).valid_header(0) is None
    assert window_on(FIRST[:-1]).header(0) is None


def test_a_file_that_became_shorter_has_no_batch_where_it_ended() -> None:
    file = file_of(FIRST, SECOND)
    window = FileWindow(file, end=len(FIRST) + len(SECOND))
    file.truncate(len(FIRST) + HEADER_SIZE + 2)

    assert window.valid_header(len(FIRST)) is None
    assert window.find_valid(len(FIRST), accepts=anything) is None
    file.truncate(len(FIRST) + 2)
    assert FileWindow(file, end=500).find_valid(len(FIRST), accepts=anything) is None


def test_a_durable_position_beyond_the_batch_is_invalid() -> None:
    assert window_on(bytes(63), SECOND).valid_header(63) is None
    assert window_on(bytes(64), SECOND).valid_header(64) is not None


@pytest.mark.parametrize("chunk_bytes", [88, 89, 100, 200, 4096])
@pytest.mark.parametrize("gap", [b"", b"garbage", MARKER, MARKER[:3], bytes(83), MARKER * 30])
def test_the_next_batch_is_found_after_any_bytes(gap: bytes, chunk_bytes: int) -> None:
    window = window_on(gap, FIRST, SECOND, chunk_bytes=chunk_bytes)

    found = window.find_valid(0, accepts=anything)

    assert found is not None
    assert found[0] == len(gap)
    assert found[1].base_offset == 10


def test_a_batch_that_is_not_accepted_is_passed_over() -> None:
    window = window_on(FIRST, bytes(10), SECOND, THIRD)

    found = window.find_valid(0, accepts=lambda header: header.base_offset > 11)

    assert found is not None
    assert found[1].base_offset == 12


def test_no_batch_is_found_in_an_empty_file() -> None:
    assert window_on(b"").find_valid(0, accepts=anything) is None
    assert window_on(bytes(5000)).find_valid(0, accepts=anything) is None
    assert window_on(MARKER * 100).find_valid(0, accepts=anything) is None
    assert window_on(FIRST).find_valid(1, accepts=anything) is None


def test_batches_inside_of_a_bad_payload_are_ignored() -> None:
    outer = stored([FIRST + b"tail"], base_offset=5)

    in_bad_payload = window_on(outer[:-1] + b"?", SECOND).find_behind(0, accepts=anything)
    behind_bad_header = window_on(b"?" + outer[1:], SECOND).find_behind(0, accepts=anything)

    assert in_bad_payload is not None
    assert in_bad_payload[1].base_offset == 11
    assert behind_bad_header is not None
    assert behind_bad_header[1].base_offset == 10


@pytest.mark.parametrize(
    ("header", "may_follow"),
    [
        (stored([b""], base_offset=20, leader_epoch=5, durable_position=100), True),
        (stored([b""], base_offset=25, leader_epoch=6, durable_position=101), True),
        (stored([b""], base_offset=19, leader_epoch=5, durable_position=100), False),
        (stored([b""], base_offset=20, leader_epoch=4, durable_position=100), False),
        (stored([b""], base_offset=20, leader_epoch=5, durable_position=99), False),
    ],
)
def test_offsets_grow_and_epochs_and_durable_positions_never_fall(
    header: bytes, *, may_follow: bool
) -> None:
    parsed = window_on(bytes(200), header).header(200)
    assert parsed is not None

    assert Predecessor(20, 5, 100).may_precede(parsed) == may_follow


def test_a_walk_sees_every_batch() -> None:
    file = file_of(FIRST, SECOND, THIRD)
    second, third = len(FIRST), len(FIRST) + len(SECOND)

    assert offsets(file) == [(0, 10), (second, 11), (third, 12)]
    assert offsets(file, second) == [(second, 11), (third, 12)]
    assert offsets(file, end=third) == [(0, 10), (second, 11)]
    assert offsets(file, end=0) == []


def test_a_walk_skips_bytes_that_are_no_batch_or_out_of_order() -> None:
    file = file_of(FIRST, b"damage", SECOND, FIRST, THIRD)

    assert [offset for _, offset in offsets(file)] == [10, 11, 12]


def test_a_walk_ends_when_nothing_follows() -> None:
    assert offsets(file_of(FIRST, bytes(1000))) == [(0, 10)]
