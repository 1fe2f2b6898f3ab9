"""Handlers for whole queues: count, purge, seek, cancel and redrive."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from operator import gt
from typing import Final, final

import trio

from tidelog.broker.queues.handlers.deduplication_windows import DeduplicationWindows
from tidelog.broker.queues.partition.fresh_letters import LETTERS_S
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.requests.commit_wait import DECISION_TIMEOUT_S, deciding_until
from tidelog.queue_layer.commands.redrive import RedriveCommand
from tidelog.queue_layer.commands.remove import removal_end
from tidelog.queue_layer.state.redrive_state import Redrive
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    InvalidRequestError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownQueueError,
)
from tidelog.wire.messages.queues import (
    CancelScheduledReply,
    CancelScheduledRequest,
    CountMessagesReply,
    CountMessagesRequest,
    GetPurgeOffsetReply,
    GetPurgeOffsetRequest,
    PurgeRequest,
    QueueCounts,
    QueueDoneReply,
    QueuePartitionDone,
    QueueSeekRequest,
    RedriveRequest,
    Refused,
)
from tidelog.wire.messages.redrives import (
    DescribeRedriveReply,
    DescribeRedriveRequest,
    RedriveDescription,
    RedriveStatus,
)

_REDRIVE_ID_BYTES_MAX: Final = 64
_NOTE_MAX: Final = 1024
"""Maximum characters: the journal and its snapshots keep the notes of ten redrives."""


@final
class WholeQueueHandler:
    """Administers the messages of queues that this broker serves.

    On cancellation, a change may be carried out or not.
    """

    def __init__(
        self,
        server: QueueServer,
        windows: DeduplicationWindows,
        *,
        require_sources: Callable[[], Awaitable[None]],
    ) -> None:
        """Administer the queues of `server`.

        Args:
            server: Queues that this broker serves.
            windows: Deduplication windows, which a purge ends.
            require_sources: Checks that all brokers know redrives to sources only.
        """
        self._server = server
        self._windows = windows
        self._require_sources = require_sources

    async def count(self, request: CountMessagesRequest) -> CountMessagesReply:
        """Count messages by state."""
        self._server.check_partition_count(request.queue_id, request.partitions)
        deadline = trio.current_time() + DECISION_TIMEOUT_S
        counts: list[QueueCounts] = []
        waits_until = 0.0
        """When all partitions together have waited long enough for dead letters."""
        for number in request.partitions:
            try:
                end = self._server.drained_end(request.queue_id, number)
                if end is not None:
                    counts.append(QueueCounts(number, 0, 0, 0, 0, end))
                    continue
                was_here = self._server.loaded(request.queue_id, number) is not None
                hosted = self._server.find(request.queue_id, number)
                with deciding_until(deadline):
                    await hosted.catch_up()
                if hosted.letters.are_on_the_way:
                    waits_until = waits_until or trio.current_time() + LETTERS_S
                    with trio.move_on_at(waits_until):
                        await hosted.wait_moved()
                    with deciding_until(deadline):
                        await hosted.catch_up()
                counts.append(await self._count(hosted))
                if not was_here:
                    self._server.unload_soon(hosted)
            except UnknownQueueError:
                raise
            except BrokerError as error:
                counts.append(QueueCounts(number, 0, 0, 0, 0, 0, error=error.to_wire()))
        return CountMessagesReply(counts)

    async def _count(self, hosted: HostedPartition) -> QueueCounts:
        core = hosted.core
        counts = core.state.counts()
        low_water_mark, oldest_offset = core.state.low_water_mark, core.state.oldest_offset
        oldest_ms: int | None = None
        if any(counts):
            source = hosted.records.partition()
            with suppress(CorruptRecordError):  # The time of a damaged record is unknown.
                oldest_ms = await self._server.search.time_at(source, oldest_offset)
        return QueueCounts(
            hosted.number,
            *counts,
            low_water_mark,
            oldest_ms,
            oldest_age_ms=None if oldest_ms is None else max(0, hosted.now_ms() - oldest_ms),
        )

    async def purge(self, request: PurgeRequest) -> QueueDoneReply:
        """Delete all current messages, and none that is sent later."""
        self._server.check_partition_count(request.queue_id, request.partitions)
        ends: dict[HostedPartition, int] = {}
        for number in request.partitions:
            with suppress(BrokerError):  # `_do` reports the error.
                hosted = self._server.find(request.queue_id, number)
                ends[hosted] = hosted.records.partition().high_watermark

        async def purge(hosted: HostedPartition) -> int:
            if hosted not in ends:
                raise LeaderNotAvailableError(
                    "the messages of the partition were not known; nothing was purged, ask again"
                )
            core, count = hosted.core, 0
            # A new leader may not know the high watermark of the last one yet.
            end = max(ends[hosted], hosted.loaded_to)
            while True:
                stop = removal_end(core.state, core.state.low_water_mark, end)
                count += hosted.decide(core.purge(stop, now_ms=hosted.now_ms()))
                self._windows.invalidate(*hosted.key)
                if stop >= end:
                    return count
                await trio.lowlevel.checkpoint()
                hosted.require()

        return await self._do(request.queue_id, request.partitions, purge)

    async def get_purge_offset(self, request: GetPurgeOffsetRequest) -> GetPurgeOffsetReply:
        """Return the last purge offset: deduplication ignores the messages below it."""
        hosted = self._server.find(request.queue_id, request.partition)
        below, _ = await self._server.purged_below(*hosted.key)
        return GetPurgeOffsetReply(below)

    async def cancel(self, request: CancelScheduledRequest) -> CancelScheduledReply:
        """Delete messages that are still delayed.

        Raises:
            BrokerError: This broker does not serve the partition, or the outcome is unknown.
        """
        ends = [first + count for first, count in request.runs]
        starts = [first for first, _ in request.runs]
        if any(count < 1 for _, count in request.runs) or any(map(gt, [0, *ends], starts)):
            raise InvalidRequestError("runs must be of at least one message, and in order")
        hosted = self._server.find(request.queue_id, request.partition)
        with deciding_until(trio.current_time() + DECISION_TIMEOUT_S):
            await hosted.catch_up()
        refused: list[Refused] = []
        rest = request.runs
        while rest:
            done = hosted.decide(hosted.core.cancel(rest, now_ms=hosted.now_ms()))
            refused, rest = refused + done.refused, done.rest
            if rest:
                await trio.lowlevel.checkpoint()
                await hosted.catch_up()
        await hosted.wait_committed()
        return CancelScheduledReply(refused)

    async def seek(self, request: QueueSeekRequest) -> QueueDoneReply:
        """Make all messages from an offset on visible again."""

        async def seek(hosted: HostedPartition) -> int:
            source = hosted.records.partition()
            start, end = source.log.log_start_offset, source.high_watermark
            if not start <= request.offset <= end:
                raise OffsetOutOfRangeError(
                    f"offset {request.offset} is not among those of the messages, {start} to"
                    f" {end} (exclusive)",
                    log_start_offset=start,
                    log_end_offset=end,
                )
            hosted.seek(request.offset)
            await hosted.catch_up()
            return sum(hosted.core.state.counts())

        return await self._do(request.queue_id, [request.partition], seek)

    async def redrive(self, request: RedriveRequest) -> QueueDoneReply:
        """Start a redrive of dead letters, or cancel it."""
        command = RedriveCommand(
            destination=request.destination,
            messages_per_s=request.messages_per_s,
            origin_queue=request.origin_queue,
            redrive_id=request.redrive_id,
            note=request.note,
            only_sources=request.only_sources,
        )
        if len(command.redrive_id) > _REDRIVE_ID_BYTES_MAX or len(command.note) > _NOTE_MAX:
            raise InvalidRequestError(
                f"a redrive id has at most {_REDRIVE_ID_BYTES_MAX} bytes, and its note at most"
                f" {_NOTE_MAX} characters"
            )
        if command.messages_per_s is not None and command.messages_per_s < 1:
            raise InvalidRequestError("messages_per_s must be at least 1, or not given")
        if command.only_sources:
            await self._require_sources()

        async def redrive(hosted: HostedPartition) -> int:
            core, now_ms = hosted.core, hosted.now_ms()
            if not request.is_cancelled:
                return hosted.decide(core.start_redrive(command, now_ms=now_ms))
            latest = core.state.redrive
            if latest is None or command.redrive_id not in (b"", latest.redrive_id):
                return 0
            hosted.decide(core.end_redrive(RedriveStatus.CANCELLED, now_ms=now_ms))
            return latest.taken

        return await self._do(request.queue_id, request.partitions, redrive)

    async def describe_redrive(self, request: DescribeRedriveRequest) -> DescribeRedriveReply:
        """Return the progress of redrives."""
        self._server.check_partition_count(request.queue_id, request.partitions)
        deadline = trio.current_time() + DECISION_TIMEOUT_S
        latest: list[RedriveDescription] = []
        earlier: list[RedriveDescription] = []
        for number in request.partitions:
            try:
                hosted = self._server.find(request.queue_id, number)
                with deciding_until(deadline):
                    await hosted.wait_loaded()
                redrives = hosted.core.state.redrives
                latest.append(_described(hosted, redrives.latest))
                if request.with_earlier:
                    earlier.extend(_described(hosted, each) for each in redrives.earlier)
            except UnknownQueueError:
                raise
            except BrokerError as error:
                latest.append(RedriveDescription(number, error=error.to_wire()))
        return DescribeRedriveReply(latest, self._server.env.clock.now_ms(), earlier)

    async def _do(
        self,
        queue_id: bytes,
        numbers: list[int],
        do: Callable[[HostedPartition], Awaitable[int]],
    ) -> QueueDoneReply:
        """Run an action at partitions, each of which succeeds or fails on its own.

        If the messages of a partition are not all known in time, the action is not run there: its
        result would differ.
        """
        self._server.check_partition_count(queue_id, numbers)
        deadline = trio.current_time() + DECISION_TIMEOUT_S
        results: list[QueuePartitionDone] = []
        for number in numbers:
            try:
                hosted = self._server.find(queue_id, number)
                with deciding_until(deadline):
                    await hosted.catch_up()
                count = await do(hosted)
                await hosted.wait_committed()
                results.append(QueuePartitionDone(number, count))
            except UnknownQueueError:
                raise
            except BrokerError as error:
                results.append(QueuePartitionDone(number, error=error.to_wire()))
        return QueueDoneReply(results)


def _described(hosted: HostedPartition, redrive: Redrive | None) -> RedriveDescription:
    if redrive is None:
        return RedriveDescription(hosted.number)
    return RedriveDescription(
        hosted.number,
        redrive.status,
        redrive.started_ms,
        redrive.ended_ms,
        redrive.to_move,
        redrive.moved,
        hosted.core.state.moves.count_of(redrive.number),
        redrive.left,
        redrive.skipped,
        redrive.failed,
        redrive.destination,
        redrive.messages_per_s,
        redrive.origin_queue,
        redrive.reason,
        number=redrive.number,
        redrive_id=redrive.redrive_id,
        note=redrive.note,
    )
