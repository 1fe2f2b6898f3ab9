"""Removing the oldest segments so that nobody takes them for lost.

The checkpoint tells where a log begins, but a full disk has no room for a new one before files go.
So first a *deletion marker* is made, an entry of the directory whose name is the offset below which
all was deleted: `00000000000000345000.deleted`. The index of a segment that goes is renamed to it,
which needs no room. It counts until a checkpoint says the same.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

from tidelog.logstore.disk.disk import PASSING_ERRNOS, Disk
from tidelog.logstore.segments.segment import Segment, base_offset_of

DELETION_SUFFIX: Final = ".deleted"


@final
class SegmentDeletion:
    """The files of segments that are not part of their log any more; touches nothing else."""

    def __init__(self, disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
        """Remove `segments`, the oldest ones, in order, from `directory`."""
        self._disk = disk
        self._directory = directory
        self._segments = segments

    def __len__(self) -> int:
        """Return how many segments go."""
        return len(self._segments)

    @property
    def end_offset(self) -> int:
        """Offset after the last record that goes."""
        return self._segments[-1].end_offset

    def run(self) -> None:
        """Mark and remove; blocks. Readers that hold a file finish.

        Raises:
            OSError: The disk failed; some may still be there, and the next start removes them.
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
            with suppress(FileNotFoundError):  # A checkpoint may have just made it needless.
                self._disk.rename(source, marker)
                return
        try:
            self._disk.open(marker, create=True).close()
        except OSError as error:
            if error.errno not in PASSING_ERRNOS:
                raise
            self._disk.rename(self._segments[-1].path, marker)


def deletion_markers(disk: Disk, directory: str) -> dict[int, str]:
    """Return the paths of all markers, by the offsets that they name."""
    return {
        offset: f"{directory}/{name}"
        for name in disk.list_directory(directory)
        if (offset := base_offset_of(name, DELETION_SUFFIX)) is not None
    }


def remove_obsolete_markers(disk: Disk, directory: str, log_start_offset: int) -> None:
    """Remove markers that the checkpoint on the disk makes needless; one that stays is no harm."""
    with suppress(OSError):
        for offset, path in deletion_markers(disk, directory).items():
            if offset <= log_start_offset:
                disk.remove(path)


def remove_markers_above(disk: Disk, directory: str, log_start_offset: int) -> None:
    """Remove markers that would be wrong of a log that begins earlier from now on.

    Raises:
        OSError: The disk failed.
    """
    for offset, path in deletion_markers(disk, directory).items():
        if offset > log_start_offset:
            disk.remove(path)
