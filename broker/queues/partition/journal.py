"""Journal of one partition of a queue: replayed at load, and appended to by its leader.

Shell without tasks. Decisions of one tick become one batch; their waiters are called when it is
committed.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import trio
from msgspec.structs import replace

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import AckWaiter, Partition
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.segments.batch_scanner import walk_headers
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.queue_layer.state.snapshots import bytes_between_snapshots
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import Columns, encode_batch, header_of
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    LogOfflineError,
    NotLeaderError,
    WireFormatError,
)
from tidelog.wire.messages.produce import AckLevel, Acks
from tidelog.wire.messages.queue_journal import (
    BackgroundWork,
    JournalFrame,
    SnapshotEnded,
    SnapshotStarted,
    decode,
    encode,
)

_STEP_BYTES: Final = 64 << 10
"""Bytes applied in one go, before other tasks run."""
_BATCH_BYTES_MAX: Final = 512 << 10
"""Maximum bytes of frames in one batch, unless a single frame is larger."""
_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
_NOT_LED: Final = "another broker leads the journal of this queue now"


@final
class Journal:
    """The journal as seen by its leader, in one leader epoch.

    Invariant: pending frames are already applied. So if they cannot be appended, the state that
    they were applied to must be dropped.
    """

    def __init__(
        self,
        env: Env,
        group_commit: GroupCommit,
        partition: Partition,
        *,
        on_snapshot: Callable[[int], None] | None = None,
    ) -> None:
        """Write to a partition that is led here.

        Args:
            env: The environment.
            group_commit: Makes appended batches durable.
            partition: The partition of the journal.
            on_snapshot: Called with the offset of a committed snapshot, so that `cut` may delete
                the records before it; `None`: they are deleted at once.
        """
        leader = partition.leader
        assert leader is not None, "`led` returns only partitions that are led here"
        self.partition = partition
        self.epoch = leader.leader_epoch
        self.led_as = leader
        """State of the leader for which it was made; the partition has it while that leads."""
        self._env = env
        self._group_commit = group_commit
        self._pending: list[bytes] = []
        self._on_appended: list[tuple[AckWaiter, int]] = []
        self._on_committed: list[tuple[AckWaiter, int]] = []
        self._bytes_since = 0
        """Bytes since the last snapshot."""
        self._snapshot_after = bytes_between_snapshots(0)
        """Bytes since the last snapshot above which another one is due."""
        self._snapshot_offset: int | None = None
        """Offset of the last whole snapshot, committed or not; `None` if none is known."""
        self._on_snapshot = self.cut if on_snapshot is None else on_snapshot

    @property
    def leader(self) -> PartitionLeader:
        """This broker's state as the leader.

        Raises:
            NotLeaderError: This broker does not lead in this epoch any more.
        """
        if self.partition.leader is not self.led_as:
            raise NotLeaderError(_NOT_LED)
        return self.led_as

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads it, in the same epoch."""
        return self.partition.leader is self.led_as

    def require(self) -> None:
        """Raise, before a decision, unless the journal accepts appends.

        Raises:
            BrokerError: It does not; nothing was changed.
        """
        if self.partition.leader is not self.led_as:
            raise NotLeaderError(_NOT_LED)
        self.led_as.require_enough_in_sync(Acks.ALL)
        if self.partition.is_stalled or self.partition.storage_refusal is not None:
            self.partition.require_disk()

    # -- loading --------------------------------------------------------------------------------

    async def load(self, reader: SliceReader, apply: Callable[[JournalFrame], None]) -> bool:
        """Apply all frames from the last whole snapshot on; return whether there were any.

        Call it when all records that earlier leaders may have acknowledged are committed. Records
        of this epoch are this leader's own, committed or not.

        Raises:
            BrokerError: The journal is not led here any more, or cannot be read.
            WireFormatError: A newer version wrote it, or it is malformed.
        """
        start = self.partition.log.log_start_offset
        last = await self.read_last(reader)
        snapshot_offset = None if last is None else last.snapshot_offset
        if snapshot_offset is not None and snapshot_offset >= start:
            start = self._snapshot_offset = snapshot_offset
        is_first = True

        def take(frame: JournalFrame, size_bytes: int) -> None:
            nonlocal is_first
            begins_snapshot = isinstance(frame.entries[0], SnapshotStarted)
            if is_first and self._snapshot_offset is not None and not begins_snapshot:
                raise WireFormatError(
                    f"its last frame names a snapshot at offset {start}, and there is none"
                )
            is_first = False
            apply(frame)
            self._bytes_since = size_bytes + (0 if begins_snapshot else self._bytes_since)
            if isinstance(frame.entries[0], SnapshotEnded):
                self._snapshot_written(self._bytes_since)

        await self._read(reader, range(start, self.partition.log.log_end_offset), take)
        return not is_first

    async def _read(
        self, reader: SliceReader, offsets: range, take: Callable[[JournalFrame, int], None]
    ) -> None:
        """Pass all frames of at least these offsets to `take`, each with its size in bytes."""
        log = self.partition.log
        log_end, offset = log.log_end_offset, offsets.start
        while offset < offsets.stop:
            _ = self.leader
            part = log.read(offset, max_bytes=_STEP_BYTES, high_watermark=log_end)
            assert part is not None, "the log has a batch below its end"
            if reader.is_cold(part):
                part = await reader.load(self.partition, part)
            else:
                await trio.lowlevel.checkpoint()
            try:
                offset = self._take_part(part, offset, take)
            except OSError as error:
                raise self.partition.reading_failed(error) from error
        _ = self.leader

    def _take_part(
        self, part: LogSlice, offset: int, take: Callable[[JournalFrame, int], None]
    ) -> int:
        """Return the offset behind the part."""
        first = offset
        end = part.position + part.length
        walk = walk_headers(part.file, part.position, start_offset=part.start_offset, end=end)
        for position, header in walk:
            if header.next_offset <= offset:
                continue
            if header.base_offset > offset > first:
                break  # A gap: the next read raises an error for it.
            data = part.file.read_at(position, header.size)
            columns = decode_columns(header, data, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
            for value in (columns.values or [])[max(offset - header.base_offset, 0) :]:
                assert value is not None, "every record of a journal has a frame"
                take(decode(value), len(value))
            offset = header.next_offset
        if offset == first:
            raise LogOfflineError(f"the journal cannot be read at offset {offset}")
        return offset

    # -- writing --------------------------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        """Whether frames are to be appended, or requests wait for that."""
        return bool(self._pending or self._on_appended or self._on_committed)

    def enqueue(self, frame: JournalFrame, background_work: BackgroundWork) -> None:
        """Add a frame for the next `flush`, with the background work that remains after it."""
        told = JournalFrame(frame.now_ms, frame.entries, background_work, self._snapshot_offset)
        self._pending.append(encode(told))

    async def read_last(self, reader: SliceReader) -> JournalFrame | None:
        """Return the last frame, `None` if there is none.

        Raises:
            BrokerError: The journal is not led here any more, or cannot be read.
            WireFormatError: A newer version wrote the frame.
        """
        log = self.partition.log
        if log.log_end_offset == log.log_start_offset:
            return None
        return await self._frame_at(reader, log.log_end_offset - 1)

    async def snapshot_before(self, reader: SliceReader, offset: int) -> int | None:
        """Return the snapshot offset in a frame: reading from there gives all state up to it.

        Raises:
            BrokerError: The journal is not led here any more, or cannot be read.
            WireFormatError: A newer version wrote the frame.
        """
        return (await self._frame_at(reader, offset)).snapshot_offset

    async def _frame_at(self, reader: SliceReader, offset: int) -> JournalFrame:
        frames: list[JournalFrame] = []
        await self._read(reader, range(offset, offset + 1), lambda frame, _: frames.append(frame))
        return frames[0]

    def when_appended(self, waiter: AckWaiter, index: int) -> None:
        """Call `waiter` when all pending frames are in the log here."""
        self._on_appended.append((waiter, index))

    def when_committed(self, waiter: AckWaiter, index: int) -> None:
        """Call `waiter` when all pending frames, and all before them, are committed."""
        self._on_committed.append((waiter, index))

    def flush(self, *, now_ms: int) -> bool:
        """Append the pending frames; return whether enough bytes were written for a snapshot.

        A waiter whose reply is refused decides meanwhile; then the next flush tells it.

        Raises:
            BrokerError: They cannot be written, or only some of them; no waiter was called yet.
        """
        frames = self._pending
        if frames:
            self._pending = []
            self._append(frames, now_ms)
        if self._on_appended:
            appended, self._on_appended = self._on_appended, []
            for waiter, index in appended:
                waiter.acknowledged(index, AckLevel.APPENDED)
        is_committed = True
        if self._on_committed:
            if self.partition.leader is not self.led_as:
                raise NotLeaderError(_NOT_LED)
            committed, self._on_committed = self._on_committed, []
            end = self.partition.log.log_end_offset
            is_committed = end <= self.led_as.acknowledged_offset(Acks.ALL)
            for waiter, index in committed:
                if is_committed:
                    waiter.acknowledged(index, AckLevel.DURABLE)
                else:
                    self.partition.wait_for_ack(Acks.ALL, end, waiter, index=index)
        if not is_committed:
            self._group_commit.appended(self.partition)
        elif frames:
            # Leases that may be lost: a delete that follows soon syncs them, too.
            self._group_commit.appended_lazily(self.partition)
        since = self._bytes_since
        is_early = since > 0 and self._env.buggify("journal snapshot early")
        is_due = is_early or since > self._snapshot_after
        return is_due and not self._pending

    # -- snapshots ------------------------------------------------------------------------------

    def append_snapshot(self, frames: list[JournalFrame], *, now_ms: int) -> None:
        """Append the whole state; the records before it may be deleted once it is committed.

        If it cannot be written, or only a part of it, nothing is lost. Earlier records are kept,
        and another snapshot is due when as many bytes were written again.
        """
        assert not self._pending, "earlier decisions are in the log"
        log = self.partition.log
        start, before = log.log_end_offset, self._snapshot_offset
        *parts, ended = frames
        values = [
            *(encode(replace(part, snapshot_offset=before)) for part in parts),
            encode(replace(ended, snapshot_offset=start)),
        ]
        try:
            self._append(values, now_ms)
        except BrokerError as error:
            if self.is_led:
                self._env.probe(
                    "queue_snapshot_failed",
                    severity="error",
                    queue=self.partition.queue_name,
                    partition=self.partition.number,
                    reason=str(error),
                )
            return
        finally:
            self._snapshot_written(sum(map(len, values)))
        self._snapshot_offset = start
        self.partition.wait_for_ack(Acks.ALL, log.log_end_offset, self, index=start)
        self._group_commit.appended(self.partition)

    def _snapshot_written(self, size_bytes: int) -> None:
        self._bytes_since = 0
        self._snapshot_after = bytes_between_snapshots(size_bytes)

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """See `partition.AckWaiter`: the snapshot that begins at offset `index` is committed."""
        del level
        self._on_snapshot(index)

    def cut(self, snapshot_offset: int) -> None:
        """Delete the records before a committed snapshot; a later log start stays."""
        with suppress(BrokerError):  # An offline log has no readers.
            high_watermark = self.partition.high_watermark
            self.partition.log.delete_records(snapshot_offset, high_watermark=high_watermark)
            self._group_commit.request(self.partition)

    def failed(self, index: int, error: BrokerError) -> None:
        """See `broker.partitions.partition.AckWaiter`: the records before the snapshot are kept."""

    def fail(self, error: BrokerError) -> None:
        """Fail the requests that wait for pending frames."""
        self._pending.clear()
        appended, self._on_appended = self._on_appended, []
        committed, self._on_committed = self._on_committed, []
        for waiter, index in (*appended, *committed):
            waiter.failed(index, error)

    def _append(self, frames: list[bytes], now_ms: int) -> None:
        partition = self.partition
        try:
            for values in (frames,) if len(frames) == 1 else _batches_of(frames):
                self._append_batch(values, now_ms)
        except BrokerError as error:
            partition.note_status(str(error))
            raise partition.passing(error) from error
        partition.progressed()

    def _append_batch(self, values: list[bytes], now_ms: int) -> None:
        if self.partition.leader is not self.led_as:
            raise NotLeaderError(_NOT_LED)
        columns = Columns(len(values), values=values)
        batch = memoryview(encode_batch(columns, first_timestamp_ms=now_ms))
        header = header_of(batch)
        self.partition.log.append(batch, header, leader_epoch=self.epoch, now_ms=now_ms)
        self._bytes_since += sum(map(len, values))


def _batches_of(frames: list[bytes]) -> list[list[bytes]]:
    """Return frames in parts for one batch each."""
    batches: list[list[bytes]] = []
    size = _BATCH_BYTES_MAX
    for frame in frames:
        size += len(frame)
        if size > _BATCH_BYTES_MAX:
            batches.append([])
            size = len(frame)
        batches[-1].append(frame)
    return batches
