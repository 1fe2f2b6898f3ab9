"""Scrub of a closed log: it reads the files, and opens or changes nothing.

What it finds is not recorded here: the log is then opened, and its own scrub repairs or records it.
"""

from collections.abc import Iterator

import msgspec

from tidelog.logstore.checkpoint import (
    CHECKPOINT_NAME,
    DamagedFileError,
    LogCheckpoint,
    read_small_file,
)
from tidelog.logstore.config import LogConfig
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.log_position import OffsetPosition
from tidelog.logstore.segments.segment import LOG_SUFFIX, Segment, base_offset_of
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.logstore.segments.segment_scrub import SegmentScrub


def closed_scrubs(
    directory: str, owner: SegmentHeader, files: FileCache, *, config: LogConfig
) -> Iterator[SegmentScrub]:
    """Return the scrubs of the segments that a checkpoint describes, oldest first; blocks.

    Raises:
        OSError: The disk failed.
        DamagedFileError: The checkpoint or a footer is damaged or missing, or so is a segment.
        DataDirectoryError: The checkpoint was written by a newer version.
    """
    disk = files.disk
    known = read_small_file(disk, f"{directory}/{CHECKPOINT_NAME}", LogCheckpoint)
    names = disk.list_directory(directory)
    bases = [base for name in names if (base := base_offset_of(name, LOG_SUFFIX)) is not None]
    if known is None or max(bases, default=-1) != known.recovery_base_offset:
        raise DamagedFileError(f"the checkpoint of {disk.root}/{directory} does not fit its files")
    for base in sorted(bases):
        segment = Segment(files, directory, base)
        if base == known.recovery_base_offset:
            end = OffsetPosition(known.recovery_offset, known.recovery_position)
            segment.open_active(
                config, index=None, end_position=end.position, end_offset=end.offset
            )
        else:
            footer = segment.read_footer()
            segment.forget_files()
            if footer is None:
                raise DamagedFileError(f"{disk.root}/{segment.path} has no valid footer")
            segment.open_sealed(footer)
            end = OffsetPosition(segment.end_offset, segment.end_position)
        yield SegmentScrub(
            segment,
            msgspec.structs.replace(owner, base_offset=base),
            disk,
            end=end,
            leader_epochs=LeaderEpochs(known.leader_epochs),
        )
