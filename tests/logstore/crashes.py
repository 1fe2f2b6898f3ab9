"""Crashes of a log at a chosen disk call, and the checks afterwards."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tests.logstore.logs import NOW_MS, SMALL, Opened, new_log, read_all
from tests.simulation.machine.faulty_disk import FaultyDisk, StaleHandleError
from tidelog.logstore.log import PartitionLog

POWER_CUTS = range(6)
"""Seeds of power failures: enough for every outcome of unsynced changes."""


def power_cuts(number: int) -> range:
    """Return two of the seeds, so that three consecutive numbers have all of them."""
    return range(number % 3 * 2, number % 3 * 2 + 2)


_READING_OPERATIONS = {
    "open", "size", "read_at", "is_cached", "exists", "list_directory", "free_bytes", "close",
}  # fmt: skip


class ProcessEndedError(BaseException):
    """The end of the process; no code may handle it."""


@dataclass(slots=True)
class Story:
    """A log and its guarantees up to the crash."""

    opened: Opened
    values: dict[int, set[bytes]] = field(default_factory=dict[int, set[bytes]])
    """Values that recovery may find, by offset."""
    count: int = 0
    """Number of written values; each is unique."""
    cut: int | None = None
    """Offset of a running truncation."""
    crash: str | None = None
    """Disk call before which the process ended, `None` if the scenario completed."""

    @property
    def log(self) -> PartitionLog:
        return self.opened.log

    def append(self, count: int = 1, *, size: int = 60, leader_epoch: int = 0) -> None:
        """Append batches of one record."""
        for _ in range(count):
            self.count += 1
            value = b"%08d" % self.count + b"." * (size - 8)
            self.values.setdefault(self.log.log_end_offset, set()).add(value)
            self.opened.append(value, leader_epoch=leader_epoch)

    def flush(self, *, checkpoint: bool = False) -> None:
        """Flush the log."""
        self.opened.flush(checkpoint=checkpoint)

    def truncate(self, offset: int) -> None:
        """Truncate the log; recovery may find truncated records until this returns."""
        self.cut = offset
        self.log.truncate(offset)
        self.cut = None
        for at in [at for at in self.values if at >= offset]:
            del self.values[at]

    def retain(self, size: int) -> None:
        """Delete the oldest segments."""
        self.log.config = type(SMALL)(
            segment_bytes=SMALL.segment_bytes,
            index_interval_bytes=SMALL.index_interval_bytes,
            max_message_bytes=SMALL.max_message_bytes,
            retention_bytes=size,
        )
        self.log.apply_retention(high_watermark=self.log.durable_end_offset, now_ms=NOW_MS).run()

    def check(self, after: Opened) -> None:
        """Check that no guaranteed record is missing, and that all records are as written."""
        try:
            self._check(after)
        except AssertionError as failure:
            failure.add_note(f"crashed before {self.crash}")
            raise

    def _check(self, after: Opened) -> None:
        before, log = self.log, after.log
        promised = before.durable_end_offset
        assert log.log_end_offset >= (promised if self.cut is None else min(promised, self.cut))
        assert log.log_start_offset <= before.log_start_offset
        assert not after.report.damage
        assert not after.report.notes
        found = read_all(log, max_bytes=SMALL.segment_bytes)
        assert list(found) == list(range(log.log_start_offset, log.log_end_offset))
        for offset, value in found.items():
            assert value in self.values[offset], offset
        self._check_that_it_goes_on(after, found)

    @staticmethod
    def _check_that_it_goes_on(after: Opened, found: dict[int, bytes]) -> None:
        end = after.log.log_end_offset
        after.append(b"one more", leader_epoch=9)
        after.flush()
        again = after.kill()
        assert again.log.log_end_offset == end + 1
        assert read_all(again.log) == {**found, end: b"one more"}
        assert not again.report.damage


def crashes(tell: Callable[[Story], None]) -> Iterator[Story]:
    """Run a scenario once for each disk call with a change, and crash before that call."""
    number = 0
    while True:
        story = Story(new_log())
        story.crash = crash(story.opened.disk, number, partial(tell, story))
        yield story
        if story.crash is None:
            return
        number += 1


def crash(disk: FaultyDisk, number: int, tell: Callable[[], object]) -> str | None:
    """End the process before the disk call of this number; return the call, if it exists."""
    seen: list[str] = []

    def before_call(operation: str, path: str) -> None:
        if operation not in _READING_OPERATIONS:
            seen.append(f"{operation} {path}, call {len(seen)}")
            if len(seen) > number:
                raise ProcessEndedError

    disk.before_call = before_call
    try:
        tell()
    except (ProcessEndedError, StaleHandleError):  # The latter on its way out.
        return seen[number]
    disk.before_call = None
    return None
