"""The segments of one log in order, with searches by offset and time (Kafka: LogSegments)."""

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import final

from tidelog.logstore.checkpoint import LogCheckpoint
from tidelog.logstore.config import LogConfig
from tidelog.logstore.damage import DamagedRanges
from tidelog.logstore.disk.disk import File
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.producer_state import ProducerStates
from tidelog.logstore.retention.retention import (
    ActiveSegmentInfo,
    LogSummary,
    SegmentInfo,
    committed_count,
    deletable_count,
)
from tidelog.logstore.segments.batch_scanner import walk_headers
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.log_position import LogPosition, OffsetPosition
from tidelog.logstore.segments.log_slice import LogSlice, corrupt
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE, SegmentHeader
from tidelog.logstore.segments.segment_scrub import SegmentScrub
from tidelog.wire.batch.record_batch import BatchHeader

RELATIVE_OFFSET_MAX = (1 << 32) - 1


@final
class SegmentList:
    """Segments without overlap; the last one is active.

    Invariant: base offsets grow strictly; all segments but the last are sealed; offsets between the
    end of a segment and the base of the next are in `damage`.
    """

    def __init__(
        self,
        header: SegmentHeader,
        directory: str,
        files: FileCache,
        *,
        segments: list[Segment],
        damage: DamagedRanges,
        leader_epochs: LeaderEpochs,
    ) -> None:
        """Start with the segments in `directory`, at least one.

        `leader_epochs` is the log's own object, which changes with the log.
        """
        assert segments, "a log has an active segment"
        self._header = header
        self._directory = directory
        self._files = files
        self._segments = segments
        self.active = segments[-1]
        """The active segment: the last one."""
        self.damage = damage
        """Ranges of damaged or lost records."""
        self._leader_epochs = leader_epochs

    @property
    def sealed(self) -> list[Segment]:
        """All sealed segments, oldest first."""
        return self._segments[:-1]

    @property
    def base_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def is_idle(self) -> bool:
        """Whether there is only one segment, and it never had an append."""
        return len(self._segments) == 1 and self._segments[0].first_append_ms is None

    @property
    def end(self) -> LogPosition:
        """Position of the next batch."""
        active = self.active
        return LogPosition(active.end_offset, active.base_offset, active.end_position)

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._segments)

    def must_roll(self, batch_bytes: int, next_offset: int, config: LogConfig) -> bool:
        """Return whether a batch that ends before `next_offset` needs a new segment."""
        active = self.active
        if active.end_offset == active.base_offset:
            return False
        return (
            active.end_position + batch_bytes > config.roll_bytes
            or next_offset - active.base_offset > RELATIVE_OFFSET_MAX
        )

    def count_fitting(self, headers: Sequence[BatchHeader], config: LogConfig) -> int:
        """Return how many of these batches fit into the active segment, at least one."""
        active = self.active
        position = active.end_position
        for count, header in enumerate(headers):
            position += header.size
            offsets = header.next_offset - active.base_offset
            if count and (position > config.roll_bytes or offsets > RELATIVE_OFFSET_MAX):
                return count
        return len(headers)

    def roll(self, config: LogConfig, *, now_ms: int) -> dict[str, File]:
        """Seal the active segment and start a new one; return the files to sync, by path.

        Raises:
            OSError: The disk is full or failed; the old segment is still active.
        """
        old = self.active
        new = self.create(old.end_offset, config)
        try:
            file = new.file()
            written = old.seal(now_ms=now_ms)
        except OSError:
            new.forget_files()
            new.remove_files()
            raise
        self._segments.append(new)
        self.active = new
        return {**written, new.path: file}

    def create(self, base_offset: int, config: LogConfig) -> Segment:
        """Return a new segment with its file, which is not in the list yet.

        Raises:
            OSError: The disk is full or failed.
        """
        segment = self.describe(base_offset)
        segment.create(self.header_at(base_offset), config)
        return segment

    def describe(self, base_offset: int) -> Segment:
        """Return a segment without a file."""
        return Segment(self._files, self._directory, base_offset)

    def header_at(self, base_offset: int) -> SegmentHeader:
        """Return the header of a segment that begins at `base_offset`."""
        return SegmentHeader(self._header.topic_id, self._header.partition, base_offset)

    def insert(self, segment: Segment) -> None:
        """Insert a sealed segment that fills a gap between, or before, the other segments."""
        insort(self._segments, segment, key=lambda each: each.base_offset)

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace consecutive sealed segments by `new`; see `SegmentSwap`."""
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == list(old)
        self._segments[first : first + len(old)] = [new]
        for segment in old:
            segment.forget_files()

    def between(self, offset: int, end_offset: int) -> list[tuple[Segment, int]]:
        """Return the segments of these offsets, each with the base offset of the next segment.

        Offsets that are missing after a segment belong to it; those before all segments to none.
        """
        ends = [segment.base_offset for segment in self._segments[1:]]
        return [
            (segment, end)
            for segment, end in zip(self._segments, [*ends, self.active.end_offset], strict=True)
            if segment.base_offset < end_offset and end > offset
        ]

    def floor_segment(self, offset: int) -> Segment:
        """Return the last segment that begins at or below `offset`, or else the first one."""
        found = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        return self._segments[max(found, 0)]

    def read(
        self, offset: int, config: LogConfig, *, max_bytes: int, high_watermark: int
    ) -> LogSlice | None:
        """Return the slice with the batches from `offset` on; see `PartitionLog.read`."""
        damaged = self.damage.first_ending_above(offset)
        bound = high_watermark
        if damaged is not None:
            bound = min(bound, damaged.offset)
            if bound <= offset:
                raise corrupt(offset, damaged.end_offset)
        segment = self.floor_segment(offset)
        end, end_offset = segment.end_below(bound, config)
        if end_offset <= offset:
            place = OffsetPosition(end_offset, end)
            return self._read_incomplete(segment, offset, place, high_watermark=high_watermark)
        start_offset, start = segment.start_of(offset, config)
        if end - start > max_bytes:
            index = segment.loaded_index(config)
            cut = index.floor_position(start + max_bytes)
            if cut is None or cut <= start:
                cut = index.ceiling_position(start + 1)
            if cut is not None and cut < end:
                end, end_offset = cut, offset
        part = LogSlice(
            segment.file(),
            start,
            end - start,
            offset=offset,
            end_offset=segment.end_offset,
            is_trusted=start >= segment.trusted_position
            and not self.damage.touches(start_offset, offset),
        )
        part.start_offset = start_offset
        part.has_more = end_offset < high_watermark
        return self._to_check(part)

    def _read_incomplete(
        self, segment: Segment, offset: int, place: OffsetPosition, *, high_watermark: int
    ) -> LogSlice | None:
        """Return the bytes at `place`; no whole batch below `place` has `offset`."""
        start_offset, position = place
        found = next(
            walk_headers(
                segment.file(), position, start_offset=start_offset, end=segment.end_position
            ),
            None,
        )
        if found is not None and found[0] == position and found[1].next_offset > high_watermark:
            return None  # The batch is only partly committed.
        # Unknown damage. Loading the slice finds its extent.
        part = LogSlice(
            segment.file(),
            position,
            segment.end_position - position,
            offset=offset,
            end_offset=segment.end_offset,
            is_trusted=False,
        )
        part.start_offset = start_offset
        return self._to_check(part)

    def _to_check(self, part: LogSlice) -> LogSlice:
        """Give a slice to be checked a copy of the leader epochs, because a thread may load it."""
        if not part.is_trusted:
            part.leader_epochs = LeaderEpochs(self._leader_epochs.entries)
        return part

    def find_time(
        self, timestamp_ms: int, config: LogConfig, *, log_start_offset: int, high_watermark: int
    ) -> LogSlice | None:
        """Return the batch with the first record at or after a time; see `PartitionLog`."""
        known_ms = [segment.max_timestamp_ms for segment in self._segments]
        newest = self._newest_ms(known_ms, timestamp_ms)
        end_offset = self.base_offset
        for segment, newest_ms in zip(self._segments, newest, strict=True):
            missing_from, end_offset = end_offset, segment.end_offset
            if newest_ms < timestamp_ms:
                continue
            entry = segment.loaded_index(config).before_time(timestamp_ms)
            start_offset, start = entry or (segment.base_offset, SEGMENT_HEADER_SIZE)
            expected = start_offset if entry else missing_from
            for position, header in walk_headers(
                segment.file(), start, start_offset=start_offset, end=segment.end_position
            ):
                if max(expected, log_start_offset) < min(header.base_offset, high_watermark):
                    raise corrupt(max(expected, log_start_offset), header.base_offset)
                expected = header.next_offset
                if header.next_offset > high_watermark:
                    return None
                if header.next_offset <= log_start_offset:
                    continue
                if header.max_timestamp_ms >= timestamp_ms and header.record_count:
                    part = LogSlice(
                        segment.file(),
                        position,
                        header.size,
                        offset=max(header.base_offset, log_start_offset),
                        end_offset=header.next_offset,
                        is_trusted=False,
                    )
                    return self._to_check(part)
            if max(expected, log_start_offset) < min(segment.end_offset, high_watermark):
                raise corrupt(max(expected, log_start_offset), segment.end_offset)
        return None

    def offset_before(self, timestamp_ms: int, config: LogConfig) -> int:
        """Return an offset at or a little below that of the first record at or after a time.

        The search reads no headers: a reader that continues from there finds damage on the way.

        Raises:
            OSError: The disk failed.
        """
        known_ms = [segment.max_timestamp_ms for segment in self._segments]
        newest = self._newest_ms(known_ms, timestamp_ms)
        for segment, newest_ms in zip(self._segments, newest, strict=True):
            if newest_ms >= timestamp_ms:
                entry = segment.loaded_index(config).before_time(timestamp_ms)
                return segment.base_offset if entry is None else entry[0]
        return self.end.offset

    def begin_scrub(self, from_offset: int, durable: LogPosition) -> SegmentScrub | None:
        """Return the scrub, up to `durable`, of the first segment at or above `from_offset`.

        Raises:
            OSError: The disk failed.
        """
        for segment in self._segments:
            base_offset = segment.base_offset
            if from_offset <= base_offset <= durable.segment_base_offset:
                end = OffsetPosition(segment.end_offset, segment.end_position)
                if base_offset == durable.segment_base_offset:
                    end = OffsetPosition(durable.offset, durable.position)
                header = self.header_at(base_offset)
                epochs = LeaderEpochs(self._leader_epochs.entries)
                return SegmentScrub(
                    segment, header, self._files.disk, end=end, leader_epochs=epochs
                )
        return None

    def sealed_info(self, *, now_ms: int) -> list[SegmentInfo]:
        """Return the properties of the sealed segments for retention, oldest first."""
        known_ms = [
            min(segment.max_timestamp_ms, segment.sealed_at_ms or now_ms)
            for segment in self._segments
        ]
        return [
            SegmentInfo(
                segment.size_bytes, segment.end_offset, newest_ms, segment.sealed_at_ms or 0
            )
            for segment, newest_ms in zip(
                self.sealed, self._newest_ms(known_ms, now_ms), strict=False
            )
        ]

    def deletable_count(
        self,
        config: LogConfig,
        *,
        high_watermark: int,
        log_start_offset: int,
        now_ms: int | None,
        wanted: int,
    ) -> int:
        """Return how many of the oldest segments to delete: by the settings, and at least `wanted`.

        Never a segment that reaches above the high watermark, or the active segment.
        """
        sealed = self.sealed_info(now_ms=now_ms or 0)
        by_settings = deletable_count(
            sealed,
            config=config,
            active_bytes=self.active.size_bytes,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
        )
        return max(by_settings, committed_count(sealed, wanted, high_watermark=high_watermark))

    def summary(self, *, now_ms: int) -> LogSummary:
        """Return a summary of all segments."""
        active = self.active
        return LogSummary(
            self.sealed_info(now_ms=now_ms),
            ActiveSegmentInfo(
                active.base_offset, active.end_offset, active.size_bytes, active.first_append_ms
            ),
        )

    def _newest_ms(self, known_ms: Sequence[int], end_ms: int) -> list[int]:
        """Return the newest possible timestamp of each segment; `known_ms` are the readable ones.

        Timestamps of damaged records are unknown: they may be as new as those of the segment after
        them, or as `end_ms`. A lower guess would delete damaged segments while other replicas can
        still repair them, and the other replicas' segments as soon as this replica leads.
        """
        newest: list[int] = []
        behind_ms = end_ms
        for segment, newest_known_ms in zip(
            reversed(self._segments), reversed(known_ms), strict=True
        ):
            is_known = segment.end_offset > segment.base_offset and not self.damage.touches(
                segment.base_offset, segment.end_offset
            )
            behind_ms = newest_known_ms if is_known else max(newest_known_ms, behind_ms)
            newest.append(behind_ms)
        return newest[::-1]

    def checkpoint(
        self,
        *,
        log_start_offset: int,
        leader_epochs: LeaderEpochs,
        producers: ProducerStates,
        high_watermark: int,
        clean_offset: int,
    ) -> LogCheckpoint:
        """Return the checkpoint of a log with these segments."""
        active = self.active
        assert active.index is not None
        return LogCheckpoint(
            log_start_offset=log_start_offset,
            recovery_offset=active.end_offset,
            recovery_base_offset=active.base_offset,
            recovery_position=active.end_position,
            max_timestamp_ms=active.max_timestamp_ms,
            first_append_ms=active.first_append_ms,
            index=active.index.to_bytes(),
            leader_epochs=list(leader_epochs.entries),
            producers=producers.snapshot(),
            damage=list(self.damage),
            high_watermark=high_watermark,
            has_deletion_markers=True,
            clean_offset=clean_offset,
        )

    def drop_oldest(self, count: int) -> list[Segment]:
        """Remove the oldest `count` segments from the list and return them."""
        assert count < len(self._segments)
        removed, self._segments = self._segments[:count], self._segments[count:]
        for segment in removed:
            segment.forget_files()
        return removed

    def _require_whole_below(self, offset: int, config: LogConfig) -> None:
        """Check that all batches are good up to `offset`, or to the batch that reaches above it."""
        if offset < self.base_offset:
            if self.damage.touches(0, self.base_offset):
                raise corrupt(offset, self.base_offset)
            return
        segment = self.floor_segment(max(offset - 1, self.base_offset))
        position, end_offset = segment.end_below(offset, config)
        if end_offset < offset and not segment.has_batch_at(position, end_offset):
            raise corrupt(end_offset, offset)

    def cut(
        self, offset: int, config: LogConfig, *, may_drop_damage: bool = False
    ) -> list[Segment]:
        """Remove all batches that reach to or above `offset`; the last remaining segment is active.

        If records before `offset` are missing, a new segment becomes active, because no append may
        overwrite their place.

        Pass the result to `cut_files`, which truncates the files.

        Raises:
            CorruptRecordError: Records below `offset` are damaged, and must not be dropped.
            OSError: The disk failed.
        """
        if not may_drop_damage:
            self._require_whole_below(offset, config)
        removed: list[Segment] = []
        while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
            removed.append(self._segments.pop())
        end_offset = self._segments[-1].end_offset
        if end_offset <= offset and self.damage.touches(end_offset - 1, end_offset):
            if removed and removed[-1].base_offset == end_offset:
                self._segments.append(removed.pop())
            else:
                self._segments.append(self.create(end_offset, config))
                self._segments[-1].file().sync()
        active = self.active = self._segments[-1]
        position, end_offset = active.end_below(offset, config)
        active.cut(position, end_offset, config)
        self.damage.truncate_end(end_offset)
        return removed

    def cut_files(self, removed: list[Segment]) -> None:
        """Apply `cut` to the files durably; blocks.

        The removal of segments is durable before the active segment is truncated: a segment that
        came back after a gap would make the gap look like damage.

        Raises:
            OSError: The disk failed.
        """
        for segment in removed:
            segment.forget_files()
            segment.remove_files()
        self.active.remove_index()
        self._files.disk.sync_directory(self._directory)
        self.active.cut_file()

    def forget_files(self) -> None:
        """Drop all open files."""
        for segment in self._segments:
            segment.forget_files()
