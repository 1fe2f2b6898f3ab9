"""Range repair: the replacement of damaged batches by those of another replica.

The repair overwrites damaged bytes in place, because a batch has the same length on all replicas.
So its cost does not depend on the size of the segment, no other bytes move, and readers keep their
open files. Batches that are missing at the end of a segment extend its file. Batches of a missing
file go to a new file.

The repair is crash-safe: the log keeps the offsets as damaged until all bytes are durable and read
back. After a crash they are still damaged, though some bytes may be good already.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import final

import msgspec

from tidelog.logstore.config import KiB, LogConfig
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.disk.disk import File
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.segments.batch_run import check_run
from tidelog.logstore.segments.batch_scanner import FileWindow
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.gap_scan import Gap, ValidBatch, scan_for_gaps
from tidelog.logstore.segments.log_position import OffsetPosition
from tidelog.logstore.segments.log_slice import corrupt
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE, SegmentFooter
from tidelog.logstore.segments.segment_list import RELATIVE_OFFSET_MAX, SegmentList
from tidelog.wire.batch.record_batch import BatchHeader, parse_header, stamp_replica
from tidelog.wire.errors import CorruptRecordError, InvalidBatchError

_EPOCH_MAX = (1 << 32) - 1
_POSITION_MAX = (1 << 64) - 1


@final
class Batches:
    """Consecutive batches from another replica, and their headers."""

    def __init__(self, headers: Sequence[BatchHeader], data: memoryview) -> None:
        """Hold checked batches; `data` is stamped in place when they are written."""
        self.headers = headers
        self.data = data

    @property
    def offset(self) -> int:
        """Offset of the first record."""
        return self.headers[0].base_offset

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.headers[-1].next_offset

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp, 0 if there are no batches."""
        return max((header.max_timestamp_ms for header in self.headers), default=0)

    def split(self, count: int) -> "tuple[Batches, Batches]":
        """Return the first `count` batches, and the others."""
        size = sum(header.size for header in self.headers[:count])
        return (
            Batches(self.headers[:count], self.data[:size]),
            Batches(self.headers[count:], self.data[size:]),
        )

    def split_at(self, offset: int) -> "tuple[Batches, Batches]":
        """Return the batches that begin below `offset`, and the other batches."""
        return self.split(sum(header.base_offset < offset for header in self.headers))

    def stamp(self, position: int, *, durable_max: int) -> None:
        """Stamp the durable positions of batches that go to `position` of a file.

        All bytes before each of them are on disk once it can be read. Durable positions never fall
        within a file, so they must not exceed that of the good batch after them, `durable_max`.
        """
        at = 0
        for header in self.headers:
            batch = self.data[at : at + header.size]
            stamp_replica(batch, durable_position=min(position + at, durable_max))
            at += header.size


def check_repair(data: memoryview, *, offset: int, end_offset: int) -> Batches:
    """Check batches for the offsets from `offset` to `end_offset`; return a copy.

    The first may begin below `offset`, and the last end above `end_offset`.

    Raises:
        CorruptBatchError: A checksum is wrong.
        InvalidBatchError: They are incomplete, not consecutive, or do not cover these offsets.
    """
    first = parse_header(data)
    begin = offset if first is None else first.base_offset
    headers = check_run(data, log_end_offset=begin, last_epoch=0, leader_epoch=_EPOCH_MAX)
    end = headers[-1].next_offset if headers else begin
    if begin > offset or end < end_offset:
        raise InvalidBatchError(
            f"batches for the offsets {offset} to {end_offset} (exclusive) are for {begin} to {end}"
        )
    return Batches(headers, memoryview(bytearray(data)))


class _Overwrite(msgspec.Struct, frozen=True):
    """Batches to write into the file of a segment."""

    segment: Segment
    gap: Gap
    batches: Batches
    footer: SegmentFooter | None
    """The new footer of the segment, `None` if its end does not change."""


@final
class RangeRepair:
    """One repair of one log: `plan` changes nothing, `run` and `settle` do."""

    def __init__(
        self,
        segments: SegmentList,
        leader_epochs: LeaderEpochs,
        files: FileCache,
        *,
        config: LogConfig,
        now_ms: int,
    ) -> None:
        """Repair `segments`; new files are sealed at `now_ms`."""
        self._segments = segments
        self._leader_epochs = leader_epochs
        self._files = files
        self._config = config
        self._now_ms = now_ms
        self._overwrites: list[_Overwrite] = []
        self._additions: list[Batches] = []
        """Each becomes a segment of its own."""
        self._still_missing: list[DamagedRange] = []

    def plan(self, batches: Batches) -> None:
        """Find the positions of batches; reads and blocks.

        Raises:
            InvalidBatchError: They do not fit the intact batches of the log.
            OSError: The disk failed.
        """
        for header in batches.headers:
            if not self._leader_epochs.fits(header.leader_epoch, header.base_offset):
                raise InvalidBatchError(
                    f"the batch at offset {header.base_offset} is of leader epoch"
                    f" {header.leader_epoch}, which wrote other offsets of this log"
                )
        before, rest = batches.split_at(self._segments.base_offset)
        if before.headers:
            _require_end(before, self._segments.base_offset)
            self._add(before)
        for segment, end_offset in self._segments.between(batches.offset, batches.end_offset):
            here, rest = rest.split_at(end_offset)
            if here.headers:
                _require_end(here, end_offset)
                self._plan_in(segment, end_offset, here)
        assert not rest.headers, "the batches end below the end of the log"

    @property
    def size_bytes(self) -> int:
        """Bytes to write."""
        parts = [*self._additions, *(each.batches for each in self._overwrites)]
        return sum(len(part.data) for part in parts)

    def run(self, directory: str) -> None:
        """Write the batches durably and read them back; blocks.

        The whole log must be durable. The offsets are still damaged afterwards.

        Raises:
            CorruptRecordError: The disk returned other bytes than were written.
            OSError: The disk is full or failed.
        """
        for missing in self._still_missing:
            self._segments.damage.add(missing.offset, missing.end_offset)
        for overwrite in self._overwrites:
            self._overwrite(overwrite)
        for batches in self._additions:
            self._segments.insert(self._make_segment(batches))
        if self._additions:
            self._files.disk.sync_directory(directory)

    def settle(self, batches: Batches) -> None:
        """Remove the damage of batches that are durable now.

        Segments without further damage get a new index.

        Raises:
            OSError: The disk failed.
        """
        damage = self._segments.damage
        damage.remove(batches.offset, batches.end_offset)
        for header in batches.headers:
            self._leader_epochs.learn(header.leader_epoch, header.base_offset)
        for segment, end_offset in self._segments.between(batches.offset, batches.end_offset):
            if not damage.touches(segment.base_offset, end_offset):
                segment.rebuild_index(self._config)

    def _plan_in(self, segment: Segment, end_offset: int, batches: Batches) -> None:
        """Plan the batches of one segment, which may end at `end_offset`."""
        rest = batches
        walk = self._scan(segment, batches.offset, end_offset)
        for found in walk:
            if found.end_offset <= batches.offset or found.end_offset == found.offset:
                continue
            if not rest.headers:
                return
            if isinstance(found, ValidBatch):
                ours, rest = rest.split(1)
                _require_same(found.header, ours.headers[0])
                continue
            if found.offset < batches.offset:
                self._segments.damage.add(found.offset, batches.offset)
                raise InvalidBatchError(
                    f"batches begin at offset {batches.offset}, damage at {found.offset}"
                )
            run, rest = rest.split_at(found.end_offset)
            _require_fitting(found, run)
            if not _has_room(segment, found, run):
                self._note_misplaced(found, walk)
                raise InvalidBatchError(
                    f"batches of {len(run.data)} bytes for the offsets {run.offset} to"
                    f" {run.end_offset} (exclusive) do not fit into the"
                    f" {found.end_position - found.position} bytes there"
                )
            if run.end_offset < found.end_offset:
                self._still_missing.append(DamagedRange(run.end_offset, found.end_offset))
            self._plan_gap(segment, found, run)

    def _plan_gap(self, segment: Segment, gap: Gap, run: Batches) -> None:
        size, room = len(run.data), gap.end_position - gap.position
        is_whole = run.end_offset == gap.end_offset
        if size == room or (size < room and not is_whole):
            self._overwrite_in_place(segment, gap, run)
            return
        here, elsewhere = run.split(self._count_fitting(segment, gap, run))
        footer = SegmentFooter(
            elsewhere.offset if elsewhere.headers else max(segment.end_offset, run.end_offset),
            gap.position + len(here.data),
            max(segment.max_timestamp_ms, here.max_timestamp_ms),
            segment.sealed_at_ms or self._now_ms,
        )
        self._overwrites.append(_Overwrite(segment, gap, here, footer))
        if elsewhere.headers:
            self._add(elsewhere)

    def _note_misplaced(self, gap: Gap, behind: Iterator[ValidBatch | Gap]) -> None:
        """Add misplaced batches of a misdirected write to the damage.

        They look good, but batches before and after them are missing.
        """
        for found in behind:
            if isinstance(found, Gap) and found.offset > gap.end_offset:
                self._segments.damage.add(gap.end_offset, found.end_offset)
                return

    def _overwrite_in_place(self, segment: Segment, gap: Gap, run: Batches) -> None:
        footer = None
        if segment.is_sealed and run.max_timestamp_ms > segment.max_timestamp_ms:
            # The segment was sealed while these batches were missing.
            footer = msgspec.structs.replace(
                segment.footer(), max_timestamp_ms=run.max_timestamp_ms
            )
        self._overwrites.append(_Overwrite(segment, gap, run, footer))

    def _count_fitting(self, segment: Segment, gap: Gap, run: Batches) -> int:
        """Return how many batches fit at the end of a segment within its size limit."""
        position = gap.position
        limit = max(segment.end_position, self._config.roll_bytes)
        for count, header in enumerate(run.headers):
            position += header.size
            is_first = count == 0 and gap.position == SEGMENT_HEADER_SIZE
            offsets = header.next_offset - segment.base_offset
            if not is_first and (position > limit or offsets > RELATIVE_OFFSET_MAX):
                return count
        return len(run.headers)

    def _add(self, batches: Batches) -> None:
        """Plan new segments with only these batches."""
        while batches.headers:
            size = SEGMENT_HEADER_SIZE
            count = 0
            for header in batches.headers:
                size += header.size
                offsets = header.next_offset - batches.offset
                is_full = size > self._config.roll_bytes or offsets > RELATIVE_OFFSET_MAX
                if count and is_full:
                    break
                count += 1
            addition, batches = batches.split(count)
            self._additions.append(addition)

    def _scan(self, segment: Segment, offset: int, end_offset: int) -> Iterator[ValidBatch | Gap]:
        """Yield batches and gaps from a good batch before `offset` on."""
        window = FileWindow(segment.file(), end=segment.end_position, chunk_bytes=8 * KiB)
        start = OffsetPosition(*segment.start_of(offset, self._config))
        while start.position > SEGMENT_HEADER_SIZE:
            header = window.valid_header(start.position)
            is_good = header is not None and header.base_offset == start.offset
            if is_good and self._segments.damage.at(start.offset) is None:
                break
            start = OffsetPosition(*segment.start_of(start.offset - 1, self._config))
        return scan_for_gaps(
            segment.file(),
            start=start,
            end=OffsetPosition(end_offset, segment.end_position),
            damage=self._segments.damage,
            leader_epochs=self._leader_epochs,
        )

    def _overwrite(self, overwrite: _Overwrite) -> None:
        segment, gap, batches = overwrite.segment, overwrite.gap, overwrite.batches
        behind = gap.behind
        batches.stamp(
            gap.position, durable_max=_POSITION_MAX if behind is None else behind.durable_position
        )
        file = segment.file()
        try:
            file.write_at(gap.position, [batches.data])
            file.sync()
            _read_back(file, gap.position, batches)
        except (OSError, CorruptRecordError):
            if overwrite.footer is not None:
                with suppress(OSError):  # If it fails again, the next start writes the footer.
                    segment.replace_footer(segment.footer())
            raise
        if overwrite.footer is not None:
            segment.replace_footer(overwrite.footer)
        if gap.behind is None and segment.is_sealed:
            segment.extend_index(batches.headers, gap.position, self._config)
        elif not segment.is_sealed:
            segment.max_timestamp_ms = max(segment.max_timestamp_ms, batches.max_timestamp_ms)

    def _make_segment(self, batches: Batches) -> Segment:
        """Create the file of a sealed segment with these batches; its name is not durable yet."""
        segment = self._segments.describe(batches.offset)
        batches.stamp(SEGMENT_HEADER_SIZE, durable_max=_POSITION_MAX)
        footer = SegmentFooter(
            batches.end_offset,
            SEGMENT_HEADER_SIZE + len(batches.data),
            batches.max_timestamp_ms,
            self._now_ms,
        )
        header = self._segments.header_at(batches.offset)
        disk = self._files.disk
        temporary = f"{segment.path}.tmp"
        disk.remove(temporary)
        try:
            file = disk.open(temporary, create=True)
            try:
                file.write_at(0, [header.to_bytes(), batches.data, footer.to_bytes()])
                file.sync()
                _read_back(file, SEGMENT_HEADER_SIZE, batches)
            finally:
                file.close()
            disk.rename(temporary, segment.path)
        except (OSError, CorruptRecordError):
            disk.remove(temporary)
            raise
        segment.forget_files()
        segment.open_sealed(footer)
        segment.rebuild_index(self._config)
        return segment


def _read_back(file: File, position: int, batches: Batches) -> None:
    """Check that the disk returns the written bytes."""
    file.drop_cache()
    if memoryview(file.read_at(position, len(batches.data))) != batches.data:
        raise corrupt(batches.offset, batches.end_offset)


def _require_end(batches: Batches, end_offset: int) -> None:
    if batches.end_offset > end_offset:
        raise InvalidBatchError(
            f"the batch that ends at offset {batches.end_offset} reaches into the next segment,"
            f" which begins at {end_offset}"
        )


def _has_room(segment: Segment, gap: Gap, run: Batches) -> bool:
    """Return whether batches fit into the gap, or the gap has no fixed length."""
    size, room = len(run.data), gap.end_position - gap.position
    is_limited = gap.behind is not None or not segment.is_sealed
    is_part = run.end_offset < gap.end_offset
    return not is_limited or size == room or (is_part and size < room)


def _require_same(found: BatchHeader, ours: BatchHeader) -> None:
    """Check that a batch is identical to the good batch in the log."""
    if (found.base_offset, found.next_offset, found.leader_epoch, found.batch_crc) != (
        ours.base_offset,
        ours.next_offset,
        ours.leader_epoch,
        ours.batch_crc,
    ):
        raise InvalidBatchError(
            f"the batch at offset {ours.base_offset} differs from the good batch in the log"
        )


def _require_fitting(gap: Gap, run: Batches) -> None:
    """Check that batches match the offsets of a gap, and the leader epochs around it."""
    behind = gap.behind
    epoch_max = _EPOCH_MAX if behind is None else behind.leader_epoch
    if not run.headers or run.offset != gap.offset or run.end_offset > gap.end_offset:
        raise InvalidBatchError(
            f"the batches do not fill the gap: none begins at offset {gap.offset} and ends at"
            f" {gap.end_offset} or before"
        )
    epochs = run.headers[0].leader_epoch, run.headers[-1].leader_epoch
    if epochs[0] < gap.leader_epoch or epochs[1] > epoch_max:
        raise InvalidBatchError(
            f"batches of the leader epochs {epochs[0]} to {epochs[1]} lie between batches of"
            f" {gap.leader_epoch} and {epoch_max}"
        )
