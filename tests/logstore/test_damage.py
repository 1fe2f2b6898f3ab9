"""Damaged ranges are in order and never overlap."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.logstore.damage import DamagedRange, DamagedRanges

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def ranges(*pairs: tuple[int, int]) -> list[DamagedRange]:
    return [DamagedRange(offset, end_offset) for offset, end_offset in pairs]


def covered(damage: DamagedRanges) -> set[int]:
    return {at for damaged in damage for at in range(damaged.offset, damaged.end_offset)}


def test_ranges_that_touch_become_one() -> None:
    damage = DamagedRanges(ranges((10, 20), (30, 40), (50, 60)))

    assert damage.add(20, 30)

    assert list(damage) == ranges((10, 40), (50, 60))


def test_known_damage_is_not_added_again() -> None:
    damage = DamagedRanges(ranges((10, 20)))

    assert not damage.add(12, 20)
    assert not damage.add(15, 15)
    assert damage.add(12, 21)
    assert list(damage) == ranges((10, 21))
    assert len(damage) == 1


@given(
    pairs=RANGES,
    start=st.integers(0, 30),
    end=st.integers(0, 30),
    offset=st.integers(0, 31),
    until=st.integers(0, 31),
)
def test_damaged_ranges_agree_with_a_set_of_offsets(
    pairs: list[tuple[int, int]], start: int, end: int, *, offset: int, until: int
) -> None:
    damage, naive = DamagedRanges(), set[int]()
    for low, high in pairs:
        assert damage.add(low, high) == (not set(range(low, high)) <= naive)
        naive |= set(range(low, high))
    assert covered(damage) == naive

    damage.truncate_end(end)
    naive = {at for at in naive if at < end}
    assert covered(damage) == naive
    found = damage.at(offset)
    assert (found is not None) == (offset in naive)
    above = damage.first_ending_above(offset)
    assert (above is not None) == any(at >= offset for at in naive)
    if above is not None:
        assert min(at for at in naive if at >= offset) == max(above.offset, offset)
    assert damage.touches(offset, until) == bool(naive & set(range(offset, until)))

    damage.truncate_start(start)
    assert covered(damage) == {at for at in naive if at >= start}


def test_repaired_offsets_leave_the_damaged_ranges() -> None:
    damage = DamagedRanges([DamagedRange(10, 20), DamagedRange(30, 40), DamagedRange(50, 60)])

    damage.remove(0, 5)
    damage.remove(10, 12)
    damage.remove(15, 18)
    damage.remove(35, 55)

    assert list(damage) == [
        DamagedRange(12, 15),
        DamagedRange(18, 20),
        DamagedRange(30, 35),
        DamagedRange(55, 60),
    ]
    damage.remove(0, 100)
    assert not damage
