"""Deletion of the oldest segments, with markers that tell deleted segments from lost ones.

The checkpoint has the log start offset, but a full disk has no room for a new checkpoint before
files go. So the deletion first creates a *deletion marker*, a directory entry whose name is the
offset below which all records were deleted: `00000000000000345000.deleted`. It renames the index of
a deleted segment to the marker, which needs no room. The marker counts until a checkpoint has the
offset.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

from tidelog.logstore.disk.disk import PASSING_ERRNOS, Disk
from tidelog.logstore.segments.segment import Segment, base_offset_of

DELETION_SUFFIX: Final = ".deleted"


@final
class SegmentDeletion:
    """Deletion of the files of segments that left their log; touches no other files."""

    def __init__(self, disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
        """Remove `segments`, the oldest ones, in order, from `directory`."""
        self._disk = disk
        self._directory = directory
        self._segments = segments

    def __len__(self) -> int:
        """Return the number of segments to delete."""
        return len(self._segments)

    @property
    def end_offset(self) -> int:
        """Offset after the last deleted record."""
        return self._segments[-1].end_offset

    def run(self) -> None:
        """Write the marker and remove the files; blocks. Readers that hold a file finish.

        Raises:
            OSError: The disk failed; the next start removes the remaining files.
        """
        if self._segments:
            self._write_marker()
            self._disk.sync_directory(self._directory)
        for segment in self._segments:
            segment.remove_files()

    def _write_marker(self) -> None:
        marker = f"{self._directory}/{self.end_offset:020d}{DELETION_SUFFIX}"
        markers = deletion_markers(self._disk, self._directory)
        indexes = [segment.index_path for segment in self._segments]
        for source in (*markers.values(), *indexes):
            with suppress(FileNotFoundError):  # A checkpoint may have just removed it.
                self._disk.rename(source, marker)
                return
        try:
            self._disk.open(marker, create=True).close()
        except OSError as error:
            if error.errno not in PASSING_ERRNOS:
                raise
            self._disk.rename(self._segments[-1].path, marker)


def deletion_markers(disk: Disk, directory: str) -> dict[int, str]:
    """Return the paths of all markers by their offsets."""
    return {
        offset: f"{directory}/{name}"
        for name in disk.list_directory(directory)
        if (offset := base_offset_of(name, DELETION_SUFFIX)) is not None
    }


def remove_obsolete_markers(disk: Disk, directory: str, log_start_offset: int) -> None:
    """Remove markers that the checkpoint on disk makes obsolete; a remaining one is harmless."""
    with suppress(OSError):
        for offset, path in deletion_markers(disk, directory).items():
            if offset <= log_start_offset:
                disk.remove(path)


def remove_markers_above(disk: Disk, directory: str, log_start_offset: int) -> None:
    """Remove markers above the new, lower start of a log.

    Raises:
        OSError: The disk failed.
    """
    for offset, path in deletion_markers(disk, directory).items():
        if offset > log_start_offset:
            disk.remove(path)
