"""Check of one log: every checksum, and every rule between its files.

Decides; reads every file once, in pieces, through a disk that it never writes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import final

from tidelog.broker.inspection.contents import content_lines
from tidelog.broker.inspection.dump import missing_index
from tidelog.broker.inspection.file_kinds import (
    Content,
    FileKind,
    content_of,
    kind_of,
    number_in,
    topic_place,
)
from tidelog.broker.inspection.findings import FileCheck, Problems
from tidelog.broker.inspection.rows import OffsetFilter
from tidelog.broker.inspection.segment_check import SegmentCheck
from tidelog.broker.inspection.segment_walk import BadRange, SegmentFrame, read_frame
from tidelog.broker.inspection.small_files import read_small
from tidelog.broker.inspection.stored_keys import LockedBatchError, StoredKeys
from tidelog.logstore.checkpoint import CHECKPOINT_NAME, LogCheckpoint
from tidelog.logstore.damage import DamagedRanges
from tidelog.logstore.disk.disk import ReadableDisk
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.segments.gap_scan import ValidBatch
from tidelog.logstore.segments.segment import INDEX_SUFFIX, LOG_SUFFIX
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.errors import DataDirectoryError, WireFormatError

ALL_OFFSETS = OffsetFilter()


@final
class LogCheck:
    """The walk through the files of one log, oldest segment first.

    Invariant: the next segment begins at `end_offset`; `None` before the first segment.
    """

    def __init__(
        self,
        disk: ReadableDisk,
        paths: Sequence[str],
        *,
        is_whole: bool,
        keys: StoredKeys | None = None,
    ) -> None:
        """Check files of one directory; `is_whole` if they are all files of it.

        `keys` open sealed batches; without them, only checksums of these are checked.
        """
        self._disk = disk
        self._keys = keys
        self._is_whole = is_whole
        self._directory = paths[0].rpartition("/")[0]
        by_kind = {kind: [each for each in paths if kind_of(each) is kind] for kind in FileKind}
        self._segments = by_kind[FileKind.SEGMENT]
        self._indexes = frozenset(by_kind[FileKind.INDEX])
        self._paths = paths
        markers = [number_in(path) for path in by_kind[FileKind.DELETION_MARKER]]
        self._start = max(markers, default=0)
        self._checkpoint: LogCheckpoint | None = None
        self._checkpoint_problems = Problems()
        self._epochs = LeaderEpochs()
        self.end_offset: int | None = None
        self._owner: SegmentHeader | None = None
        self._was_cleaned = False
        self._last_epoch = 0

    def all_findings(self) -> Iterator[FileCheck]:
        """Yield the findings of each segment, its index, and the checkpoint, in this order.

        Raises:
            OSError: The disk failed.
        """
        self._read_checkpoint()
        for number, path in enumerate(self._segments):
            is_last = number == len(self._segments) - 1
            yield from self._check_segment(path, is_last=is_last)
        if self._is_whole or self._has_checkpoint:
            yield self._checkpoint_findings()

    @property
    def _has_checkpoint(self) -> bool:
        return self._checkpoint_path in self._paths

    @property
    def _checkpoint_path(self) -> str:
        return f"{self._directory}/{CHECKPOINT_NAME}".lstrip("/")

    def _read_checkpoint(self) -> None:
        if not self._has_checkpoint:
            if self._is_whole:
                self._checkpoint_problems.add("it is missing; the next start scans the whole log")
            return
        found = read_small(self._disk, self._checkpoint_path, FileKind.CHECKPOINT)
        if isinstance(found, str):
            self._checkpoint_problems.add(found)
            return
        assert isinstance(found, LogCheckpoint)
        self._checkpoint = found
        self._start = max(self._start, found.log_start_offset)
        self._epochs = LeaderEpochs(found.leader_epochs)

    def _check_segment(self, path: str, *, is_last: bool) -> Iterator[FileCheck]:
        problems = Problems()
        with closing(self._disk.open(path)) as file:
            try:
                frame = read_frame(file, f"{self._disk.root}/{path}")
            except DataDirectoryError as error:
                yield FileCheck(path, (str(error),))
                self.end_offset = None
                return
            if self._is_cleaned_away(frame):
                note = "a cleaned segment replaces it; the next start removes it"
                yield FileCheck(path, note=note)
                index_path = path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
                if index_path in self._indexes:
                    yield FileCheck(index_path, note=note)
                return
            self._was_cleaned = frame.footer is not None and frame.footer.cleaned_at_ms is not None
            base_offset = number_in(path)
            self._check_frame(path, frame, problems, is_last=is_last)
            is_below = frame.footer is not None and frame.footer.end_offset <= self._start
            self._check_begin(base_offset, problems, is_below=is_below)
            check = SegmentCheck(self._disk, path, file, frame=frame, checkpoint=self._checkpoint)
            locked = _Locked()
            self._walk(check, problems, locked, is_last=is_last)
        note = "its records were deleted; the next start removes it" if is_below else ""
        yield FileCheck(path, problems.all(), note or locked.note)
        index_path = path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
        is_sealed = frame.footer is not None or not is_last
        if index_path in self._indexes:
            if is_sealed:
                yield FileCheck(index_path, tuple(check.index_problems()))
            else:
                yield FileCheck(index_path, note="its segment is not sealed; the index is ignored")
        elif is_sealed and self._is_whole and not is_below:
            yield FileCheck(index_path, (missing_index(f"{self._disk.root}/{path}"),))

    def _is_cleaned_away(self, frame: SegmentFrame) -> bool:
        """Return whether a crash left this segment behind a cleaned one that replaces it."""
        return (
            self._was_cleaned
            and self.end_offset is not None
            and frame.footer is not None
            and frame.footer.end_offset <= self.end_offset
        )

    def _check_frame(
        self, path: str, frame: SegmentFrame, problems: Problems, *, is_last: bool
    ) -> None:
        """Check header and footer."""
        if frame.footer is None and not is_last:
            problems.add("it has no footer, or a damaged one, though a segment follows")
        header = frame.header
        if header is None:
            problems.add("its header is torn or damaged")
            return
        if header.base_offset != number_in(path):
            problems.add(f"its header says that it begins at offset {header.base_offset}")
        owner = self._owner
        if owner is None:
            self._owner = header
        elif (header.topic_id, header.partition) != (owner.topic_id, owner.partition):
            problems.add("it belongs to another partition than the segments before it")
        place = topic_place(f"{self._disk.root}/{self._directory}".rstrip("/"))
        if place is not None and (place.topic_id, place.partition) != (
            header.topic_id,
            header.partition,
        ):
            problems.add(
                f"it belongs to partition {header.partition} of topic {header.topic_id.hex()},"
                " which has another directory"
            )

    def _check_begin(self, base_offset: int, problems: Problems, *, is_below: bool) -> None:
        """Check that the segment continues the one before it."""
        end_offset = self.end_offset
        if end_offset is None:
            if self._checkpoint is not None and base_offset > self._start and not is_below:
                problems.add(
                    f"the log begins at offset {self._start}, and no segment covers the offsets"
                    f" before {base_offset}"
                )
        elif base_offset > end_offset:
            problems.add(f"offsets {end_offset} to {base_offset - 1} are missing before it")
        elif base_offset < end_offset:
            problems.add(f"it overlaps the segment before it, which ends at offset {end_offset}")

    def _walk(
        self, check: SegmentCheck, problems: Problems, locked: "_Locked", *, is_last: bool
    ) -> None:
        """Check all batches."""
        directory = f"{self._disk.root}/{self._directory}".rstrip("/")
        owner = self._owner
        content = content_of(directory, None if owner is None else owner.topic_id)
        for found in check.run():
            if isinstance(found, BadRange):
                problems.add(self._explained(check, found, is_last=is_last))
                continue
            self._check_epoch(found.header, problems)
            if content is not Content.RECORDS:
                _check_content(check, found, content, problems=problems)
            elif found.header.is_sealed and self._keys is not None and owner is not None:
                batch = check.file.read_at(found.position, found.header.size)
                try:
                    self._keys.open(owner, found.header, batch)
                except LockedBatchError as error:
                    locked.add(str(error))
                except WireFormatError as error:
                    problems.add(f"at position {found.position}, offset {found.offset}: {error}")
        for problem in check.frame_problems():
            problems.add(problem)
        for problem in check.checkpoint_problems():
            self._checkpoint_problems.add(problem)
        self.end_offset = check.end_offset

    def _explained(self, check: SegmentCheck, found: BadRange, *, is_last: bool) -> str:
        where = f"at position {found.position}, offset {found.offset}: {found.reason}"
        known = self._checkpoint
        place = (check.base_offset, found.position)
        if known is not None and place < (known.recovery_base_offset, known.recovery_position):
            damage = DamagedRanges(known.damage)
            end_offset = found.end_offset or found.offset + 1
            is_known = damage.touches(found.offset, max(end_offset, found.offset + 1))
            return f"damage {where}{', which the checkpoint lists' if is_known else ''}"
        if is_last and found.is_at_the_end:
            return f"torn tail {where}; the next start truncates it"
        return f"torn or damaged {where}; the next start decides which"

    def _check_epoch(self, header: BatchHeader, problems: Problems) -> None:
        if header.leader_epoch < self._last_epoch:
            problems.add(
                f"the batch at offset {header.base_offset} has leader epoch"
                f" {header.leader_epoch}, after a batch of epoch {self._last_epoch}"
            )
        self._last_epoch = max(self._last_epoch, header.leader_epoch)
        known = self._checkpoint
        if known is None or not self._start <= header.base_offset < known.recovery_offset:
            return
        if not self._epochs.wrote(header.leader_epoch, header.base_offset):
            problems.add(
                f"the batch at offset {header.base_offset} has leader epoch"
                f" {header.leader_epoch}, the checkpoint has another epoch there"
            )

    def _checkpoint_findings(self) -> FileCheck:
        known, problems = self._checkpoint, self._checkpoint_problems
        if known is not None:
            for problem in _contradictions(known):
                problems.add(problem)
            has_segment = any(
                number_in(path) == known.recovery_base_offset for path in self._segments
            )
            if self._is_whole and not has_segment:
                problems.add(
                    f"the segment that was active at its recovery point, which begins at offset"
                    f" {known.recovery_base_offset}, is missing"
                )
        return FileCheck(self._checkpoint_path, problems.all())


@final
class _Locked:
    """Sealed batches of one segment that could not be opened."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, reason: str) -> None:
        """Count a batch."""
        self._counts[reason] += 1

    @property
    def note(self) -> str:
        """The number of batches and the reason, for each; empty without any."""
        return "; ".join(
            f"{count} sealed {'batch' if count == 1 else 'batches'} not opened: {reason}"
            for reason, count in self._counts.items()
        )


def _check_content(
    check: SegmentCheck, found: ValidBatch, content: Content, *, problems: Problems
) -> None:
    batch = check.file.read_at(found.position, found.header.size)
    try:
        for _ in content_lines(
            check.path, found.header, batch, content=content, wanted=ALL_OFFSETS
        ):
            pass
    except WireFormatError as error:
        problems.add(f"at position {found.position}, offset {found.offset}: {error}")


def _contradictions(known: LogCheckpoint) -> Iterator[str]:
    """Yield the contradictions within a checkpoint."""
    if not known.log_start_offset <= known.recovery_offset:
        yield "its log start offset is behind its recovery point"
    if known.clean_offset > known.recovery_offset:
        yield "its clean offset is behind its recovery point"
    if known.recovery_base_offset > known.recovery_offset:
        yield "the base offset of its active segment is behind its recovery point"
    for producer in known.producers:
        offsets = [batch.base_offset for batch in producer.window]
        if offsets != sorted(set(offsets)):
            yield f"the batches of producer {producer.producer_id} are not in order"
        elif offsets and offsets[-1] >= known.recovery_offset:
            yield f"it has a batch of producer {producer.producer_id} behind its recovery point"
    epochs = known.leader_epochs
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(epochs)):
        yield "its leader epochs do not increase"
