"""Idle log: what a broker knows of a log that it has not opened.

A log in which nothing is pending can stay closed until a request needs it. Its description serves
metrics, and names the time at which retention needs the log. It never replaces a recovery: a log
that is opened is recovered, and only what recovery finds is used. `is_unchanged` tells whether the
files are as they were when the log was described, so that recovery will have nothing to scan.
"""

import msgspec

from tidelog.logstore.checkpoint import CHECKPOINT_NAME, checked_crc
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.segments.segment import segment_path


class IdleLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A log whose checkpoint describes all of it."""

    checkpoint_crc: int
    """CRC-32C of its checkpoint."""
    base_offset: int
    """Base offset of its active segment."""
    end_position: int
    """Size of that segment's file in bytes."""
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    """Bytes of all segments."""
    due_ms: int | None
    """Time before which neither a roll nor retention by time changes it, Unix milliseconds; `None`
    if they never do."""


def is_unchanged(disk: Disk, directory: str, log: IdleLog) -> bool:
    """Return whether a closed log is as described, and its checkpoint intact; blocks.

    Every change of a log makes the active segment longer, or writes a checkpoint.
    """
    try:
        if checked_crc(disk, f"{directory}/{CHECKPOINT_NAME}") != log.checkpoint_crc:
            return False
        file = disk.open(segment_path(directory, log.base_offset))
        try:
            return file.size() == log.end_position
        finally:
            file.close()
    except OSError:
        return False  # Opening the log reports the error.
