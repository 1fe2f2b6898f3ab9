"""Making the index of a segment anew from its batches.

Decides nothing: an index is what the headers of the batches say. A broker does it when it needs an
index that is missing or bad; `write_index` does it for files that no broker uses.
"""

from contextlib import closing

from logstore.config import LogConfig, MiB
from logstore.disk import Disk, File
from logstore.index import SegmentIndex
from logstore.scan import walk_headers
from logstore.segment_format import SEGMENT_HEADER_SIZE


def index_of_batches(
    file: File, *, base_offset: int, end_position: int, config: LogConfig
) -> SegmentIndex:
    """Return the index of the batches below `end_position`; walks over headers, and may block.

    Raises:
        OSError: The disk failed.
    """
    index = SegmentIndex(base_offset=base_offset, interval_bytes=config.index_interval_bytes)
    max_timestamp_ms = 0
    for position, header in walk_headers(
        file,
        SEGMENT_HEADER_SIZE,
        start_offset=base_offset,
        end=end_position,
        chunk_bytes=MiB,
    ):
        index.add(header.base_offset, position, max_timestamp_before=max_timestamp_ms)
        max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp_ms)
    return index


def write_index(disk: Disk, path: str, index: SegmentIndex) -> None:
    """Replace the index at `path`, durably; blocks. No broker may use the directory.

    Raises:
        OSError: The disk is full or failed; the old index or the new one is there.
    """
    temporary = f"{path}.tmp"
    disk.remove(temporary)
    try:
        with closing(disk.open(temporary, create=True)) as file:
            file.write_at(0, [index.to_bytes()])
            file.sync()
        disk.rename(temporary, path)
    except OSError:
        disk.remove(temporary)
        raise
    disk.sync_directory(path.rpartition("/")[0])
