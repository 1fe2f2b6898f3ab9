"""Guarantees hold after a crash or a power failure between any two disk calls."""

from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random

import pytest

from tests.logstore.crashes import POWER_CUTS, Story, crash, crashes, power_cuts
from tests.logstore.logs import (
    CHECKPOINT,
    DIRECTORY,
    disk_of,
    expected,
    image_of,
    new_log,
    read_all,
    reopen,
)
from tests.simulation.machine.faulty_disk import FaultyDisk


def append_and_flush(story: Story) -> None:
    story.append(3)
    story.flush()
    story.append(2)
    story.flush(checkpoint=True)
    story.append(2)


def roll_and_flush(story: Story) -> None:
    story.append(20)
    story.flush()
    story.append(30)
    story.flush()
    story.append(30)
    story.flush()


def roll_without_flush(story: Story) -> None:
    story.append(60)


def retain(story: Story) -> None:
    story.append(100)
    story.flush()
    story.retain(8000)
    story.append(30)
    story.retain(5000)
    story.flush()
    story.retain(5000)


def delete_records(story: Story) -> None:
    story.append(50)
    story.flush()
    story.log.delete_records(30, high_watermark=50)
    story.flush()
    story.append(10)
    story.log.delete_records(60, high_watermark=60)
    story.flush()


def truncate_within_a_segment(story: Story) -> None:
    story.append(10)
    story.flush()
    story.append(5)
    story.truncate(8)
    story.append(3, leader_epoch=1)
    story.flush()
    story.truncate(9)
    story.append(2, leader_epoch=2)


def truncate_over_segments(story: Story) -> None:
    story.append(70)
    story.flush()
    story.append(20)
    story.truncate(20)
    story.append(20, leader_epoch=1)
    story.flush()
    story.append(20, leader_epoch=1)
    story.truncate(30)


STORIES: list[Callable[[Story], None]] = [
    append_and_flush,
    roll_and_flush,
    roll_without_flush,
    retain,
    delete_records,
    truncate_within_a_segment,
    truncate_over_segments,
]


@pytest.mark.parametrize("tell", STORIES)
def test_a_killed_process_loses_no_acknowledged_record(tell: Callable[[Story], None]) -> None:
    for story in crashes(tell):
        story.check(story.opened.kill())


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("tell", STORIES)
def test_a_power_failure_loses_no_durable_record(tell: Callable[[Story], None]) -> None:
    for number, story in enumerate(crashes(tell)):
        for seed in power_cuts(number):
            story.check(story.opened.cut_power(seed))


def test_a_repeated_deletion_survives_the_loss_of_its_first_checkpoint() -> None:
    opened = new_log()
    opened.append_many(50)
    opened.flush(checkpoint=True)
    opened.log.delete_records(30, high_watermark=50)
    opened.disk.fail("sync_directory")
    with pytest.raises(OSError, match="Input/output error"):
        opened.flush()

    again = opened.kill()
    again.log.delete_records(30, high_watermark=50)
    again.flush()

    for seed in POWER_CUTS:
        assert again.cut_power(seed).log.log_start_offset == 30


@pytest.mark.invariant("I18")
def test_a_segment_whose_name_was_not_durable_when_a_process_was_killed_is_durable_when_used() -> (
    None
):
    disk = FaultyDisk()
    disk.fail("sync_directory", path=DIRECTORY)
    with pytest.raises(OSError, match="Input/output error"):
        new_log(disk=disk)

    again = reopen(disk.kill())
    again.append_many(5)
    again.flush()

    for seed in POWER_CUTS:
        assert read_all(again.cut_power(seed).log) == expected(0, 5)


def after_a_power_cut(seed: int) -> FaultyDisk:
    opened = new_log()
    opened.append_many(40, size=60, flush_every=13)
    opened.append_many(40, size=60)
    return opened.disk.power_cut(Random(seed))


def damaged(*, lost: int | None = None, cut: int | None = None) -> FaultyDisk:
    """Return a disk with damage in two of three segments, and no checkpoint."""
    opened = new_log()
    opened.append_many(60, size=60, flush_every=1)
    first, second, third = opened.segment_bases()
    disk = disk_of(image_of(opened.disk))
    disk.damage(opened.path(first), 2000, b"damage")
    disk.damage(opened.path(third), 100, b"damage")
    disk.remove(CHECKPOINT)
    if lost is not None:
        disk.remove(opened.path([first, second, third][lost]))
    if cut is not None:
        disk.cut_file(opened.path([first, second, third][cut]), 300)
    disk.sync_directory(DIRECTORY)
    return disk


def without_its_last_segment() -> FaultyDisk:
    opened = new_log()
    opened.append_many(60, size=60)
    opened.log.delete_records(60, high_watermark=60)
    opened.flush()
    opened.disk.remove(opened.path(opened.segment_bases()[-1]))
    opened.disk.sync_directory(DIRECTORY)
    return opened.disk.kill()


UNCLEAN_DISKS: dict[str, Callable[[], FaultyDisk]] = {
    **{f"power cut {seed}": partial(after_a_power_cut, seed) for seed in range(5)},
    "damage": damaged,
    "damage and a lost file": partial(damaged, lost=1),
    "damage and a lost end": partial(damaged, cut=0),
    "a lost active segment": without_its_last_segment,
}


@pytest.mark.parametrize("kind", UNCLEAN_DISKS)
def test_an_interrupted_recovery_reaches_the_same_state(kind: str) -> None:
    disk = UNCLEAN_DISKS[kind]()
    wanted = reopen(disk.kill())
    found = read_all(wanted.log)
    for number in count():
        dying = disk.kill()
        if crash(dying, number, partial(reopen, dying)) is None:
            break
        cuts = (dying.power_cut(Random(seed)) for seed in power_cuts(number))
        for successor in (dying.kill(), *cuts):
            after = reopen(successor)

            assert after.log.log_start_offset == wanted.log.log_start_offset
            assert after.log.log_end_offset == wanted.log.log_end_offset
            assert after.report.damage == wanted.report.damage
            assert read_all(after.log) == found
