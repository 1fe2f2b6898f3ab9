"""Deduplication windows of queues, for the partitions that this broker leads.

Shell: reads a window from the log when it is needed after a change of leaders, and drops it after a
long time without sends. A leader has the whole log of earlier leaders, so it finds all messages
that they appended, acknowledged or not.
"""

from typing import Final, NamedTuple, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.source_records import Reading, SourceRecords
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.queues.queue_view import QueueView
from tidelog.broker.queues.supervisor import surviving
from tidelog.coordinator.metadata.broker_delta import Key
from tidelog.logstore.segments.batch_scanner import walk_headers
from tidelog.logstore.segments.log_slice import LogSlice, corrupt
from tidelog.queue_layer.commands.deduplication import DeduplicationWindow
from tidelog.queue_layer.commands.fifo_send import SentMessage, SentMessages, messages_of
from tidelog.queue_layer.token_bucket import TokenBucket
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import BatchHeader, Columns, parse_header
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import BrokerError, InvalidBatchError, NotLeaderError, WireFormatError

_STEP_BYTES: Final = 1 << 20
_STEPS_AT_ONCE: Final = 4
"""Number of steps before other tasks run."""
_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
_IDLE_S: Final = 600.0
"""Time in seconds without sends after which a window is dropped; the log still has it."""


class StoredSend(NamedTuple):
    """A batch that a send has appended."""

    base_offset: int
    time_ms: int
    messages: list[SentMessage]


@final
class PartitionWindow:
    """State of the sends to one partition of a queue, in one leader epoch."""

    def __init__(self, view: QueueView, number: int, partition: Partition) -> None:
        leader = partition.leader
        assert leader is not None, "the window belongs to a partition that is led here"
        self.view = view
        self.number = number
        self.partition = partition
        self.leader_epoch = leader.leader_epoch
        self.messages: SentMessages | None = None
        """`None` while they are not loaded, and for a queue that is not FIFO."""
        self.quota: TokenBucket | None = None
        self.loading: trio.Event | None = None
        """Set while a task loads the window."""
        self.purge_epoch: int | None = None
        """Leader epoch of the journal, led here, in which all purges up to now are known."""
        self.purge_count = 0
        """Number of purges decided here since."""
        self.purged_below = 0
        self.used_at = 0.0
        """Seconds of trio's clock."""

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads the partition, in the same epoch."""
        leader = self.partition.leader
        return leader is not None and leader.leader_epoch == self.leader_epoch

    @property
    def idle_s(self) -> float:
        """Time in seconds without sends after which the window, by then outdated, is dropped."""
        return max(_IDLE_S, 2 * self.view.window_ms / 1000)

    def forget_below(self, offset: int) -> None:
        """Apply a purge: forget messages below an offset."""
        self.purged_below = max(self.purged_below, offset)
        if self.messages is not None:
            self.messages.forget_below(self.purged_below)


@final
class DeduplicationWindows:
    """The windows of all partitions that get sends here."""

    def __init__(self, server: QueueServer) -> None:
        """Load windows through `server`."""
        self._server = server
        self._windows: dict[Key, PartitionWindow] = {}
        """The most recently used window is the last one."""
        self._is_sweeping = False

    def find(self, view: QueueView, number: int, partition: Partition) -> PartitionWindow:
        """Return the window of a partition, which is led here."""
        key = (view.queue_id, number)
        window = self._windows.pop(key, None)
        if window is None or window.partition is not partition or not window.is_led:
            window = PartitionWindow(view, number, partition)
        elif not view.is_same(window.view):
            if not view.has_same_window(window.view):
                window.messages = None
            window.view = view
        self._windows[key] = window
        window.used_at = trio.current_time()
        rate = view.messages_per_s
        if rate is None:
            window.quota = None
        elif window.quota is None or window.quota.tokens_per_s != rate:
            window.quota = TokenBucket(rate, now_ms=self._server.env.clock.now_ms())
        if not self._is_sweeping:
            self._is_sweeping = True
            self._server.nursery.start_soon(self._sweep)
        return window

    def is_current(self, window: PartitionWindow) -> bool:
        """Return whether every purge is known, so that a loaded window is complete."""
        if not window.view.is_fifo:
            return True
        journal = self._server.partitions.replica(window.view.queue_id, window.number)
        epoch = None if journal is None or journal.leader is None else journal.leader.leader_epoch
        return epoch is not None and epoch == window.purge_epoch

    async def load(self, window: PartitionWindow) -> None:
        """Make a window current, by reading the log and asking the broker that serves the queue.

        Raises:
            NotLeaderError: This broker does not lead the partition any more.
            BrokerError: Reading failed, or no broker serves the queue.
        """
        while window.loading is not None:
            await window.loading.wait()
        window.loading = trio.Event()
        try:
            await self._learn_of_purges(window)
            if window.messages is None:
                await self._read(window)
        finally:
            window.loading.set()
            window.loading = None

    async def stored(self, window: PartitionWindow, base_offset: int) -> StoredSend:
        """Return a batch that an earlier send appended; may load the window for it.

        Raises:
            BrokerError: Reading failed.
        """
        if window.view.is_fifo and window.messages is None:
            await self.load(window)
        return await self._records(window).drive(self._stored(window, base_offset))

    def invalidate(self, queue_id: bytes, number: int) -> None:
        """Mark a window as outdated by a purge: sends wait until the purge is committed."""
        window = self._windows.get((queue_id, number))
        if window is not None:
            window.purge_epoch = None
            window.purge_count += 1

    async def _learn_of_purges(self, window: PartitionWindow) -> None:
        """Determine the offset below which purged messages are ignored."""
        count = window.purge_count
        below, epoch = await self._server.purged_below(window.view.queue_id, window.number)
        window.forget_below(below)
        if count == window.purge_count:
            window.purge_epoch = epoch

    async def _read(self, window: PartitionWindow) -> None:
        view = window.view
        kept = DeduplicationWindow(view.window_ms)
        messages = SentMessages(view.queue_id, view.deduplication_rule, kept)
        messages.forget_below(window.purged_below)
        await self._records(window).drive(self._feed(window, messages))
        if view is window.view:
            messages.forget_below(window.purged_below)
            window.messages = messages

    def _records(self, window: PartitionWindow) -> SourceRecords:
        server, view = self._server, window.view
        return SourceRecords(server.partitions, server.reader, view.source_id, number=window.number)

    def _stored(self, window: PartitionWindow, base_offset: int) -> Reading[StoredSend]:
        partition = window.partition
        try:
            part = yield from self._read_on(window, base_offset, max_bytes=1)
            part.begin_at(base_offset)  # The index leads to a batch before it.
            data = part.read()
        except OSError as error:
            raise partition.reading_failed(error) from error
        header = parse_header(data)
        if header is None or header.base_offset != base_offset:
            raise corrupt(base_offset, base_offset + 1)
        header, batch = partition.opened(header, data[: header.size])
        messages = messages_of(columns_of(header, batch))
        return StoredSend(base_offset, header.max_timestamp_ms, messages)

    def _read_on(
        self, window: PartitionWindow, offset: int, *, max_bytes: int
    ) -> Reading[LogSlice]:
        """Read batches, committed or not.

        Raises:
            NotLeaderError: This broker does not lead the partition any more.
        """
        if not window.is_led:
            raise NotLeaderError("another broker leads the partition now")
        log = window.partition.log
        part = log.read(offset, max_bytes=max_bytes, high_watermark=log.log_end_offset)
        assert part is not None, "the log has a batch below its end"
        if self._server.reader.is_cold(part):
            part = yield part
            assert part is not None, "a yielded slice is sent back loaded"
        return part

    def _feed(self, window: PartitionWindow, messages: SentMessages) -> Reading[None]:
        """Pass all messages within the window to `messages`, in the order of the log."""
        partition = window.partition
        since_ms = self._server.env.clock.now_ms() - window.view.window_ms
        try:
            at = partition.log.offset_before(since_ms)
            steps = 0
            while True:
                at = max(at, partition.log.log_start_offset)
                if window.is_led and at >= partition.log.log_end_offset:
                    return
                steps += 1
                if steps % _STEPS_AT_ONCE == 0:
                    yield None
                    continue
                part = yield from self._read_on(window, at, max_bytes=_STEP_BYTES)
                before, at = at, _tell(messages, partition, part, at=at)
                if at == before:
                    raise corrupt(at, at + 1)
        except OSError as error:
            raise partition.reading_failed(error) from error
        except BrokerError as error:
            partition.note_status(str(error))
            raise partition.passing(error) from error

    async def _sweep(self) -> None:
        """Drop windows without sends, until none is left."""
        try:
            while self._windows:
                await trio.sleep(_IDLE_S)
                with surviving("dropping idle deduplication windows"):
                    self._forget_idle()
        finally:
            self._is_sweeping = False

    def _forget_idle(self) -> None:
        now = trio.current_time()
        for key, window in list(self._windows.items()):
            is_idle = window.loading is None and window.used_at + window.idle_s <= now
            if is_idle or not window.is_led:
                del self._windows[key]


def _tell(messages: SentMessages, partition: Partition, part: LogSlice, *, at: int) -> int:
    """Pass the batches of a slice from an offset on; return their end offset."""
    walk = walk_headers(
        part.file,
        part.position,
        start_offset=part.start_offset,
        end=part.position + part.length,
    )
    for position, header in walk:
        if header.next_offset <= at:
            continue
        if header.has_queue_fields and header.has_append_time:
            stored = part.file.read_at(position, header.size)
            header, data = partition.opened(header, stored)  # noqa: PLW2901
            columns = columns_of(header, data)
            deltas = columns.offset_deltas or range(columns.record_count)
            offsets = [header.base_offset + delta for delta in deltas]
            messages.read(messages_of(columns), offsets, time_ms=header.max_timestamp_ms)
        at = header.next_offset
    return at


def columns_of(header: BatchHeader, data: BytesLike) -> Columns:
    """Return the records of a batch that was sent.

    Raises:
        InvalidBatchError: The batch cannot be decoded.
    """
    try:
        return decode_columns(header, data, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    except WireFormatError as error:
        raise InvalidBatchError(str(error)) from error
