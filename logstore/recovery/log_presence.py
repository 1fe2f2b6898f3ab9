"""What is left of a log that was there once, before it is opened.

An open log tells damage by its checkpoint and by what later batches bear witness of. Neither is
there when the files are gone: then a log that lost everything looks like one that never had
anything. Whoever knows that there was a log looks here first.
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
    """How much of a log is left; what it has lost behind its last checkpoint nobody can tell."""

    INTACT = "intact"
    """Its checkpoint tells how far it went at least; what is missing below will be damage."""
    PARTIAL = "partial"
    """Some is there, but not what tells where it ended."""
    MISSING = "missing"
    """No segment is there that has so much as a beginning, or a whole batch."""


def presence_of(disk: Disk, directory: str) -> LogPresence:
    """Return what is left in `directory` of a log that once had a checkpoint; blocks.

    The segment that a checkpoint names as the active one was on the disk as far as that says.
    If it is shorter, more may have followed. Nothing is changed.

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
    """Return the size of a segment's file, and whether its header is good, or a batch is."""
    file = disk.open(path)
    try:
        size = file.size()
        header = parse_segment_header(file.read_at(0, SEGMENT_HEADER_SIZE), f"{disk.root}/{path}")
        if header is not None:
            return size, True
        # Whoever opens the log mends a header that batches bear witness for.
        found = FileWindow(file, end=size).find_valid(SEGMENT_HEADER_SIZE, accepts=lambda _: True)
        return size, found is not None
    finally:
        file.close()
