"""Tests of a disk with a write cache after a power cut."""

import errno
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.system.powercut.volatile_disk import BLOCK_BYTES, SECTOR_BYTES, Survival, VolatileDisk

SECTORS = 16
WRITES = st.lists(
    st.one_of(
        st.none(),  # A flush.
        st.tuples(st.integers(0, SECTORS - 1), st.integers(1, SECTORS), st.integers(1, 255)),
    ),
    max_size=30,
)


def sector_of(content: bytes | bytearray, number: int) -> int:
    """Return the byte that fills a sector; fails if the sector was torn."""
    (value,) = set(content[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES])
    return value


def write(disk: VolatileDisk, first: int, count: int, *, value: int) -> range:
    sectors = range(first, min(first + count, SECTORS))
    disk.write(first * SECTOR_BYTES, bytes([value]) * (len(sectors) * SECTOR_BYTES))
    return sectors


@given(WRITES, st.sampled_from(Survival), st.randoms(use_true_random=False))
def test_a_power_cut_leaves_each_sector_flushed_or_newer(
    writes: list[tuple[int, int, int] | None], survival: Survival, random: Random
) -> None:
    disk = VolatileDisk(SECTORS * SECTOR_BYTES)
    allowed: list[list[int]] = [[0] for _ in range(SECTORS)]
    for each in writes:
        if each is None:
            disk.flush()
            allowed = [values[-1:] for values in allowed]
        else:
            for sector in write(disk, each[0], each[1], value=each[2]):
                allowed[sector].append(each[2])

    left = disk.after_power_cut(survival, random)

    found = [sector_of(left, number) for number in range(SECTORS)]
    assert all(value in values for value, values in zip(found, allowed, strict=True))
    latest = [values[-1] for values in allowed]
    assert [sector_of(disk.read(0, disk.size_bytes), number) for number in range(SECTORS)] == latest
    if survival is Survival.ALL:
        assert found == latest
    if survival is Survival.NONE:
        assert found == [values[0] for values in allowed]


@pytest.mark.parametrize(
    ("survival", "keeps_order"), [(Survival.PREFIX, True), (Survival.SECTORS, False)]
)
def test_a_write_may_be_torn_between_sectors(survival: Survival, *, keeps_order: bool) -> None:
    disk = VolatileDisk(SECTORS * SECTOR_BYTES)
    write(disk, 0, SECTORS, value=1)

    lefts = [disk.after_power_cut(survival, Random(seed)) for seed in range(20)]

    found = [[sector_of(left, number) for number in range(SECTORS)] for left in lefts]
    torn = [each for each in found if set(each) == {0, 1}]
    assert torn
    assert all(each == sorted(each, reverse=True) for each in torn) == keeps_order


def test_of_two_writes_the_later_one_may_survive_alone() -> None:
    disk = VolatileDisk(SECTORS * SECTOR_BYTES)
    write(disk, 0, 2, value=1)
    write(disk, 8, 2, value=2)

    lefts = [disk.after_power_cut(Survival.WRITES, Random(seed)) for seed in range(20)]

    assert {(sector_of(left, 0), sector_of(left, 8)) for left in lefts} == {
        (0, 0),
        (1, 0),
        (0, 2),
        (1, 2),
    }


def test_the_initial_content_is_durable() -> None:
    disk = VolatileDisk(content=bytearray(b"x" * BLOCK_BYTES))

    assert disk.after_power_cut(Survival.NONE, Random(1)) == b"x" * BLOCK_BYTES
    assert disk.unflushed_bytes == 0


def test_a_full_thin_disk_accepts_writes_only_to_written_blocks() -> None:
    disk = VolatileDisk(4 * BLOCK_BYTES)
    disk.write(BLOCK_BYTES, b"a")
    disk.refusal = errno.EIO

    disk.write(BLOCK_BYTES + 10, b"b")
    with pytest.raises(OSError, match="no room for a new block") as refused:
        disk.write(2 * BLOCK_BYTES - 1, b"cd")

    assert refused.value.errno == errno.EIO
    assert disk.read(2 * BLOCK_BYTES - 1, 2) == b"\0\0"
    disk.refusal = None
    disk.write(2 * BLOCK_BYTES - 1, b"cd")
    assert disk.read(2 * BLOCK_BYTES - 1, 2) == b"cd"
