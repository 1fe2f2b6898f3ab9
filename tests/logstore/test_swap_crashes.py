"""After a crash at any point of a swap, a log reads as before or as after it (I14)."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from random import Random

import pytest

from tests.logstore.crashes import crash, power_cuts
from tests.logstore.keyed_logs import Records, begin, compact, keyed_log, rows_of, swap_ready
from tests.logstore.logs import DIRECTORY, Opened, reopen
from tests.simulation.machine.faulty_disk import FaultyDisk


def states(count: int) -> list[Records]:
    """Return the readable records before a run and after each of its swaps."""
    opened = keyed_log(count, keys=3)
    found = [rows_of(opened.log)]
    cleaning = begin(opened)
    while not cleaning.is_done:
        cleaning.run(1)
        if cleaning.ready is not None:
            swap_ready(cleaning)
            found.append(rows_of(opened.log))
    cleaning.end()
    return found


COUNT = 40
STATES = states(COUNT)


def crashes(count: int) -> Iterator[tuple[str, Opened]]:
    """Compact, and crash before each disk call with a change."""
    number = 0
    while True:
        opened = keyed_log(count, keys=3)
        place = crash(opened.disk, number, partial(compact, opened))
        if place is None:
            return
        yield place, opened
        number += 1


def check(place: str, after: Opened) -> None:
    """Check that the log is as before or after a swap, and that the next run completes."""
    try:
        assert not after.report.damage
        assert not after.report.notes
        found = rows_of(after.log)
        assert found in STATES
        after = after.kill()
        assert rows_of(after.log) == found
        compact(after)
        assert rows_of(after.log) == STATES[-1]
        assert not after.log.damage
        names = after.disk.list_directory(DIRECTORY)
        assert not [name for name in names if "tmp" in name or "stale" in name]
    except AssertionError as failure:
        failure.add_note(f"crashed before {place}")
        raise


def test_there_is_more_than_one_swap() -> None:
    assert len(STATES) > 2
    assert all(earlier != later for earlier, later in pairwise(STATES))


@pytest.mark.invariant("I14")
def test_a_killed_process_leaves_the_old_or_the_new_segments() -> None:
    places = 0
    for place, opened in crashes(COUNT):
        check(place, opened.kill())
        places += 1
    assert places > 20


@pytest.mark.invariant("I14")
def test_a_power_failure_leaves_the_old_or_the_new_segments() -> None:
    for number, (place, opened) in enumerate(crashes(COUNT)):
        for seed in power_cuts(number):
            check(place, opened.cut_power(seed, are_names_in_order=seed % 2 == 0))


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("count", [7, 21])
def test_a_power_failure_during_the_recovery_of_a_swap_loses_nothing(count: int) -> None:
    """One segment replaces one, or three."""
    seen, small_states = 0, states(count)
    for place, opened in crashes(count):
        number = 0
        while True:
            disk = opened.disk.kill()
            cut = crash(disk, number, partial(reopen_and_read, disk))
            for seed in power_cuts(number):
                after = reopen(disk.power_cut(Random(seed), are_names_in_order=False))
                assert not after.report.damage, (place, cut)
                assert rows_of(after.log) in small_states, (place, cut)
            if cut is None:
                break
            number += 1
            seen += 1
    assert seen > 20


def test_a_corrupt_footer_beside_leftovers_of_a_swap_loses_no_record() -> None:
    seen = 0
    for place, opened in crashes(COUNT):
        disk = opened.disk.kill()
        path = min(path for path in disk.paths() if path.endswith(".log"))
        disk.flip_bit(path, len(disk.durable_bytes(path)) - 1, 0)
        after = reopen(disk)
        assert not after.report.damage, place
        assert rows_of(after.log) in STATES, place
        seen += bool(after.report.notes)
        compact(after)
        assert rows_of(after.log) == STATES[-1], place
        assert not after.log.damage, place
    assert seen, "some crashes left files that the footer marks as replaced"


def reopen_and_read(disk: FaultyDisk) -> None:
    """Open the log, and rebuild the indexes by reads."""
    rows_of(reopen(disk).log)
