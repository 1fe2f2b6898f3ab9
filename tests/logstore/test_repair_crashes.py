"""After a crash of a repair, damaged records are still damaged, or good."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.logstore.crashes import POWER_CUTS, crash, power_cuts
from tests.logstore.logs import Image, Opened, disk_of, image_of, read_all, reopen
from tests.logstore.replica_pair import (
    COUNT,
    Spoil,
    check_whole,
    cut,
    flip,
    lose,
    note_all_damage,
    repair_all,
    source_of,
)
from tidelog.logstore.damage import DamagedRange, DamagedRanges

SOURCE = source_of()
WHOLE = read_all(SOURCE.log)


def lose_and_flip(image: Image) -> None:
    lose(34)(image)
    flip([30, 33, 69])(image)


SPOILS: dict[str, Spoil] = {
    "flipped bits": flip([0, 5, 6, 33, 40, 69]),
    "a lost file": lose(34),
    "a lost end": cut(0, 3000),
    "a lost file and flipped bits around it": lose_and_flip,
    "all files": lose(0, 34, 68),
}


def damaged(spoil: Spoil) -> Opened:
    """Return a log with durable known damage."""
    image = image_of(SOURCE.disk)
    spoil(image)
    opened = reopen(disk_of(image))
    note_all_damage(opened.log)
    opened.flush()
    return opened


def crashes(spoil: Spoil, *, at_once: int) -> Iterator[tuple[str, Opened]]:
    """Repair, and crash before each disk call with a change."""
    number = 0
    while True:
        opened = damaged(spoil)
        tell = partial(repair_all, opened.log, SOURCE.log, at_once=at_once)
        place = crash(opened.disk, number, tell)
        if place is None:
            return
        yield place, opened
        number += 1


def check(place: str, damage: tuple[DamagedRange, ...], after: Opened) -> None:
    """Check that all served records are right, and that the log can be repaired."""
    try:
        log = after.log
        known = DamagedRanges(damage)
        assert all(known.at(each.offset) is not None for each in log.damage)
        assert log.log_end_offset == COUNT
        found = read_all(log)
        assert found.items() <= WHOLE.items()
        missing = [at for at in WHOLE if at >= log.log_start_offset and at not in found]
        assert all(DamagedRanges(log.damage).at(offset) for offset in missing)
        repair_all(log, SOURCE.log)
        assert read_all(log) == {at: WHOLE[at] for at in WHOLE if at >= log.log_start_offset}
        if log.log_start_offset == 0:
            check_whole(after, SOURCE)
    except AssertionError as failure:
        failure.add_note(f"crashed before {place}")
        raise


@pytest.mark.parametrize("at_once", [9, COUNT])
@pytest.mark.parametrize("what", SPOILS)
def test_a_killed_process_leaves_a_log_that_can_be_repaired(what: str, at_once: int) -> None:
    damage = damaged(SPOILS[what]).log.damage
    for place, opened in crashes(SPOILS[what], at_once=at_once):
        check(place, damage, opened.kill())


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("what", SPOILS)
def test_a_power_failure_leaves_a_log_that_can_be_repaired(what: str) -> None:
    damage = damaged(SPOILS[what]).log.damage
    for number, (place, opened) in enumerate(crashes(SPOILS[what], at_once=24)):
        for seed in power_cuts(number):
            check(place, damage, opened.cut_power(seed))


def test_a_truncation_above_damage_loses_only_truncated_records() -> None:
    number = 0
    while True:
        opened = damaged(cut(0, 3000))
        place = crash(opened.disk, number, partial(opened.log.truncate, 34))
        if place is None:
            break
        number += 1
        for seed in POWER_CUTS:
            again = opened.cut_power(seed)
            end = again.log.log_end_offset
            assert end in {34, 68, COUNT}, place
            repair_all(again.log, SOURCE.log)
            assert read_all(again.log) == {at: WHOLE[at] for at in range(end)}, place
    assert number > 3
