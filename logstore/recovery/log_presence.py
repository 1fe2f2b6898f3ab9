"""Presence of an existing log before it is opened: intact, partial or missing.

An open log detects damage by its checkpoint and by the durable positions of later batches. If the
files are gone, both are missing: a log that lost everything looks like a new log. A broker that
knows of the log checks its presence first.
"""

from enum import Enum

from tidelog.logstore.checkpoint import (
    CHECKPOINT_NAME,
    DamagedFileError,
    LogCheckpoint,
    read_small_file,
)
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.segments.batch_scanner import FileWindow
from tidelog.logstore.segments.segment import LOG_SUFFIX, base_offset_of
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE, parse_segment_header


class LogPresence(Enum):
    """How much of a log is left; losses after its last checkpoint cannot be detected."""

    INTACT = "intact"
    """The checkpoint records a minimum end; missing records below it will be damage."""
    PARTIAL = "partial"
    """Some segments are left, but not the record of the log's end."""
    MISSING = "missing"
    """No segment has a valid header or a valid batch."""


def presence_of(disk: Disk, directory: str) -> LogPresence:
    """Return the presence of the log in `directory`, which once had a checkpoint; blocks.

    The active segment was on disk at least up to the position in the checkpoint. If it is shorter
    now, more may have followed. Nothing is changed.

    Raises:
        OSError: The disk failed.
        DataDirectoryError: A file was written by a newer version.
    """
    segments = {
        base: f"{directory}/{name}"
        for name in disk.list_directory(directory)
        if (base := base_offset_of(name, LOG_SUFFIX)) is not None
    }
    try:
        known = read_small_file(disk, f"{directory}/{CHECKPOINT_NAME}", LogCheckpoint)
    except DamagedFileError:
        known = None
    if known is not None and known.recovery_base_offset in segments:
        size, _ = _look_into(disk, segments[known.recovery_base_offset])
        if size >= known.recovery_position:
            return LogPresence.INTACT
    has_beginning = any(_look_into(disk, path)[1] for path in segments.values())
    return LogPresence.PARTIAL if has_beginning else LogPresence.MISSING


def _look_into(disk: Disk, path: str) -> tuple[int, bool]:
    """Return the size of a segment's file, and whether it has a valid header or batch."""
    file = disk.open(path)
    try:
        size = file.size()
        header = parse_segment_header(file.read_at(0, SEGMENT_HEADER_SIZE), f"{disk.root}/{path}")
        if header is not None:
            return size, True
        # Recovery repairs the header of a segment with valid batches.
        found = FileWindow(file, end=size).find_valid(SEGMENT_HEADER_SIZE, accepts=lambda _: True)
        return size, found is not None
    finally:
        file.close()
