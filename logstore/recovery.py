"""Opening a log: what is trusted, what is scanned, what is a torn tail and what is damage.

A log is scanned from its recovery point, not from zero. The first bad batch is a torn tail,
which is cut off, unless it is proven to lie in what was once durable: below the recovery point,
or below the durable position that a later valid batch carries. A valid batch behind a bad one
proves nothing by itself, for sectors that were not synced reach the disk in any order. Proven
damage is never cut off: the range is remembered, readers are told, and what lies behind it
stays readable.

Before a byte behind the recovery point is believed, the file is synced and its page cache
dropped: after a failed fsync the kernel shows pages that never reached the disk.
"""

from collections.abc import Callable
from typing import final

import msgspec

from logstore.checkpoint import (
    CHECKPOINT_NAME,
    DamagedFileError,
    DamagedRange,
    LogCheckpoint,
    read_small_file,
)
from logstore.config import LogConfig, MiB
from logstore.file_cache import FileCache
from logstore.index import SegmentIndex
from logstore.leader_epoch import LeaderEpochs
from logstore.log import LogState, PartitionLog
from logstore.producer_state import ProducerStates
from logstore.scan import FileWindow, walk_headers
from logstore.segment import LOG_SUFFIX, Segment
from logstore.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    parse_segment_footer,
    parse_segment_header,
)
from logstore.segments import Segments
from wire.errors import DataDirectoryError
from wire.record_batch import BatchHeader


class RecoveryReport(msgspec.Struct):
    """What opening a log found, for the operator."""

    scanned_bytes: int = 0
    """Bytes that were read and checked."""
    truncated_bytes: int = 0
    """Bytes of a torn tail that were cut off; none of them was ever durable."""
    damage: list[DamagedRange] = []
    """Records that are damaged, found now or before."""
    notes: list[str] = []
    """Other things worth a line in the log."""


def open_log(
    directory: str, owner: SegmentHeader, files: FileCache, config: LogConfig, *, now_ms: int
) -> tuple[PartitionLog, RecoveryReport]:
    """Open the log of `owner` (its base offset does not matter) in `directory`; blocks.

    An empty or missing directory becomes an empty log.

    Raises:
        OSError: The disk failed.
        DataDirectoryError: A file belongs to another log, or to a newer version.
    """
    recovery = _Recovery(directory, owner, files, config, now_ms=now_ms)
    state = recovery.run()
    log = PartitionLog(directory, files, config, state)
    if recovery.has_changed:
        log.request_checkpoint()
    return log, recovery.report


@final
class _Recovery:
    """One opening of one log.

    Invariant: everything below `_offset` is accounted for, as batches or as damage.
    """

    def __init__(
        self,
        directory: str,
        owner: SegmentHeader,
        files: FileCache,
        config: LogConfig,
        *,
        now_ms: int,
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._files = files
        self._disk = files.disk
        self._config = config
        self._now_ms = now_ms
        self.report = RecoveryReport()
        self.has_changed = False
        self._checkpoint: LogCheckpoint | None = None
        self._epochs = LeaderEpochs()
        self._producers = ProducerStates()
        self._damage: list[DamagedRange] = []
        self._segments: list[Segment] = []
        self._offset = 0

    def run(self) -> LogState:
        self._disk.make_directory(self._directory)
        self._read_checkpoint()
        bases = self._segment_bases()
        for number, base in enumerate(bases):
            if not self._open_segment(base, bases[number + 1 :]):
                self._remove_torn(bases[number + 1 :])
                break
        self._account_for_lost_end()
        log_start_offset = self._settle_start()
        self._settle_active()
        if self.has_changed:
            self._disk.sync_directory(self._directory)
        self.report.damage = self._damage
        segments = Segments(
            self._owner,
            self._directory,
            self._files,
            segments=self._segments,
            damage=self._damage,
        )
        return LogState(segments, log_start_offset, self._epochs, self._producers)

    def _read_checkpoint(self) -> None:
        path = f"{self._directory}/{CHECKPOINT_NAME}"
        try:
            checkpoint = read_small_file(self._disk, path, LogCheckpoint)
        except DamagedFileError as error:
            self.report.notes.append(f"{error}; the whole log is scanned instead")
            return
        if checkpoint is not None:
            self._checkpoint = checkpoint
            self._epochs = LeaderEpochs(checkpoint.leader_epochs)
            self._producers = ProducerStates(checkpoint.producers)
            self._damage = list(checkpoint.damage)

    def _segment_bases(self) -> list[int]:
        bases: list[int] = []
        for name in self._disk.list_directory(self._directory):
            stem, suffix = name[: -len(LOG_SUFFIX)], name[-len(LOG_SUFFIX) :]
            if suffix == LOG_SUFFIX and stem.isdigit():
                bases.append(int(stem))
            elif name.endswith(".tmp"):
                self._disk.remove(f"{self._directory}/{name}")
        bases.sort()
        self._offset = bases[0] if bases else 0
        return bases

    def _open_segment(self, base: int, later: list[int]) -> bool:
        """Take one segment in; return whether those behind it still count."""
        segment = Segment(self._files, self._directory, base)
        if base < self._offset:
            stale = f"{segment.path}.stale"
            self._disk.rename(segment.path, stale)
            self.report.notes.append(f"{stale} overlaps the segment before it and was set aside")
            self.has_changed = True
            return True
        if base > self._offset:
            if not self._is_durable_before([base, *later]):
                self._remove_torn([base])
                return False
            self._add_damage(self._offset, base)
            self._offset = base
        checkpoint = self._checkpoint
        is_below = checkpoint is not None and base < checkpoint.recovery_base_offset
        if is_below and segment.open_sealed():
            self._segments.append(segment)
            self._offset = segment.end_offset
            return True
        return self._scan_segment(segment, later, is_below_recovery=is_below)

    def _scan_segment(self, segment: Segment, later: list[int], *, is_below_recovery: bool) -> bool:
        file = self._files.file(segment.path)
        size = file.size()
        start, durable_position = self._prepare_scan(segment, size, is_below_recovery)
        if start < size:
            file.sync()
            file.drop_cache()
            self.report.scanned_bytes += size - start
            self.has_changed = True
        footer = self._read_ends(segment, size)
        end = size if footer is None else footer.end_position
        segment.trusted_position = start
        scan = _SegmentScan(self, segment, end=end, durable_position=durable_position)
        is_torn = scan.run(start, is_followed=lambda: self._is_durable_before(later))
        if is_torn:
            self.report.truncated_bytes += size - segment.end_position
            file.truncate(segment.end_position)
            file.sync()
        if segment.end_offset == segment.base_offset and is_torn and self._segments:
            segment.forget_files()
            segment.remove_files()
            return False
        self._segments.append(segment)
        self._offset = segment.end_offset
        if footer is not None and not is_torn:
            if footer.end_offset > self._offset:
                self._add_damage(self._offset, footer.end_offset)
                self._offset = segment.end_offset = footer.end_offset
            segment.seal(now_ms=footer.sealed_at_ms)
        return not is_torn

    def _prepare_scan(
        self, segment: Segment, size: int, is_below_recovery: bool
    ) -> tuple[int, int]:
        """Return where to begin scanning, and up to where bytes are known to be durable."""
        checkpoint = self._checkpoint
        if checkpoint is None or segment.base_offset != checkpoint.recovery_base_offset:
            segment.reopen(
                self._config,
                index=None,
                end_position=SEGMENT_HEADER_SIZE,
                end_offset=segment.base_offset,
            )
            return SEGMENT_HEADER_SIZE, size if is_below_recovery else 0
        durable_position = checkpoint.recovery_position
        if size < durable_position:
            # The file lost its end: look at all of it, to keep what is left.
            segment.reopen(
                self._config,
                index=None,
                end_position=SEGMENT_HEADER_SIZE,
                end_offset=segment.base_offset,
            )
            self._epochs.truncate_end(segment.base_offset)
            self._producers.truncate(segment.base_offset)
            return SEGMENT_HEADER_SIZE, durable_position
        index = SegmentIndex.from_bytes(
            checkpoint.index,
            base_offset=segment.base_offset,
            interval_bytes=self._config.index_interval_bytes,
        )
        segment.reopen(
            self._config,
            index=index,
            end_position=durable_position,
            end_offset=checkpoint.recovery_offset,
        )
        segment.first_append_ms = checkpoint.first_append_ms
        if index is None:
            self._index_headers(segment, durable_position)
        segment.max_timestamp_ms = checkpoint.max_timestamp_ms
        return durable_position, durable_position

    def _index_headers(self, segment: Segment, end: int) -> None:
        file = self._files.file(segment.path)
        for position, header in walk_headers(file, SEGMENT_HEADER_SIZE, end=end, chunk_bytes=MiB):
            segment.noted(header.base_offset, header.max_timestamp_ms, position)

    def _read_ends(self, segment: Segment, size: int) -> SegmentFooter | None:
        """Check whose segment this is, mend a torn header, and return the footer if any."""
        file = self._files.file(segment.path)
        found = parse_segment_header(file.read_at(0, SEGMENT_HEADER_SIZE))
        owner = SegmentHeader(self._owner.topic_id, self._owner.partition, segment.base_offset)
        if found is None:
            file.write_at(0, [owner.to_bytes()])
            file.sync()
            self.has_changed = True
        elif found != owner:
            raise DataDirectoryError(
                f"{self._disk.root}/{segment.path} belongs to partition {found.partition} of"
                f" topic {found.topic_id.hex()}, base offset {found.base_offset}; was it copied"
                " here?"
            )
        if size < SEGMENT_HEADER_SIZE + SEGMENT_FOOTER_SIZE:
            return None
        footer = parse_segment_footer(file.read_at(size - SEGMENT_FOOTER_SIZE, SEGMENT_FOOTER_SIZE))
        is_ours = footer is not None and footer.end_position == size - SEGMENT_FOOTER_SIZE
        return footer if is_ours else None

    def _is_durable_before(self, later: list[int]) -> bool:
        """Return whether segments behind this one prove that it was once wholly durable.

        A durable position above 0 is only stamped after a flush that covered all before.
        """
        if self._checkpoint is not None and later:
            if later[0] <= self._checkpoint.recovery_base_offset:
                return True
        for base in later:
            file = self._files.file(Segment(self._files, self._directory, base).path)
            window = FileWindow(file, end=file.size())
            found = window.find_valid(SEGMENT_HEADER_SIZE, offset_min=base)
            while found is not None:
                position, header = found
                if header.durable_position > 0:
                    return True
                found = window.find_valid(position + header.size, offset_min=header.next_offset)
        return False

    def _remove_torn(self, bases: list[int]) -> None:
        for base in bases:
            segment = Segment(self._files, self._directory, base)
            self.report.truncated_bytes += self._files.file(segment.path).size()
            segment.forget_files()
            segment.remove_files()
            self.has_changed = True

    def _account_for_lost_end(self) -> None:
        """Keep offsets that were once durable from being given again."""
        if self._checkpoint is None or self._offset >= self._checkpoint.recovery_offset:
            return
        start = max(self._offset, self._checkpoint.log_start_offset)
        self._add_damage(start, self._checkpoint.recovery_offset)
        self._offset = self._checkpoint.recovery_offset
        if self._segments and not self._segments[-1].is_sealed:
            self._segments[-1].end_offset = self._offset

    def _settle_start(self) -> int:
        """Return the log start offset; remove what lies below it."""
        log_start_offset = self._segments[0].base_offset if self._segments else self._offset
        if self._checkpoint is not None:
            log_start_offset = max(log_start_offset, self._checkpoint.log_start_offset)
        self._offset = max(self._offset, log_start_offset)
        while self._segments and self._segments[0].end_offset <= log_start_offset:
            is_empty_active = len(self._segments) == 1 and (
                self._segments[0].base_offset == log_start_offset
            )
            if is_empty_active:
                break
            segment = self._segments.pop(0)
            segment.forget_files()
            segment.remove_files()
            self.has_changed = True
        self._epochs.truncate_start(log_start_offset)
        self._damage = [known for known in self._damage if known.end_offset > log_start_offset]
        return log_start_offset

    def _settle_active(self) -> None:
        """Seal what is not the end, and make sure that there is an active segment."""
        for segment in self._segments[:-1]:
            if not segment.is_sealed:
                segment.seal(now_ms=self._now_ms)
                segment.file().sync()
                self.has_changed = True
        last = self._segments[-1] if self._segments else None
        is_cut_short = last is not None and any(
            known.end_offset == last.end_offset for known in self._damage
        )
        if last is not None and not last.is_sealed and is_cut_short:
            last.seal(now_ms=self._now_ms)
            last.file().sync()
        if last is None or last.is_sealed:
            segment = Segment(self._files, self._directory, self._offset)
            owner = SegmentHeader(self._owner.topic_id, self._owner.partition, self._offset)
            segment.create(owner, self._config)
            segment.file().sync()
            self._segments.append(segment)
            self.has_changed = True
        elif last.end_position > SEGMENT_HEADER_SIZE and last.first_append_ms is None:
            last.first_append_ms = self._now_ms

    def _add_damage(self, offset: int, end_offset: int) -> None:
        self._damage.append(DamagedRange(offset, end_offset))
        self.has_changed = True

    def accept(self, segment: Segment, header: BatchHeader, position: int) -> None:
        """Take a scanned batch in."""
        segment.noted(header.base_offset, header.max_timestamp_ms, position)
        segment.end_position = position + header.size
        segment.end_offset = header.next_offset
        latest = self._epochs.latest
        if latest is None or header.leader_epoch >= latest:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id and not header.is_control:
            self._producers.appended(header, header.base_offset)

    def damaged(self, segment: Segment, header: BatchHeader, position: int) -> None:
        """Take note that bytes from the segment's end to the batch at `position` are damaged."""
        self._add_damage(segment.end_offset, header.base_offset)
        segment.end_position = position
        segment.end_offset = header.base_offset


@final
class _SegmentScan:
    """The walk through one segment behind what is known to be good."""

    def __init__(
        self, recovery: _Recovery, segment: Segment, *, end: int, durable_position: int
    ) -> None:
        self._recovery = recovery
        self._segment = segment
        self._end = end
        self._durable_position = durable_position
        self._window = FileWindow(segment.file(), end=end)

    def run(self, position: int, *, is_followed: Callable[[], bool]) -> bool:
        """Take in all good batches; return whether the segment ends in a torn tail."""
        segment = self._segment
        while position < self._end:
            header = self._window.valid_header(position)
            if header is not None and header.base_offset >= segment.end_offset:
                self._recovery.accept(segment, header, position)
                position += header.size
                continue
            behind = self._next_valid(position)
            if not (self._is_proven(position, behind) or is_followed()):
                return True
            if behind is None:
                # What is there stays there, for whoever wants to look at it.
                segment.end_position = self._end
                return False
            position, header = behind
            self._recovery.damaged(segment, header, position)
        return False

    def _next_valid(self, position: int) -> tuple[int, BatchHeader] | None:
        offset = self._segment.end_offset
        header = self._window.header(position)
        if header is not None and header.base_offset >= offset:
            # Only the payload is bad: what looks like a batch inside of it is none.
            return self._window.find_valid(position + header.size, offset_min=header.next_offset)
        return self._window.find_valid(position + 1, offset_min=offset)

    def _is_proven(self, position: int, behind: tuple[int, BatchHeader] | None) -> bool:
        """Return whether the bytes at `position` were once durable."""
        if position < self._durable_position:
            return True
        while behind is not None:
            at, header = behind
            if header.durable_position > position:
                return True
            behind = self._window.find_valid(at + header.size, offset_min=header.next_offset)
        return False
