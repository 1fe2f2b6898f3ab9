"""The segments of one log, in order: where an offset is, and where a time is."""

from bisect import bisect_right
from typing import final

from logstore.checkpoint import DamagedRange
from logstore.config import LogConfig
from logstore.file_cache import FileCache
from logstore.scan import walk_headers
from logstore.segment import Segment
from logstore.segment_format import SEGMENT_HEADER_SIZE, SegmentHeader
from logstore.slice import LogSlice, corrupt

_RELATIVE_OFFSET_MAX = (1 << 32) - 1


@final
class Segments:
    """Segments without overlap; the last one is active.

    Invariant: base offsets grow strictly; all but the last are sealed and not empty.
    """

    def __init__(
        self,
        header: SegmentHeader,
        directory: str,
        files: FileCache,
        *,
        segments: list[Segment],
        damage: list[DamagedRange],
    ) -> None:
        """Take over the segments in `directory`; there is at least one."""
        assert segments, "a log has an active segment"
        self._header = header
        self._directory = directory
        self._files = files
        self._segments = segments
        self.damage = sorted(damage, key=lambda damaged: damaged.offset)
        """Known damaged ranges, in order."""

    @property
    def active(self) -> Segment:
        """The segment that grows."""
        return self._segments[-1]

    @property
    def sealed(self) -> list[Segment]:
        """All others, oldest first."""
        return self._segments[:-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(segment.size_bytes for segment in self._segments)

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._segments)

    def must_roll(self, batch_bytes: int, next_offset: int, config: LogConfig) -> bool:
        """Return whether a batch that ends before `next_offset` needs a new segment."""
        active = self.active
        if active.end_offset == active.base_offset:
            return False
        return (
            active.end_position + batch_bytes > config.segment_bytes
            or next_offset - active.base_offset > _RELATIVE_OFFSET_MAX
        )

    def roll(self, config: LogConfig, *, now_ms: int) -> Segment:
        """Seal the active segment and return the new active one.

        Raises:
            OSError: The disk is full or failed; the old segment is still active.
        """
        old = self.active
        new = self.create(old.end_offset, config)
        try:
            old.seal(now_ms=now_ms)
        except OSError:
            new.forget_files()
            new.remove_files()
            raise
        self._segments.append(new)
        return new

    def create(self, base_offset: int, config: LogConfig) -> Segment:
        """Return a new segment file, not yet one of these.

        Raises:
            OSError: The disk is full or failed.
        """
        segment = Segment(self._files, self._directory, base_offset)
        header = SegmentHeader(self._header.topic_id, self._header.partition, base_offset)
        segment.create(header, config)
        return segment

    def holding(self, offset: int) -> Segment:
        """Return the segment in whose range `offset` lies."""
        found = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        segment = self._segments[max(found, 0)]
        if offset >= segment.end_offset and found + 1 < len(self._segments):
            return self._segments[found + 1]
        return segment

    def damage_at(self, offset: int) -> DamagedRange | None:
        """Return the known damage that covers `offset`."""
        for damaged in self.damage:
            if damaged.offset <= offset < damaged.end_offset:
                return damaged
        return None

    def add_damage(self, offset: int, end_offset: int) -> None:
        """Remember that records from `offset` to `end_offset` (exclusive) are damaged."""
        if self.damage_at(offset) is None:
            self.damage.append(DamagedRange(offset, end_offset))
            self.damage.sort(key=lambda damaged: damaged.offset)

    def read(
        self, offset: int, config: LogConfig, *, bytes_max: int, high_watermark: int
    ) -> LogSlice:
        """Return where the batches from `offset` on are; see `PartitionLog.read`."""
        damaged = self.damage_at(offset)
        if damaged is not None:
            raise corrupt(offset, damaged.end_offset)
        segment = self.holding(offset)
        index = segment.loaded_index(config)
        start = segment.start_position(offset, config)
        limit = self._read_limit(segment, offset, config, high_watermark)
        end = limit
        if start + bytes_max < limit:
            cut = index.floor_position(start + bytes_max)
            if cut is None or cut <= start:
                cut = index.ceiling_position(start + 1)
            end = limit if cut is None else min(cut, limit)
        return LogSlice(
            segment.file(),
            start,
            end - start,
            offset=offset,
            end_offset=segment.end_offset,
            is_trusted=start >= segment.trusted_position,
        )

    def _read_limit(
        self, segment: Segment, offset: int, config: LogConfig, high_watermark: int
    ) -> int:
        """Return the position in `segment` up to which may be read from `offset` on."""
        bound = high_watermark
        for damaged in self.damage:
            if damaged.offset > offset:
                bound = min(bound, damaged.offset)
        return segment.end_below(bound, config)[0]

    def find_time(
        self, timestamp_ms: int, config: LogConfig, *, log_start_offset: int, high_watermark: int
    ) -> LogSlice | None:
        """Return the batch with the first record at or after a time; see `PartitionLog`."""
        for segment in self._segments:
            if segment.max_timestamp_ms < timestamp_ms:
                continue
            entry = segment.loaded_index(config).before_time(timestamp_ms)
            start = entry[1] if entry is not None else SEGMENT_HEADER_SIZE
            for position, header in walk_headers(segment.file(), start, end=segment.end_position):
                if header.next_offset > high_watermark:
                    return None
                if header.next_offset <= log_start_offset:
                    continue
                if header.max_timestamp_ms >= timestamp_ms:
                    return LogSlice(
                        segment.file(),
                        position,
                        header.size,
                        offset=max(header.base_offset, log_start_offset),
                        end_offset=header.next_offset,
                        is_trusted=False,
                    )
        return None

    def drop_oldest(self, count: int) -> list[Segment]:
        """Take the oldest `count` segments out and return them; the active one stays."""
        assert count < len(self._segments)
        removed, self._segments = self._segments[:count], self._segments[count:]
        for segment in removed:
            segment.forget_files()
        return removed

    def truncate(self, offset: int, config: LogConfig) -> None:
        """Remove all batches that reach to or above `offset`; the last one left is active.

        Raises:
            OSError: The disk failed.
        """
        while len(self._segments) > 1 and self.active.base_offset >= offset:
            removed = self._segments.pop()
            removed.forget_files()
            removed.remove_files()
        active = self.active
        active.unseal(config)
        active.truncate(*active.end_below(offset, config))
        end_offset = active.end_offset
        self.damage = [damaged for damaged in self.damage if damaged.offset < end_offset]

    def forget_files(self) -> None:
        """Drop all open files."""
        for segment in self._segments:
            segment.forget_files()
