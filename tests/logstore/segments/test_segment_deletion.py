"""Deleted segments never count as lost, whatever the moment of a crash."""

from functools import partial
from itertools import count
from random import Random

import pytest

from tests.logstore.crashes import crash
from tests.logstore.logs import DIRECTORY, NOW_MS, Opened, expected, new_log, read_all, reopen
from tidelog.logstore.config import LogConfig
from tidelog.logstore.segments.segment_deletion import deletion_markers

RETAINING = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_bytes=1500)


def _ready() -> Opened:
    opened = new_log(RETAINING)
    opened.append_many(60, flush_every=10)
    return opened


def _retain(opened: Opened) -> int:
    removal = opened.log.apply_retention(high_watermark=60, now_ms=NOW_MS)
    assert removal
    removal.run()
    return removal.end_offset


def _marks(opened: Opened) -> list[int]:
    return list(deletion_markers(opened.disk, DIRECTORY))


def test_a_deletion_marker_stays_until_a_checkpoint_has_its_offset() -> None:
    opened = _ready()

    end = _retain(opened)

    assert _marks(opened) == [end]
    opened.flush()
    assert _marks(opened) == []


@pytest.mark.parametrize("has_indexes", [True, False])
def test_retention_on_a_full_disk_leaves_a_deletion_marker(has_indexes: bool) -> None:
    opened = _ready()
    if not has_indexes:
        for name in opened.disk.list_directory(DIRECTORY):
            if name.endswith(".index"):
                opened.disk.remove(f"{DIRECTORY}/{name}")
    opened.disk.capacity_bytes = 1

    end = _retain(opened)
    flush = opened.log.begin_flush()
    assert flush is not None
    flush.run()
    assert flush.had_no_room

    opened.disk.capacity_bytes = None
    after = opened.kill()
    assert not after.report.damage
    assert after.log.log_start_offset == end
    assert read_all(after.log) == expected(end, 60)
    after.flush()
    assert _marks(after) == []
    again = after.cut_power(1)
    assert (again.report.damage, again.log.log_start_offset) == ([], end)


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_of_a_deletion_on_a_full_disk_causes_no_damage(loses_power: bool) -> None:
    for number in count():
        opened = _ready()
        opened.disk.capacity_bytes = 1
        what = crash(opened.disk, number, partial(_retain_and_flush, opened))
        if what is None:
            return
        disk = opened.disk.power_cut(Random(number)) if loses_power else opened.disk.kill()
        disk.capacity_bytes = None

        after = reopen(disk, RETAINING)

        assert not after.report.damage, what
        assert read_all(after.log) == expected(after.log.log_start_offset, 60), what


def _retain_and_flush(opened: Opened) -> None:
    _retain(opened)
    opened.flush()


def test_a_deletion_marker_above_the_log_start_offset_is_removed() -> None:
    opened = _ready()
    end = _retain(opened)

    opened.log.truncate(end - 1, may_drop_damage=True)

    assert _marks(opened) == []
