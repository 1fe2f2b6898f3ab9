"""Availability of a log: online, read-only on a full disk, offline on a failed disk.

Stateful: `logstore.log` checks it before file access, and reports errors to it.
"""

from contextlib import suppress
from enum import Enum
from typing import Final, NoReturn, final

from tidelog.logstore.disk.disk import DISK_FULL_ERRNOS, NO_DESCRIPTOR_ERRNOS, Disk
from tidelog.wire.errors import DiskFullError, LogOfflineError, OverloadedError

CLOSED: Final = "the log was closed"
"""The failure of a closed log, whose disk works."""
_HEADROOM_BYTES = 1 << 20
"""Free bytes beyond a batch from which a full disk counts as writable again."""


class LogStatus(Enum):
    """Status of a log; users see the values."""

    ONLINE = "online"
    READ_ONLY = "read-only"
    """The disk is full; appends are refused until there is room."""
    OFFLINE = "offline"
    """The disk failed; the log serves no request until the next start has checked its files."""
    DAMAGED = "damaged"
    """Online, but some stored records are damaged."""


@final
class Availability:
    """Failures that keep one log from reads or writes.

    Invariant: a failure stays. An fsync error is never retried: the kernel may have dropped the
    pages and show them as clean (fsyncgate; Rebello et al., ATC 2020).
    """

    def __init__(self, directory: str, disk: Disk) -> None:
        """Start online, with a log in `directory`."""
        self._directory = directory
        self._disk = disk
        self.failure: str | None = None
        """Reason why the log is offline, `None` if it is not."""
        self.durable_intact = True
        """Whether durable records are still intact, as far as the failure tells."""
        self.is_disk_full = False
        """Whether an append found no room, or only the reserve is left, and no check has found room
        since."""
        self._reserve_bytes = 0

    def status(self, *, has_damage: bool) -> LogStatus:
        """Return the status of the log; `has_damage`: some records are damaged."""
        if self.failure is not None:
            return LogStatus.OFFLINE
        if self.is_disk_full:
            return LogStatus.READ_ONLY
        return LogStatus.DAMAGED if has_damage else LogStatus.ONLINE

    def fail(self, reason: str, *, durable_intact: bool = False) -> None:
        """Take the log offline; errors show the first reason.

        Args:
            reason: The text of later errors.
            durable_intact: Whether only new bytes failed to reach the disk, so that records that
                were durable before are certainly intact.
        """
        if self.failure is None:
            self.failure = reason
        self.durable_intact = self.durable_intact and durable_intact

    def require_online(self) -> None:
        """Check that the log can be used.

        Raises:
            LogOfflineError: The disk failed, or the log was closed.
        """
        if self.failure == CLOSED:
            raise LogOfflineError(f"{self._directory} is offline: {CLOSED}")
        if self.failure is not None:
            raise offline(self._directory, self.failure)

    def require_room(self, size_bytes: int, *, may_use_reserve: bool = True) -> None:
        """Check that there is room for `size_bytes` and some more.

        Raises:
            DiskFullError: There is too little room.
        """
        left = self._disk.free_bytes() - size_bytes - _HEADROOM_BYTES
        if left < (0 if may_use_reserve else self._reserve_bytes):
            raise self._disk_full()
        if left >= self._reserve_bytes:
            self.is_disk_full = False

    def require_room_to_append(self, size_bytes: int) -> None:
        """Check that there is room for `size_bytes` and some more, beyond the reserve.

        Raises:
            DiskFullError: There is too little room.
        """
        self.require_room(size_bytes, may_use_reserve=False)

    def look_for_room(self, size_bytes: int, *, reserve_bytes: int) -> None:
        """Stop appends when less than the reserve is left; resume them when there is room again.

        Resuming needs room for `size_bytes` and some more, so that appends do not stop at once.
        """
        self._reserve_bytes = reserve_bytes
        if self.is_disk_full:
            with suppress(DiskFullError):
                self.require_room_to_append(size_bytes)
        elif reserve_bytes and self._disk.free_bytes() < reserve_bytes:
            self.is_disk_full = True

    def failed(self, doing: str, error: OSError, *, durable_intact: bool = False) -> NoReturn:
        """Take the log offline for an error of its disk; see `fail`.

        Raises:
            LogOfflineError: Always.
        """
        self.fail(f"{doing} failed: {error}", durable_intact=durable_intact)
        assert self.failure is not None
        raise offline(self._directory, self.failure) from error

    def read_failed(self, doing: str, error: OSError) -> NoReturn:
        """Raise the error for a failed read; see `fail`.

        Raises:
            OverloadedError: No file descriptor is free for now.
            LogOfflineError: The disk failed.
        """
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            raise no_descriptor(self._directory) from error
        self.failed(doing, error)

    def write_failed(self, doing: str, error: OSError, *, durable_intact: bool = False) -> NoReturn:
        """Raise the error for a failed write; see `fail`.

        Raises:
            DiskFullError: There was no room.
            OverloadedError: No file descriptor is free for now.
            LogOfflineError: The disk failed.
        """
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            raise no_descriptor(self._directory) from error
        if error.errno not in DISK_FULL_ERRNOS:
            self.failed(doing, error, durable_intact=durable_intact)
        self.is_disk_full = True
        raise self._disk_full() from error

    @property
    def _but_for_reserve(self) -> str:
        reserve = self._reserve_bytes
        return f" but for {reserve} bytes in reserve (min_free_disk_bytes)" if reserve else ""

    def _disk_full(self) -> DiskFullError:
        return DiskFullError(
            f"the disk under {self._disk.root} is full{self._but_for_reserve}; the partition is"
            " read-only until there is room"
        )


def offline(directory: str, reason: str) -> LogOfflineError:
    """Return the error for a log that is offline since its disk failed."""
    return LogOfflineError(
        f"{directory} is offline: {reason}; restart the broker once the disk works again"
    )


def no_descriptor(directory: str) -> OverloadedError:
    """Return the error for a file that cannot be opened without a free descriptor."""
    return OverloadedError(
        f"a file of {directory} cannot be opened: too many files are open; raise the broker's limit"
        " of open files (ulimit -n)"
    )
