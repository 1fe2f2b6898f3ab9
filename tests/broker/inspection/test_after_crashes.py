"""Tests of inspection after crashes: a log that was opened and closed again has no problems.

Except for indexes: an index that was not synced may be invalid until a read needs it or a repair
recreates it.
"""

from collections.abc import Callable
from random import Random

import pytest

from tests.broker.inspection.stored_logs import all_findings, bad_files, paths_of
from tests.logstore.crashes import Story, crashes
from tests.logstore.logs import reopen
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.inspection.repair import repair_indexes


def rolling(story: Story) -> None:
    story.append(30)
    story.flush()
    story.append(30)
    story.flush()


def retaining(story: Story) -> None:
    story.append(70)
    story.flush()
    story.retain(5000)
    story.append(20)
    story.flush()
    story.retain(5000)


def truncating(story: Story) -> None:
    story.append(70)
    story.flush(checkpoint=True)
    story.truncate(20)
    story.append(15, leader_epoch=4)
    story.flush()
    story.truncate(25)


def problems_of(disk: FaultyDisk) -> list[str]:
    return [problem for check in all_findings(disk).values() for problem in check.problems]


@pytest.mark.parametrize("tell", [rolling, retaining, truncating])
def test_a_log_that_was_opened_after_a_crash_and_closed_has_no_problems(
    tell: Callable[[Story], None],
) -> None:
    for number, story in enumerate(crashes(tell)):
        after = reopen(story.opened.disk.power_cut(Random(number)))
        after.append(b"one more", leader_epoch=9)
        after.flush(checkpoint=True)

        assert not [name for name in bad_files(after.disk) if not name.endswith(".index")]
        list(repair_indexes(after.disk, paths_of(after.disk)))
        assert problems_of(after.disk) == [], story.crash


@pytest.mark.parametrize("tell", [rolling, retaining, truncating])
def test_the_files_of_a_killed_process_can_be_inspected_in_any_state(
    tell: Callable[[Story], None],
) -> None:
    for story in crashes(tell):
        assert list(all_findings(story.opened.disk.kill())), story.crash
