"""Recovery of a log when it is opened: trusted parts and scanned parts.

Recovery scans a log from its recovery point, not from zero. Bad bytes are a torn tail, which
recovery truncates, or damage, which it records; `logstore.recovery.torn_tail` tells them apart.
Missing files are judged like missing bytes.

Before recovery trusts a byte after the recovery point, it syncs the file and drops its page cache:
after a failed fsync the kernel shows pages that never reached the disk. Recovery or the first
flush syncs the names of files, because the process that created them may have been killed before.
"""

from collections.abc import Mapping
from typing import final

import msgspec

from tidelog.logstore.checkpoint import (
    CHECKPOINT_NAME,
    DamagedFileError,
    LogCheckpoint,
    read_small_file,
)
from tidelog.logstore.config import LogConfig
from tidelog.logstore.damage import DamagedRange, DamagedRanges
from tidelog.logstore.disk.disk import File
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.log import LogState, PartitionLog
from tidelog.logstore.producer_state import ProducerStates
from tidelog.logstore.recovery.torn_tail import Evidence, TornTailScan
from tidelog.logstore.segments.batch_scanner import FileWindow, Predecessor
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.logstore.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment, base_offset_of
from tidelog.logstore.segments.segment_deletion import deletion_markers
from tidelog.logstore.segments.segment_format import (
    SEGMENT_HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
)
from tidelog.logstore.segments.segment_list import SegmentList
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.errors import DataDirectoryError


class RecoveryReport(msgspec.Struct):
    """Findings of a recovery, for the operator."""

    scanned_bytes: int = 0
    """Bytes that were read and checked."""
    truncated_bytes: int = 0
    """Truncated bytes of a torn tail; nothing proves that they were durable."""
    damage: list[DamagedRange] = []
    """Damaged or lost records, found now or before."""
    notes: list[str] = []
    """Other findings, one line each."""


def open_log(
    directory: str,
    owner: SegmentHeader,
    files: FileCache,
    *,
    config: LogConfig,
    now_ms: int,
    is_suspect: bool = False,
    checks_end: bool = False,
) -> tuple[PartitionLog, RecoveryReport]:
    """Open the log of `owner` (its base offset does not matter) in `directory`; blocks.

    An empty or missing directory becomes an empty log. A log that `is_suspect` is known to have
    lost files, whose records other replicas have. If its checkpoint is gone as well, records below
    its first segment count as lost and not as deleted. With `checks_end`, the last batches below
    the recovery point are checked as well, a few KiB.

    Raises:
        OSError: The disk is full or failed.
        DataDirectoryError: A file belongs to another log, or to a newer version.
    """
    recovery = _Recovery(
        directory, owner, files, config=config, now_ms=now_ms, is_suspect=is_suspect
    )
    recovery.checks_end = checks_end
    return PartitionLog(directory, files, config, state=recovery.run()), recovery.report


_NOTHING_KNOWN = LogCheckpoint(
    log_start_offset=0,
    recovery_offset=0,
    recovery_base_offset=0,
    recovery_position=SEGMENT_HEADER_SIZE,
    max_timestamp_ms=0,
    first_append_ms=None,
    index=b"",
    leader_epochs=[],
    producers=[],
    damage=[],
)


@final
class _Recovery:
    """One opening of one log.

    Invariant: all records from the first file to `_offset` are in `_segments` or in `_damage`.
    """

    def __init__(
        self,
        directory: str,
        owner: SegmentHeader,
        files: FileCache,
        *,
        config: LogConfig,
        now_ms: int,
        is_suspect: bool,
    ) -> None:
        self._is_doubtful = is_suspect
        self.checks_end = False
        """Whether to check the last batches below the recovery point."""
        self._directory = directory
        self._owner = owner
        self._files = files
        self._disk = files.disk
        self._config = config
        self._now_ms = now_ms
        self.report = RecoveryReport()
        self._known = _NOTHING_KNOWN
        self._epochs = LeaderEpochs()
        self._producers = ProducerStates()
        self._damage = DamagedRanges()
        self._segments: list[Segment] = []
        self._log_start_offset = 0
        self._offset = 0
        self._has_changed = False

    def run(self) -> LogState:
        self._read_checkpoint()
        bases = self._list_segments()
        for base in bases:
            self._check_owner(Segment(self._files, self._directory, base))
        self._find_start(bases)
        for number, base in enumerate(bases):
            if not self._take_in(base, bases[number + 1 :]):
                self._remove_torn(bases[number + 1 :])
                break
        if self._offset < self._known.recovery_offset:
            self._lose(self._known.recovery_offset)
        self._settle_start()
        self._settle_active()
        if self._has_changed:
            self._disk.sync_directory(self._directory)
        self.report.damage = list(self._damage)
        segments = SegmentList(
            self._owner,
            self._directory,
            self._files,
            segments=self._segments,
            damage=self._damage,
            leader_epochs=self._epochs,
        )
        return LogState(
            segments,
            self._log_start_offset,
            self._epochs,
            self._producers,
            checkpoint_base_offset=self._known.recovery_base_offset,
            is_checkpoint_due=self._has_changed,
            dir_sync_pending=not self._has_changed,
            high_watermark=min(
                max(self._known.high_watermark, self._log_start_offset), self._offset
            ),
            clean_offset=min(self._known.clean_offset, self._offset),
        )

    def _read_checkpoint(self) -> None:
        path = f"{self._directory}/{CHECKPOINT_NAME}"
        try:
            checkpoint = read_small_file(self._disk, path, LogCheckpoint)
        except DamagedFileError as error:
            self.report.notes.append(f"{error}; the whole log is scanned instead")
            return
        if checkpoint is not None:
            self._known = checkpoint
            self._epochs = LeaderEpochs(checkpoint.leader_epochs)
            self._producers = ProducerStates(checkpoint.producers)
            self._damage = DamagedRanges(checkpoint.damage)

    def _list_segments(self) -> list[int]:
        """Return the base offsets of all segments; remove leftovers of a crash."""
        names = self._disk.list_directory(self._directory)
        bases = {base for name in names if (base := base_offset_of(name, LOG_SUFFIX)) is not None}
        indexed = {base_offset_of(name, INDEX_SUFFIX) for name in names}
        # A swap may have been interrupted: the surviving file must be durable before a reader
        # creates its index.
        self._has_changed |= len(bases - indexed) > 1
        for name in names:
            base = base_offset_of(name, INDEX_SUFFIX)
            is_orphan = base is not None and base not in bases
            if is_orphan or name.endswith(".tmp"):
                self._disk.remove(f"{self._directory}/{name}")
        if not bases:
            self._make_directory()
        return sorted(bases)

    def _make_directory(self) -> None:
        """Create the directory, and make its name and those of its parents durable."""
        self._disk.make_directory(self._directory)
        parts = self._directory.split("/")
        for depth in range(len(parts)):
            self._disk.sync_directory("/".join(parts[:depth]))

    def _find_start(self, bases: list[int]) -> None:
        """Find the log start; records between it and the first file are lost.

        Retention removes only segments below the active segment of the checkpoint.
        """
        known = self._known
        end = known.recovery_base_offset
        marks = deletion_markers(self._disk, self._directory)
        if marks:
            self._has_changed = True  # The next checkpoint makes them obsolete.
        deleted_to = max(marks, default=0)
        if known is _NOTHING_KNOWN:
            start = end = bases[0] if bases else 0
            if self._is_doubtful and deleted_to < start:
                start = 0
        elif known.has_deletion_markers:
            start = max(known.log_start_offset, deleted_to if deleted_to <= end else 0)
        else:
            active = max(end, known.log_start_offset)
            start = max(known.log_start_offset, min([active, *bases[:1]]))
        self._log_start_offset = self._offset = start
        if bases and bases[0] < start:
            self._offset = bases[0]
        elif start < min([end, *bases[:1]]):
            self._lose(min([end, *bases[:1]]))

    def _take_in(self, base: int, later: list[int]) -> bool:
        """Add one segment; return whether the segments after it are valid."""
        segment = Segment(self._files, self._directory, base)
        if base < self._offset and self._is_cleaned_away(segment):
            # The cleaned segment that replaces it must be durable first.
            self._disk.sync_directory(self._directory)
            segment.forget_files()
            segment.remove_files()
            self._has_changed = True
            return True
        if base < self._offset:
            stale = f"{segment.path}.stale"
            segment.forget_files()
            self._disk.rename(segment.path, stale)
            self.report.notes.append(f"{stale} overlaps the segment before it and was set aside")
            self._has_changed = True
            return True
        if base > self._offset:
            if not self._was_durable([base, *later]):
                self._remove_torn([base])
                return False
            self._lose(base)
        footer = segment.read_footer() if base < self._known.recovery_base_offset else None
        if footer is not None:
            segment.open_sealed(footer)
            segment.forget_files()
            self._segments.append(segment)
            self._offset = segment.end_offset
            return True
        return self._scan(segment, later)

    def _is_cleaned_away(self, segment: Segment) -> bool:
        """Return whether a cleaned segment before it replaces this segment, which a crash left."""
        last = self._segments[-1] if self._segments else None
        footer = segment.read_footer()
        return (
            last is not None
            and last.cleaned_at_ms is not None
            and footer is not None
            and footer.end_offset <= last.end_offset
        )

    def _check_owner(self, segment: Segment) -> None:
        """Check the owner of a segment; repair a torn or damaged header."""
        found = segment.read_header()
        owner = msgspec.structs.replace(self._owner, base_offset=segment.base_offset)
        if found is None:
            segment.file().write_at(0, [owner.to_bytes()])
            segment.file().sync()
            self._has_changed = True
        elif found != owner:
            raise DataDirectoryError(
                f"{self._disk.root}/{segment.path} belongs to partition {found.partition} of"
                f" topic {found.topic_id.hex()}, base offset {found.base_offset}; if it was copied"
                " here, move it away"
            )

    def _scan(self, segment: Segment, later: list[int]) -> bool:
        """Add the good batches of a segment; return whether the segments after it are valid."""
        file = segment.file()
        size = file.size()
        durable_position = self._open_unsealed(segment, size)
        known_to = segment.end_position
        if self.checks_end:
            self._go_back(segment)
        start = segment.end_position
        is_known_durable = durable_position > 0 and self._known is not _NOTHING_KNOWN
        if known_to < size or not is_known_durable:
            # An earlier process may have ended before it synced even the header.
            file.sync()
            file.drop_cache()
            self.report.scanned_bytes += size - known_to
            self._has_changed = True
        # Only after the sync: a failed sync of an earlier process may have lost the footer.
        footer = segment.read_footer()
        end = size if footer is None else footer.end_position
        scan = TornTailScan(
            FileWindow(file, end=end),
            position=start,
            end=end,
            predecessor=self._predecessor(segment.end_offset),
            evidence=Evidence(
                durable_position,
                later,
                lambda: self._was_durable(later),
                self._is_as_known,
            ),
        )
        for position, header in scan.batches():
            self._accept(segment, header, position)
        for damaged in scan.damage:
            self._add_damage(damaged.offset, damaged.end_offset)
        segment.end_position = scan.end_position
        if scan.is_torn:
            self.report.truncated_bytes += size - scan.end_position
        self._segments.append(segment)
        self._settle_end(segment, footer, size)
        self._offset = segment.end_offset
        return not scan.is_torn

    def _settle_end(self, segment: Segment, footer: SegmentFooter | None, size: int) -> None:
        """Seal a scanned segment if its footer fits; truncate the bytes after its last batch."""
        if (
            footer is not None
            and footer.end_position == segment.end_position
            and footer.end_offset >= segment.end_offset
        ):
            self._add_damage(segment.end_offset, footer.end_offset)
            _sync(segment.adopt(footer))
        elif segment.end_position < size:
            segment.cut_file()

    def _open_unsealed(self, segment: Segment, size: int) -> int:
        """Open a segment for a scan; return the position up to which its bytes were durable."""
        known = self._known
        index, end_position, end_offset = None, SEGMENT_HEADER_SIZE, segment.base_offset
        durable_position = 0
        if segment.base_offset < known.recovery_base_offset:
            durable_position = size
        elif segment.base_offset == known.recovery_base_offset:
            durable_position = known.recovery_position
            # If the file has lost its end, all of it is scanned.
            if durable_position <= size:
                end_position, end_offset = durable_position, known.recovery_offset
                segment.max_timestamp_ms = known.max_timestamp_ms
                segment.first_append_ms = known.first_append_ms
                index = OffsetIndex.from_bytes(
                    known.index,
                    base_offset=segment.base_offset,
                    interval_bytes=self._config.index_interval_bytes,
                )
        segment.open_active(
            self._config, index=index, end_position=end_position, end_offset=end_offset
        )
        return durable_position

    @staticmethod
    def _go_back(segment: Segment) -> None:
        """Let the scan begin at the last indexed batch below the checkpoint.

        Damage of the last batches would otherwise be found only when they are read, and the end of
        a log is where a disk is damaged most often.
        """
        assert segment.index is not None
        last = segment.index.floor(segment.end_offset - 1)
        if last is not None:
            segment.end_offset, segment.end_position = last

    def _predecessor(self, offset: int) -> Predecessor:
        """Return the predecessor of a batch at `offset`."""
        return Predecessor(offset, self._epochs.epoch_before(offset))

    def _accept(self, segment: Segment, header: BatchHeader, position: int) -> None:
        segment.take_in(header, position, base_offset=header.base_offset)
        if header.base_offset < self._known.recovery_offset:
            return  # The checkpoint has its epoch and its producer.
        if self._epochs.may_assign(header.leader_epoch):
            self._epochs.assign(header.leader_epoch, header.base_offset)
        self._producers.appended(header, header.base_offset, now_ms=self._now_ms)

    def _is_as_known(self, header: BatchHeader) -> bool:
        """Return whether a batch has the epoch that the checkpoint records for its offset.

        A disk that kept an earlier state of a file may hold records that were truncated since.
        """
        if header.base_offset >= self._known.recovery_offset:
            return True
        return self._epochs.wrote(header.leader_epoch, header.base_offset)

    def _was_durable(self, later: list[int]) -> bool:
        """Return whether the segments `later` prove that all bytes before them were once durable.

        A batch gets a durable position above 0 only after a flush of all bytes before.
        """
        if later and later[0] <= self._known.recovery_base_offset:
            return True
        for base in later:
            file = Segment(self._files, self._directory, base).file()
            window = FileWindow(file, end=file.size())
            found = window.find_valid(
                SEGMENT_HEADER_SIZE, accepts=Predecessor(base, durable_position=1).may_precede
            )
            if found is not None:
                return True
        return False

    def _remove_torn(self, bases: list[int]) -> None:
        for base in bases:
            segment = Segment(self._files, self._directory, base)
            self.report.truncated_bytes += segment.file().size()
            segment.forget_files()
            segment.remove_files()
            self._has_changed = True

    def _lose(self, end_offset: int) -> None:
        """Add everything up to `end_offset` as damage; these offsets are never assigned again."""
        self._add_damage(max(self._offset, self._log_start_offset), end_offset)
        self._offset = end_offset
        last = self._segments[-1] if self._segments else None
        if last is not None and not last.is_sealed:
            # The bytes after its last batch may be damage, so no append may overwrite them.
            last.end_offset = end_offset
            self._seal(last)

    def _settle_start(self) -> None:
        """Remove the state of records below the log start."""
        start = self._log_start_offset
        self._offset = max(self._offset, start)
        self._epochs.truncate_start(start)
        self._damage.truncate_start(start)

    def _settle_active(self) -> None:
        """Seal all segments but the last, and create an active segment if there is none."""
        for segment in self._segments[:-1]:
            self._seal(segment)
        last = self._segments[-1] if self._segments else None
        if last is not None and last.end_offset < self._offset:
            self._seal(last)
        if last is None or last.is_sealed:
            last = Segment(self._files, self._directory, self._offset)
            owner = msgspec.structs.replace(self._owner, base_offset=self._offset)
            last.create(owner, self._config)
            last.file().sync()
            self._segments.append(last)
            self._has_changed = True
        elif last.end_position > SEGMENT_HEADER_SIZE and last.first_append_ms is None:
            last.first_append_ms = self._now_ms

    def _seal(self, segment: Segment) -> None:
        if not segment.is_sealed:
            _sync(segment.seal(now_ms=self._now_ms))
            self._has_changed = True

    def _add_damage(self, offset: int, end_offset: int) -> None:
        if self._damage.add(offset, end_offset):
            self._has_changed = True


def _sync(written: Mapping[str, File]) -> None:
    for file in written.values():
        file.sync()
