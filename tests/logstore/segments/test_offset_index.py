"""The sparse index finds positions by offset and by time, and detects its own damage."""

import errno
import struct
from itertools import accumulate

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.logstore.logs import SMALL, new_log
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.segments.offset_index import OffsetIndex, index_of_batches, write_index
from tidelog.logstore.segments.segment_format import SEGMENT_FOOTER_SIZE, parse_segment_footer

BASE = 1000
INTERVAL = 100


def index_of(*batches: tuple[int, int, int], interval_bytes: int = INTERVAL) -> OffsetIndex:
    """Return an index of batches (offset, position, largest timestamp before)."""
    index = OffsetIndex(base_offset=BASE, interval_bytes=interval_bytes)
    for offset, position, max_timestamp_before in batches:
        index.add(offset, position, max_timestamp_before=max_timestamp_before)
    return index


def read_back(data: bytes) -> OffsetIndex | None:
    return OffsetIndex.from_bytes(data, base_offset=BASE, interval_bytes=INTERVAL)


SAMPLE = index_of((1000, 64, 0), (1010, 200, 5), (1020, 400, 5), (1040, 600, 9))


def test_batches_closer_than_the_interval_are_left_out() -> None:
    index = index_of((1000, 64, 0), (1001, 163, 0), (1002, 164, 0), (1003, 263, 0), (1004, 264, 0))

    assert len(index) == 3
    assert index.floor(1001) == (1000, 64)
    assert index.floor(1003) == (1002, 164)
    assert index.floor(1004) == (1004, 264)


@pytest.mark.parametrize(
    ("offset", "entry"),
    [
        (0, None),
        (999, None),
        (1000, (1000, 64)),
        (1009, (1000, 64)),
        (1010, (1010, 200)),
        (1039, (1020, 400)),
        (1040, (1040, 600)),
        (1 << 62, (1040, 600)),
    ],
)
def test_the_floor_is_the_last_entry_at_or_below(
    offset: int, entry: tuple[int, int] | None
) -> None:
    assert SAMPLE.floor(offset) == entry


@pytest.mark.parametrize(
    ("position", "floor", "ceiling"),
    [(0, None, 64), (64, 64, 64), (65, 64, 200), (600, 600, 600), (601, 600, None)],
)
def test_positions_are_found_on_both_sides(
    position: int, floor: int | None, ceiling: int | None
) -> None:
    assert SAMPLE.floor_position(position) == floor
    assert SAMPLE.ceiling_position(position) == ceiling


@pytest.mark.parametrize(
    ("timestamp_ms", "entry"),
    [
        (-1, None),
        (0, None),
        (1, (1000, 64)),
        (5, (1000, 64)),
        (6, (1020, 400)),
        (9, (1020, 400)),
        (10, (1040, 600)),
    ],
)
def test_only_older_batches_lie_before_the_entry_for_a_time(
    timestamp_ms: int, entry: tuple[int, int] | None
) -> None:
    assert SAMPLE.before_time(timestamp_ms) == entry


def test_an_empty_index_knows_nothing() -> None:
    index = index_of()

    assert len(index) == 0
    assert index.floor(BASE) is None
    assert index.floor_position(100) is None
    assert index.ceiling_position(0) is None
    assert index.before_time(5) is None


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 1000), st.integers(89, 300), st.integers(0, 100)), min_size=1
    ),
    timestamp_ms=st.integers(1, 110),
)
def test_a_search_by_time_never_begins_after_the_first_match(
    steps: list[tuple[int, int, int]], timestamp_ms: int
) -> None:
    offsets = accumulate((step[0] for step in steps), initial=BASE)
    positions = accumulate((step[1] for step in steps), initial=64)
    newest = accumulate((step[2] for step in steps), max, initial=0)
    index = index_of(*list(zip(offsets, positions, newest, strict=True))[:-1])
    positions = accumulate((step[1] for step in steps), initial=64)
    new_enough = [
        position
        for position, step in zip(positions, steps, strict=False)
        if step[2] >= timestamp_ms
    ]

    entry = index.before_time(timestamp_ms)

    assert entry is not None
    assert not new_enough or entry[1] <= new_enough[0]


def test_a_truncated_index_drops_later_entries() -> None:
    index = index_of((1000, 64, 0), (1010, 200, 5), (1020, 400, 5))

    index.truncate(200)

    assert len(index) == 1
    index.add(1005, 180, max_timestamp_before=3)
    assert index.floor(5000) == (1005, 180)


def test_a_stored_index_is_read_as_it_was_written() -> None:
    copy = read_back(SAMPLE.to_bytes())

    assert copy is not None
    assert copy.to_bytes() == SAMPLE.to_bytes()
    assert copy.floor(1039) == (1020, 400)
    assert copy.before_time(6) == (1020, 400)
    copy.add(1050, 700, max_timestamp_before=9)
    assert copy.floor(1050) == (1050, 700)


@pytest.mark.invariant("I12")
def test_a_stored_index_that_lost_bytes_or_has_more_is_refused() -> None:
    data = SAMPLE.to_bytes()

    for size in range(len(data)):
        assert read_back(data[:size]) is None
    assert read_back(data + b"\0") is None


@pytest.mark.invariant("I12")
def test_every_flipped_bit_of_a_stored_index_is_noticed() -> None:
    data = SAMPLE.to_bytes()

    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert read_back(bytes(damaged)) is None


def test_the_index_of_another_segment_or_version_is_refused() -> None:
    data = SAMPLE.to_bytes()
    prefix = data[:4] + struct.pack("<H", 2) + data[6:20]
    newer = prefix + struct.pack("<I", crc32c(data[24:], crc32c(prefix))) + data[24:]

    assert OffsetIndex.from_bytes(data, base_offset=BASE + 1, interval_bytes=INTERVAL) is None
    assert read_back(newer) is None


def test_a_rebuilt_index_equals_the_index_of_the_log() -> None:
    opened = new_log()
    opened.append_many(60)
    path = opened.path()
    footer = parse_segment_footer(opened.disk.visible_bytes(path)[-SEGMENT_FOOTER_SIZE:])
    assert footer is not None

    index = index_of_batches(
        opened.disk.open(path), base_offset=0, end_position=footer.end_position, config=SMALL
    )

    assert index.to_bytes() == opened.disk.visible_bytes(path.replace(".log", ".index"))


@pytest.mark.parametrize("operation", ["write_at", "sync", "rename"])
def test_when_the_disk_is_full_the_old_index_stays(operation: str) -> None:
    disk = FaultyDisk()
    disk.make_directory("log")
    old, new = (OffsetIndex(base_offset=base, interval_bytes=1) for base in (0, 9))
    write_index(disk, "log/x.index", old)
    disk.fail(operation, error_number=errno.ENOSPC)

    with pytest.raises(OSError, match="No space left"):
        write_index(disk, "log/x.index", new)

    assert disk.visible_bytes("log/x.index") == old.to_bytes()
    assert disk.list_directory("log") == ["x.index"]
