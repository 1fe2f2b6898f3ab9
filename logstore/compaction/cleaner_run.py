"""One cleaning of one log, in steps: build the offset map, rewrite segments, swap them in.

A run covers as much of the dirty part as fits into memory, and cleans all segments below its end:
the newest record of a key supersedes records in the clean part as well.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Protocol, final

from tidelog.logstore.batch_cipher import BatchCipher
from tidelog.logstore.compaction.batch_cleaner import CleaningRules, KeyRange
from tidelog.logstore.compaction.cleaner_state import CleanerState
from tidelog.logstore.compaction.offset_map import SLOT_BYTES, OffsetMap
from tidelog.logstore.compaction.policy import (
    CleanableBounds,
    CompactionConfig,
    SealedSegment,
    cleanable_segments,
    cleaned_at_ms,
    dirty_ratio,
    drops_tombstones,
    group_segments,
    urgency,
    usable_clean_offset,
)
from tidelog.logstore.compaction.segment_rewrite import (
    BATCH_COST_BYTES,
    RewriteFailedError,
    SegmentRewrite,
    SegmentRewritePlan,
)
from tidelog.logstore.compaction.segment_swap import SegmentSwap
from tidelog.logstore.config import LogConfig
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.producer_state import ProducerStates
from tidelog.logstore.segments.gap_scan import Gap, scan_for_gaps
from tidelog.logstore.segments.log_position import OffsetPosition
from tidelog.logstore.segments.segment import Segment
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE, SegmentHeader


class CleanableLog(Protocol):
    """The part of a `PartitionLog` that compaction needs."""

    config: LogConfig
    high_watermark: int
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    cleaner: CleanerState
    cipher: BatchCipher | None

    @property
    def log_start_offset(self) -> int:
        """First readable offset."""
        ...

    @property
    def damage(self) -> Sequence[DamagedRange]:
        """Records that are known to be damaged or lost, lowest first."""
        ...


class LogToClean:
    """The cleanable segments of a log, and the urgency of their cleaning."""

    def __init__(self, log: CleanableLog, config: CompactionConfig, *, now_ms: int) -> None:
        """Choose the segments by `config`."""
        damage = log.damage
        bounds = CleanableBounds(
            log.log_start_offset, log.high_watermark, damage[0].offset if damage else None
        )
        self.clean_offset = usable_clean_offset(log.cleaner.clean_offset, bounds)
        sealed = log.cleaner.sealed(self.clean_offset)
        described = [each for each, _ in sealed]
        self.segments = cleanable_segments(described, bounds, config, now_ms=now_ms)
        self.by_base = {segment.base_offset: segment for _, segment in sealed}
        self.urgency = urgency(self.segments, self.clean_offset, config, now_ms=now_ms)
        """0 if the cleaning can wait, above 1 if it is overdue."""
        self.dirty_ratio = dirty_ratio(self.segments, self.clean_offset)


@final
class CleanerRun:
    """One cleaning of one log.

    Call `run` in another thread until `is_done`. Whenever a rewrite is `ready`, swap it. Stop when
    the run is not `is_current` any more, and call `abandon`.
    """

    def __init__(
        self,
        log: CleanableLog,
        owner: SegmentHeader,
        disk: Disk,
        *,
        config: CompactionConfig,
        memory_bytes: int,
        now_ms: int,
    ) -> None:
        """Clean the cleanable segments, of which there is at least one; `owner` names the log.

        Raises:
            OSError: The disk failed.
        """
        self._log = log
        self._owner = owner
        self._disk = disk
        self._config = config
        self._now_ms = now_ms
        self._memory_bytes = memory_bytes
        self._generation = log.cleaner.generation
        to_clean = self._to_clean = LogToClean(log, config, now_ms=now_ms)
        self._dirty = [
            each for each in to_clean.segments if each.end_offset > to_clean.clean_offset
        ]
        assert self._dirty, "there is something to clean"
        first = self._to_clean.by_base[self._dirty[0].base_offset]
        self._start = OffsetPosition(first.base_offset, SEGMENT_HEADER_SIZE)
        if self._to_clean.clean_offset > first.base_offset:
            self._start = OffsetPosition(*first.start_of(self._to_clean.clean_offset, log.config))
        self._leader_epochs = LeaderEpochs(log.leader_epochs.entries)
        self._needed = {
            batch.base_offset for state in log.producers.snapshot() for batch in state.window
        }
        self._walk = self._steps()
        self.ready: SegmentRewrite | None = None
        """Rewrite to swap before `run` continues."""
        self._rewrite: SegmentRewrite | None = None
        self.end_offset = self._to_clean.clean_offset
        """Clean offset of the log after the run."""
        self.is_done = False
        self.gap: Gap | None = None
        """The damage that ended the run."""
        self.read_bytes = self.written_bytes = 0

    @property
    def is_current(self) -> bool:
        """Whether only appends and this run have changed the log since the start."""
        return self._log.cleaner.generation == self._generation

    def run(self, cost_bytes: int) -> int:
        """Continue for about `cost_bytes`, and return the actual cost; blocks.

        Raises:
            RewriteFailedError: Something is damaged, or a file would be too long.
            KeyUnavailableError: A batch is sealed, and its key cannot be used here.
            CorruptRecordError: The seal of a batch is broken.
            OSError: The disk is full or failed.
        """
        assert self.ready is None, "swap the rewrite first"
        spent = 0
        for step in self._walk:
            spent += step
            if spent >= cost_bytes or self.ready is not None:
                return spent
        self.is_done = True
        return spent

    def begin_swap(self) -> SegmentSwap | None:
        """Return the swap of the `ready` rewrite, `None` if it is too late.

        Until `end_swap` only appends and flushes may change files of the log.

        Raises:
            OSError: The disk failed.
        """
        assert self.ready is not None
        return self._log.cleaner.begin_swap(self.ready, self._generation, self._log.config)

    def commit(self, swap: SegmentSwap) -> bool:
        """Commit the prepared swap; return whether it is valid. Then call `finish` of the swap.

        Raises:
            OSError: The disk failed.
        """
        return self._log.cleaner.commit(swap, self._generation)

    def end_swap(self, swap: SegmentSwap) -> None:
        """End a finished swap."""
        swap.end()
        self.ready = None

    def end(self) -> None:
        """Move the clean offset of the log."""
        assert self.is_done
        self._log.cleaner.complete(self.end_offset, self._generation)

    def abandon(self) -> None:
        """Stop the run and remove its files."""
        self._walk.close()
        if self._rewrite is not None:
            self._rewrite.abandon()

    def _steps(self) -> Generator[int, None, None]:
        span = self._dirty[-1].end_offset - self._dirty[0].base_offset
        memory_bytes = min(self._memory_bytes, (2 * span + 64) * SLOT_BYTES)
        keys = KeyRange(
            OffsetMap(memory_bytes=memory_bytes), self._to_clean.clean_offset, self._log.cipher
        )
        yield from self._build_offset_map(keys)
        self.end_offset = keys.end_offset
        segment_bytes = self._log.config.roll_bytes
        for group in group_segments(
            self._to_clean.segments, range_end_offset=keys.end_offset, segment_bytes=segment_bytes
        ):
            yield from self._clean(group, keys)

    def _build_offset_map(self, keys: KeyRange) -> Generator[int, None, None]:
        start = self._start
        for each in self._dirty:
            segment = self._to_clean.by_base[each.base_offset]
            with closing(self._map_segment(segment, start, keys)) as steps:
                for step in steps:
                    yield step
                    if keys.is_full:
                        return
            start = OffsetPosition(segment.end_offset, SEGMENT_HEADER_SIZE)

    def _map_segment(
        self, segment: Segment, start: OffsetPosition, keys: KeyRange
    ) -> Generator[int, None, None]:
        file = self._disk.open(segment.path)
        try:
            end = OffsetPosition(segment.end_offset, segment.end_position)
            for found in scan_for_gaps(
                file, start=start, end=end, leader_epochs=self._leader_epochs
            ):
                if isinstance(found, Gap):
                    self.gap = found
                    raise RewriteFailedError(f"{segment.path} is damaged at offset {found.offset}")
                self.read_bytes += found.header.size
                if found.end_offset > keys.end_offset:
                    keys.add(found.header, file.read_at(found.position, found.header.size))
                yield max(found.header.size, BATCH_COST_BYTES)
        finally:
            file.close()

    def _clean(self, group: Sequence[SealedSegment], keys: KeyRange) -> Generator[int, None, None]:
        rewrite = self._rewrite = self._rewrite_of(group, keys)
        while not rewrite.is_done:
            try:
                yield rewrite.run(1)
            except RewriteFailedError:
                self.gap = rewrite.gap
                raise
        self.read_bytes += sum(each.size_bytes for each in group)
        self.written_bytes += rewrite.footer.end_position
        if rewrite.has_changed:
            self.ready = rewrite
            yield 0
        else:
            rewrite.abandon()
        self._rewrite = None

    def _rewrite_of(self, group: Sequence[SealedSegment], keys: KeyRange) -> SegmentRewrite:
        rules = [
            CleaningRules(
                keys,
                drops_tombstones(each, self._config, now_ms=self._now_ms),
                self._needed.__contains__,
            )
            for each in group
        ]
        plan = SegmentRewritePlan(
            SegmentHeader(self._owner.topic_id, self._owner.partition, group[0].base_offset),
            rules,
            self._leader_epochs,
            cleaned_at_ms(group, range_end_offset=keys.end_offset, now_ms=self._now_ms),
            self._log.config.index_interval_bytes,
        )
        segments = [self._to_clean.by_base[each.base_offset] for each in group]
        return SegmentRewrite(segments, plan, self._disk)
