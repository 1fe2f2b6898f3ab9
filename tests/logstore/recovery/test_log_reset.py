"""A reset log keeps no earlier record, whatever the moment of a crash."""

from collections.abc import Iterator
from functools import partial
from itertools import count

import pytest

from tests.logstore.crashes import POWER_CUTS, crash
from tests.logstore.logs import (
    NOW_MS,
    OWNER,
    Opened,
    Producer,
    expected,
    new_log,
    numbered,
    read_all,
)
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.recovery.log_reset import truncate_fully
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.errors import LogOfflineError, OffsetOutOfRangeError

OLD_COUNT = 70
"""Records of three segments, the last of which has an unsynced end."""


def old_log() -> Opened:
    opened = new_log()
    opened.append_many(OLD_COUNT - 5, size=60)
    opened.flush(checkpoint=True)
    opened.append_many(5, size=60)
    return opened


def restart(opened: Opened, offset: int) -> PartitionLog:
    return truncate_fully(opened.log, offset, OWNER, files=FileCache(opened.disk), now_ms=NOW_MS)


@pytest.mark.parametrize("offset", [0, 1, 40, OLD_COUNT - 1, OLD_COUNT, OLD_COUNT + 1, 10**12])
def test_a_reset_log_is_empty_at_its_new_start_offset(offset: int) -> None:
    opened = old_log()

    opened.log = restart(opened, offset)

    for again in (opened, opened.kill(), opened.cut_power(1)):
        assert (again.log.log_start_offset, again.log.log_end_offset) == (offset, offset)
        assert not again.report.damage
        assert read_all(again.log) == {}
        with pytest.raises(OffsetOutOfRangeError):
            again.log.read(offset - 1, max_bytes=1, high_watermark=offset)


def test_a_reset_log_accepts_appends() -> None:
    opened = old_log()
    opened.log = restart(opened, 1000)

    opened.append_many(50)

    assert read_all(opened.log) == expected(1000, 1050)
    opened.flush()
    again = opened.cut_power(2)
    assert read_all(again.log) == expected(1000, 1050)
    assert not again.report.damage


def test_a_reset_log_forgets_epochs_and_producers() -> None:
    opened = new_log()
    opened.append(b"a", producer=Producer(7, 0, 0), leader_epoch=5)

    opened.log = restart(opened, 10)

    assert opened.log.leader_epochs.entries == ()
    assert not opened.append(b"a", producer=Producer(7, 0, 0), leader_epoch=3).is_duplicate


def test_a_reset_closes_the_old_log() -> None:
    opened = old_log()

    restart(opened, 10)

    with pytest.raises(LogOfflineError, match="closed"):
        opened.append(b"late")


def crashed_restarts(offset: int) -> Iterator[Opened]:
    """Crash before each disk call with a change, until the reset completes."""
    for number in count():
        opened = old_log()
        if crash(opened.disk, number, partial(restart, opened, offset)) is None:
            assert number > 5, "there is at least one disk call"
            return
        yield opened


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("offset", [10, 45, OLD_COUNT, 1000])
@pytest.mark.parametrize("seed", [None, *POWER_CUTS])
def test_a_crash_during_a_reset_leaves_a_shorter_log_or_the_reset_one(
    offset: int, seed: int | None
) -> None:
    for opened in crashed_restarts(offset):
        after = opened.kill() if seed is None else opened.cut_power(seed)

        log = after.log
        assert not after.report.damage
        if log.log_start_offset == offset > 0:
            assert log.log_end_offset == offset
        else:
            assert log.log_start_offset == 0
            assert log.log_end_offset >= min(offset, OLD_COUNT - 5)
            assert read_all(log) == expected(0, log.log_end_offset, 60)
        end = log.log_end_offset
        after.append(numbered(end))
        after.flush()
        assert after.kill().log.log_end_offset == end + 1
