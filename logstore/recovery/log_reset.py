"""Reset of a log to an offset (Kafka: truncateFullyAndStartAt).

A replica whose end is below its leader's log start offset, or a coordinator that installed a
snapshot, cannot append at its own end: the records in between are gone.
"""

from tidelog.logstore.checkpoint import CHECKPOINT_NAME, LogCheckpoint, write_small_file
from tidelog.logstore.config import LogConfig
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.logstore.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, base_offset_of
from tidelog.logstore.segments.segment_deletion import DELETION_SUFFIX
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE, SegmentHeader


def truncate_fully(
    log: PartitionLog, offset: int, owner: SegmentHeader, *, files: FileCache, now_ms: int
) -> PartitionLog:
    """Remove every record of `log`, durably, and return the log that begins and ends at `offset`.

    `log` is closed and cannot be used afterwards. No flush may be running. Blocks. A crash during
    the reset leaves the log with fewer records at its end, or reset; it never looks like damage.

    Raises:
        DiskFullError: There is no room for the checkpoint; the log may have lost its end.
        LogOfflineError: The disk failed; so for `OSError`.
    """
    # First truncate the end: a checkpoint that starts within the files says nothing about them.
    log.truncate(offset, may_drop_damage=True)
    log.close()
    restarted = create_empty_log(
        log.directory, offset, owner, files=files, config=log.config, now_ms=now_ms
    )
    restarted.cipher = log.cipher
    return restarted


def create_empty_log(
    directory: str,
    offset: int,
    owner: SegmentHeader,
    *,
    files: FileCache,
    config: LogConfig,
    now_ms: int,
) -> PartitionLog:
    """Return the empty log at `offset`, which replaces a log that ends before it.

    The old log is closed. The call may be repeated until there is room; blocks.

    Raises:
        OSError: The disk is full or failed.
    """
    write_small_file(files.disk, f"{directory}/{CHECKPOINT_NAME}", _empty_at(offset, config))
    for name in files.disk.list_directory(directory):
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, DELETION_SUFFIX):
            if base_offset_of(name, suffix) is not None:
                files.disk.remove(f"{directory}/{name}")
    files.disk.sync_directory(directory)
    restarted, _ = open_log(directory, owner, files, config=config, now_ms=now_ms)
    return restarted


def _empty_at(offset: int, config: LogConfig) -> LogCheckpoint:
    """Return the checkpoint of an empty log."""
    index = OffsetIndex(base_offset=offset, interval_bytes=config.index_interval_bytes)
    return LogCheckpoint(
        log_start_offset=offset,
        recovery_offset=offset,
        recovery_base_offset=offset,
        recovery_position=SEGMENT_HEADER_SIZE,
        max_timestamp_ms=0,
        first_append_ms=None,
        index=index.to_bytes(),
        leader_epochs=[],
        producers=[],
        damage=[],
        high_watermark=offset,
        has_deletion_markers=True,
    )
