"""A log without free file descriptors reports it, loses nothing, and continues later."""

# Empties the cache of open files.
# pyright: reportPrivateUsage=false

import errno
from collections.abc import Callable

import pytest

from tests.logstore.logs import Opened, expected, new_log, numbered, read_all, reopen
from tests.simulation.machine.file_tree import os_error
from tidelog.logstore.config import LogConfig
from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS
from tidelog.logstore.log import LogStatus
from tidelog.wire.errors import OverloadedError

_OPENING = {"open", "create", "sync_directory"}
_ROLLING = LogConfig(segment_bytes=1000, index_interval_bytes=100)


class Descriptors:
    """Descriptors that are missing from the call `first` on, for `count` calls that need one."""

    def __init__(self, opened: Opened, first: int, count: int, *, number: int) -> None:
        self._left = (first, count)
        self._number = number
        opened.disk.before_call = self._before

    @property
    def were_missed(self) -> bool:
        """Whether a call failed."""
        return self._left[1] == 0

    def _before(self, operation: str, path: str) -> None:
        skipped, count = self._left
        if operation in _OPENING and skipped:
            self._left = (skipped - 1, count)
        elif operation in _OPENING and count:
            self._left = (0, count - 1)
            raise os_error(self._number, path)


def again(do: Callable[[], object]) -> None:
    """Retry a call until it succeeds."""
    for _ in range(10):
        try:
            do()
        except OverloadedError:
            continue
        except OSError as error:  # Of a flush, which a shell runs in a thread.
            if error.errno not in NO_DESCRIPTOR_ERRNOS:
                raise
            continue
        return
    raise AssertionError("it does not pass")


def live(opened: Opened) -> None:
    """Fill several segments, read all of them repeatedly, and flush."""
    for number in range(24):
        again(lambda number=number: opened.append(numbered(number)))  # type: ignore[misc]
        if number % 5 == 4:
            again(lambda: opened.flush(checkpoint=True))
    found: dict[int, bytes] = {}
    again(lambda: found.update(read_all(opened.log)))
    assert found == expected(0, 24)
    again(lambda: opened.flush(checkpoint=True))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_log_continues_after_a_missing_descriptor_at_any_call(number: int, count: int) -> None:
    first, were_missed = 0, True
    while were_missed:
        opened = new_log(_ROLLING)
        descriptors = Descriptors(opened, first, count, number=number)

        live(opened)

        opened.disk.before_call = None
        assert opened.log.status is LogStatus.ONLINE
        assert opened.log.durable_end_offset == 24
        after = opened.cut_power(first)
        assert not after.report.damage
        assert read_all(after.log) == expected(0, 24)
        first, were_missed = first + 1, descriptors.were_missed
    assert first > 10, "segments were made, indexes and checkpoints written"


def test_a_read_without_a_descriptor_is_refused_and_the_log_stays_online() -> None:
    opened = new_log(_ROLLING)
    opened.append_many(24)
    opened.flush(checkpoint=True)
    opened = reopen(opened.disk, _ROLLING)
    assert opened.log.segment_count > 2
    opened.log._files.clear()
    Descriptors(opened, 0, 2, number=errno.EMFILE)

    with pytest.raises(OverloadedError, match="too many files are open"):
        opened.log.read(0, max_bytes=1, high_watermark=24)

    assert opened.log.status is LogStatus.ONLINE
    assert read_all(opened.log) == expected(0, 24)


def test_a_checkpoint_without_a_descriptor_waits_and_the_records_are_durable() -> None:
    opened = new_log()
    opened.append_many(3)
    opened.flush(checkpoint=True)
    opened.append_many(3)
    opened.log.request_checkpoint()
    opened.disk.fail("create", error_number=errno.ENFILE)

    opened.flush()

    assert opened.log.durable_end_offset == 6
    assert opened.log.status is LogStatus.ONLINE
    assert opened.cut_power(0).report.scanned_bytes, "the old checkpoint is still there"
