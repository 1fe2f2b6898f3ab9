"""The checkpoint of an idle log: proof of durable records, and the high watermark."""

from collections.abc import Callable

import pytest

from tests.logstore.logs import Opened, new_log, reopen
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.log import LogStatus

_COUNT = 5


def flip_a_bit_of_the_last_batch(disk: FaultyDisk, path: str) -> None:
    disk.flip_bit(path, len(disk.durable_bytes(path)) - 5, 3)


def cut_the_end(disk: FaultyDisk, path: str) -> None:
    disk.cut_file(path, len(disk.durable_bytes(path)) - 30)


DAMAGES = [flip_a_bit_of_the_last_batch, cut_the_end]


def is_behind(opened: Opened) -> bool:
    return opened.log.is_checkpoint_behind


def idle_log() -> Opened:
    """Return a log with records that are on disk, and in no checkpoint."""
    opened = new_log()
    opened.append_many(1)
    opened.flush()  # It writes the first checkpoint.
    opened.append_many(_COUNT - 1)
    opened.flush()
    return opened


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_at_the_end_of_an_idle_log_is_no_torn_tail(
    damage: Callable[[FaultyDisk, str], None],
) -> None:
    opened = idle_log()
    assert is_behind(opened)
    opened.flush(checkpoint=True)
    assert not is_behind(opened)
    disk = opened.disk.kill()
    damage(disk, opened.path())

    again = reopen(disk, checks_end=True)

    assert again.log.status is LogStatus.DAMAGED
    assert again.report.damage == [DamagedRange(_COUNT - 1, _COUNT)]
    assert again.report.truncated_bytes == 0
    assert again.log.log_end_offset == _COUNT


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_a_checkpoint_it_is_taken_for_a_torn_tail(
    damage: Callable[[FaultyDisk, str], None],
) -> None:
    opened = idle_log()
    disk = opened.disk.kill()
    damage(disk, opened.path())

    again = reopen(disk)

    assert again.log.status is LogStatus.ONLINE
    assert again.log.log_end_offset == _COUNT - 1
    assert again.report.truncated_bytes > 0


def test_a_higher_high_watermark_is_reason_enough_for_a_checkpoint() -> None:
    opened = idle_log()
    opened.flush(checkpoint=True)
    opened.log.high_watermark = _COUNT
    assert is_behind(opened)

    opened.flush(checkpoint=True)

    assert not is_behind(opened)
    again = opened.kill()
    assert again.log.high_watermark == _COUNT
    assert not is_behind(again)
    again.log.truncate(2)
    assert not is_behind(again), "a truncation writes a checkpoint"
    assert again.kill().log.high_watermark == 2
