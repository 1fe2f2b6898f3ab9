"""Whenever a process ends or the power goes, between any two disk calls, promises are kept."""

from collections.abc import Callable

import pytest

from tests.logstore.crashes import POWER_CUTS, Story, crashes


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
def test_a_killed_process_loses_nothing_that_was_promised(tell: Callable[[Story], None]) -> None:
    for story in crashes(tell):
        story.check(story.opened.kill())


@pytest.mark.parametrize("tell", STORIES)
def test_a_power_cut_loses_nothing_that_was_promised(tell: Callable[[Story], None]) -> None:
    for story in crashes(tell):
        for seed in POWER_CUTS:
            story.check(story.opened.cut_power(seed))
