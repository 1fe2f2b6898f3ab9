"""Handler of FETCH: available batches go out without a copy, and a fetch waits for missing ones."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, final

import msgspec
import trio

from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.request_usage import usage_of
from tidelog.broker.requests.response import ResponseHandle
from tidelog.broker.requests.steps import Steps, finish
from tidelog.isr.divergence import find_truncation
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.env.env import BytesLike, Env
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    KeyUnavailableError,
    LogOfflineError,
    LogTruncatedError,
    NotLeaderError,
    OverloadedError,
)
from tidelog.wire.messages.fetch import FetchReply, FetchRequest, PartitionFetch, PartitionFetched
from tidelog.wire.transport.write_buffer import FileRegion

_MAX_WAIT_MS_MAX = 10 * 60 * 1000
_PARTITIONS_AT_ONCE = 128
"""Partitions that are looked up before other tasks run."""
_BOTH_FORMATS_VERSION = 5
"""First version of the API whose clients read batches of format version 2."""
_OPENED_BYTES_MAX = 4 << 20
"""Maximum bytes in one reply, and queued for one connection, that are decrypted or rewritten in
memory: of encrypted topics, and for clients that read format version 1 only."""
_COPIED_BYTES_MAX = 256 << 10
"""Maximum bytes copied for a connection that has unsent bytes: a client that does not read costs no
memory."""


_UNREADABLE = (CorruptRecordError, KeyUnavailableError, LogOfflineError, OverloadedError)
"""Errors of one partition; the reply has the others."""


class ReadablePartitions(Protocol):
    """Finds partitions that consumers may read."""

    def find(self, topic_id: bytes, number: int) -> Partition:
        """Return a partition that this broker leads.

        Raises:
            BrokerError: This broker does not lead the partition, or consumers may not read it.
        """
        ...

    def find_journal(self, queue_id: bytes, number: int) -> Partition:
        """Return the journal of a partition of a queue that this broker leads.

        Raises:
            BrokerError: This broker does not lead it, or the id is not that of a queue.
        """
        ...

    def readable(self, topic_id: bytes, number: int) -> Partition:
        """Return a partition that this broker leads, or follows if followers may serve reads.

        Raises:
            BrokerError: As for `find`.
        """
        ...


class FoundBatches(msgspec.Struct):
    """Batches that one partition has for a fetch."""

    part: LogSlice | None
    high_watermark: int
    log_start_offset: int
    error: BrokerError | None = None
    partition: Partition | None = None
    is_cut: bool = False
    """Whether the partition has more than `part`, beyond a limit or in the next segment."""
    is_older: bool = False
    """Whether the client reads batches of format version 1 only."""
    opened: BytesLike | None = None
    """The batches of `part` as the client gets them, if they were opened in a task."""

    @property
    def is_opened(self) -> bool:
        """Whether the batches are decrypted, or rewritten for an older client."""
        return self.is_older or (self.partition is not None and self.partition.cipher is not None)

    @property
    def has_grown(self) -> bool:
        """Whether consumers can read more of the partition than when this was found."""
        partition = self.partition
        return partition is not None and partition.high_watermark > self.high_watermark


class Room(msgspec.Struct):
    """Room for batches in a reply."""

    remaining: int | None = None
    """Bytes; `None` for the limit of the request."""
    opened: int = _OPENED_BYTES_MAX
    """Bytes that are decrypted or rewritten in memory."""
    is_older: bool = False
    """Whether the client reads batches of format version 1 only."""
    is_first: bool = True
    """Whether there is no batch yet: the first one is sent whole."""


@final
class DelayedFetch:
    """A fetch that waits for more data.

    Invariant: the fetch waits at every requested partition, in `Purgatory` and at its connection,
    or it has ended.
    """

    def __init__(
        self,
        handler: "FetchHandler",
        request: FetchRequest,
        response: ResponseHandle,
        *,
        deadline: float,
    ) -> None:
        """Wait for more data than the partitions have now; `deadline` is in seconds of trio."""
        self._handler = handler
        self._request = request
        self._response = response
        self._deadline = deadline
        self._partitions: list[Partition] = []
        self._has_ended = False

    def park(self, partitions: list[Partition]) -> None:
        """Begin to wait at these partitions."""
        self._partitions = partitions
        self._response.context.delayed[self] = None
        self._response.parked()
        for partition in partitions:
            partition.wait_for_data(self)

    def wake(self) -> None:
        """See `broker.partitions.partition.DataWaiter`."""
        if not self._has_ended:
            self._retry(is_last=False)

    def expire(self) -> None:
        """Answer with the batches that are available."""
        self._retry(is_last=True)

    def close(self) -> None:
        """Answer with the batches that are available: no more will arrive."""
        self._retry(is_last=True)

    def drop(self) -> None:
        """See `broker.requests.response.DelayedRequest`."""
        self._end()
        self._response.nothing()

    def _retry(self, *, is_last: bool) -> None:
        if len(self._request.partitions) > _PARTITIONS_AT_ONCE:
            self._end()
            deadline = -math.inf if is_last else self._deadline
            self._handler.retry_in_task(self._request, self._response, deadline)
            return
        with self._response:
            room = room_of(self._response)
            found = self._handler.collect(self._request, self._request.partitions, room)
            if self._has_ended:
                return  # Collecting found a failed disk, and woke this very fetch.
            if is_last or self._handler.is_enough(found, self._request):
                self._end()
                self._handler.answer(found, self._response)
            else:
                self.park(self._partitions)
            return
        self._end()  # A defect raised an error, which was sent as the reply.

    def _end(self) -> None:
        self._has_ended = True
        for partition in self._partitions:
            partition.stop_waiting(self)
        self._response.context.delayed.pop(self, None)
        self._handler.purgatory.done(self)


@final
class FetchHandler:
    """Reads batches from partitions."""

    def __init__(
        self,
        env: Env,
        partitions: ReadablePartitions,
        purgatory: Purgatory,
        *,
        nursery: trio.Nursery,
        fetch_max_bytes: int,
    ) -> None:
        """Read from `partitions`; cold reads run in `nursery`."""
        self._env = env
        self._partitions = partitions
        self.purgatory = purgatory
        self._nursery = nursery
        self._fetch_max_bytes = fetch_max_bytes
        self._reader = SliceReader(env)

    def handle(self, request: FetchRequest, response: ResponseHandle) -> Steps | None:
        """Reply now if enough data is available, else wait for more.

        Return the work as steps if there are many partitions.
        """
        max_wait_ms = min(request.max_wait_ms, _MAX_WAIT_MS_MAX)
        is_impatient = max_wait_ms <= 0 or self._env.buggify("poll without waiting")
        deadline = -math.inf if is_impatient else response.arrived_at + max_wait_ms / 1000
        if len(request.partitions) > _PARTITIONS_AT_ONCE:
            return self._answer_in_steps(request, response, deadline)
        found = self.collect(request, request.partitions, room_of(response))
        self._answer_or_wait(found, request, response, deadline=deadline)
        return None

    def retry_in_task(
        self, request: FetchRequest, response: ResponseHandle, deadline: float
    ) -> None:
        """Look again at many partitions, from a task; wait again until `deadline` if needed."""
        self._nursery.start_soon(self._retry, request, response, deadline)

    async def _retry(
        self, request: FetchRequest, response: ResponseHandle, deadline: float
    ) -> None:
        with response:
            await finish(self._answer_in_steps(request, response, deadline))

    def _answer_in_steps(
        self, request: FetchRequest, response: ResponseHandle, deadline: float
    ) -> Steps:
        found: list[FoundBatches] = []
        room = room_of(response)
        for start in range(0, len(request.partitions), _PARTITIONS_AT_ONCE):
            if start:
                yield
            part = request.partitions[start : start + _PARTITIONS_AT_ONCE]
            found += self.collect(request, part, room)
        wait = self._answer_or_wait(found, request, response, deadline=deadline)
        if wait is not None and any(item.has_grown for item in found):
            wait.wake()

    def _answer_or_wait(
        self,
        found: list[FoundBatches],
        request: FetchRequest,
        response: ResponseHandle,
        *,
        deadline: float,
    ) -> DelayedFetch | None:
        """Answer, or return the wait for more data."""
        if self.is_enough(found, request) or deadline <= response.context.clock():
            self.answer(found, response)
            return None
        wait = DelayedFetch(self, request, response, deadline=deadline)
        wait.park([item.partition for item in found if item.partition is not None])
        self.purgatory.add(wait, deadline)
        return wait

    def collect(
        self, request: FetchRequest, partitions: Sequence[PartitionFetch], room: Room
    ) -> list[FoundBatches]:
        """Look up the batches of these partitions; once the reply is full, only if there are more.

        `room` is the room that the partitions before them have left.
        """
        found: list[FoundBatches] = []
        remaining, is_first = room.remaining, room.is_first
        if remaining is None:
            limit = min(request.max_bytes, self._fetch_max_bytes)
            remaining = 1 if self._env.buggify("fetch cut short") else limit
        for wanted in partitions:
            is_full = remaining <= 0 and not is_first
            max_bytes = min(wanted.max_bytes, remaining)
            item = self._read_partition(
                wanted, max_bytes=max_bytes, is_full=is_full, in_journal=request.from_journals
            )
            if item.part is not None:
                item.is_older = room.is_older
                if item.is_opened:
                    self._limit_opened(item, wanted, room, is_first=is_first)
            if item.part is not None:
                if is_first or item.part.length <= remaining:
                    remaining -= item.part.length
                    is_first = False
                else:
                    item.part, item.is_cut = None, True
                    remaining = 0
            found.append(item)
        room.remaining, room.is_first = remaining, is_first
        return found

    def _limit_opened(
        self, item: FoundBatches, wanted: PartitionFetch, room: Room, *, is_first: bool
    ) -> None:
        """Shorten a part that is opened to its share of a reply, at least one batch."""
        assert item.part is not None
        assert item.partition is not None
        if item.part.length > room.opened:
            if room.opened <= 0 and not is_first:
                item.part, item.is_cut = None, True
                return
            item.part = item.partition.log.read(
                wanted.fetch_offset,
                max_bytes=max(room.opened, 1),
                high_watermark=item.high_watermark,
            )
            assert item.part is not None, "the log has a batch there"
            item.is_cut = True
        room.opened -= item.part.length

    @staticmethod
    def is_enough(found: list[FoundBatches], request: FetchRequest) -> bool:
        """Return whether to answer before the wait time is over.

        The answer is also yes if waiting would not make the reply larger.
        """
        total = 0
        for item in found:
            if item.error is not None or item.is_cut:
                return True
            if item.part is not None:
                total += item.part.length
        return not found or total >= max(request.min_bytes, 1)

    def answer(self, found: list[FoundBatches], response: ResponseHandle) -> None:
        """Send the batches; a task first reads those that are not in the page cache."""
        is_slow = self._reader.is_slow
        slow = [
            item
            for item in found
            if item.part is not None
            and is_slow(item.part, is_opened=item.is_opened, is_older=item.is_older)
        ]
        if slow:
            self._nursery.start_soon(self._load_and_reply, found, slow, response)
        else:
            self._reply(found, response)

    def _read_partition(
        self, wanted: PartitionFetch, *, max_bytes: int, is_full: bool, in_journal: bool = False
    ) -> FoundBatches:
        partition, partitions = None, self._partitions
        try:
            if in_journal:
                partition = partitions.find_journal(wanted.topic_id, wanted.partition)
            elif wanted.from_follower:
                partition = partitions.readable(wanted.topic_id, wanted.partition)
            else:
                partition = partitions.find(wanted.topic_id, wanted.partition)
            high_watermark = partition.high_watermark
            if wanted.fetch_offset > high_watermark and partition.leader is None:
                # The offset exists as far as this follower knows: another broker may know a higher
                # high watermark.
                return FoundBatches(
                    None, high_watermark, partition.log.log_start_offset, None, partition
                )
            if wanted.last_fetched_epoch is not None:
                _require_read(partition, wanted.fetch_offset, wanted.last_fetched_epoch)
            if is_full and partition.log.log_start_offset <= wanted.fetch_offset <= high_watermark:
                is_cut = wanted.fetch_offset < high_watermark
                start = partition.log.log_start_offset
                return FoundBatches(None, high_watermark, start, None, partition, is_cut)
            part = partition.log.read(
                wanted.fetch_offset,
                max_bytes=max(max_bytes, 0),
                high_watermark=high_watermark,
            )
            is_cut = part is not None and part.has_more
            log_start_offset = partition.log.log_start_offset
            return FoundBatches(part, high_watermark, log_start_offset, None, partition, is_cut)
        except BrokerError as error:
            if partition is None:
                return FoundBatches(None, 0, 0, error)
            partition.note_status(str(error))
            log_start_offset = partition.log.log_start_offset
            told = partition.passing(error)
            return FoundBatches(None, partition.high_watermark, log_start_offset, told, partition)

    async def _load_and_reply(
        self, found: list[FoundBatches], cold: list[FoundBatches], response: ResponseHandle
    ) -> None:
        with response:
            buffer, opened_bytes = response.context.write_buffer, 0
            for item in cold:
                if item.part is not None:
                    taken_bytes = opened_bytes
                    await self._load(
                        item,
                        item.part,
                        lambda: _OPENED_BYTES_MAX - buffer.pending_bytes - taken_bytes,  # noqa: B023
                    )
                    opened_bytes += 0 if item.opened is None else len(item.opened)
            self._reply(found, response)

    async def _load(self, item: FoundBatches, part: LogSlice, room: Callable[[], int]) -> None:
        assert item.partition is not None
        try:
            if self._reader.is_cold(part):
                part = item.part = await self._reader.load(item.partition, part)
            if item.is_opened:
                item.opened = await self._reader.open(
                    item.partition, part, room, is_older=item.is_older
                )
                if item.opened is None:
                    item.part = None  # The client has not read what it has asked for.
        except _UNREADABLE as error:
            item.part, item.error = None, item.partition.passing(error)

    def _reply(self, found: list[FoundBatches], response: ResponseHandle) -> None:
        room_bytes = _COPIED_BYTES_MAX - response.context.write_buffer.pending_bytes
        pieces: list[BytesLike | FileRegion] = []
        results: list[PartitionFetched] = []
        usage = None if response.context.audit.usage is None else usage_of(response.context)
        for item in found:
            length = 0
            if item.part is not None:
                piece = self._piece(item, item.part, room_bytes)
                if isinstance(piece, FileRegion):
                    length = piece.length
                elif piece is not None:
                    length = len(piece)
                    room_bytes -= length
                if piece is not None:
                    pieces.append(piece)
                if length and item.partition is not None:
                    item.partition.traffic.sent(length)
                    if usage is not None:
                        usage.sent(item.partition.resource, length)
            results.append(
                PartitionFetched(
                    length,
                    item.high_watermark,
                    item.log_start_offset,
                    None if item.error is None else item.error.to_wire(),
                )
            )
        response.reply(FetchReply(results), pieces)

    def _piece(
        self, item: FoundBatches, part: LogSlice, room_bytes: int
    ) -> BytesLike | FileRegion | None:
        """Return the bytes to send for one partition; `None` when they cannot be read now."""
        assert item.partition is not None
        try:
            if not item.is_opened:
                return self._reader.piece(
                    item.partition,
                    part.file,
                    part.position,
                    length=part.length,
                    room_bytes=room_bytes,
                )
            if item.opened is None and room_bytes <= _COPIED_BYTES_MAX - _OPENED_BYTES_MAX:
                return None  # The client has not read what it has asked for.
            if item.opened is None:
                item.opened = self._reader.open_now(
                    item.partition, part, part.length, is_older=item.is_older
                )
        except _UNREADABLE as error:
            item.error = item.partition.passing(error)
            return None
        return item.opened


def room_of(response: ResponseHandle) -> Room:
    """Return the room in the reply to a request."""
    return Room(is_older=response.version < _BOTH_FORMATS_VERSION)


def _require_read(partition: Partition, fetch_offset: int, last_fetched_epoch: int) -> None:
    """Raise if the log does not have the last batch that the client has read.

    Raises:
        LogTruncatedError: The batch is lost.
        NotLeaderError: A later leader wrote the batch.
    """
    log, leader = partition.log, partition.leader
    epochs = log.leader_epochs
    if last_fetched_epoch == epochs.latest and fetch_offset <= log.log_end_offset:
        return  # Nearly every fetch.
    if leader is not None and last_fetched_epoch > leader.leader_epoch:
        raise NotLeaderError(
            f"the client has read records of leader epoch {last_fetched_epoch}, this broker leads"
            f" partition {partition.number} in epoch {leader.leader_epoch}; refresh the metadata"
        )
    found = find_truncation(
        partition.shape,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
    )
    if found is None:
        return
    details = {"truncated_to": found.end_offset, "fetch_offset": fetch_offset}
    if found.epoch is not None:
        details["leader_epoch"] = found.epoch
    raise LogTruncatedError(
        f"offsets {found.end_offset} to {fetch_offset} (exclusive) of partition {partition.number}"
        f" are lost: the client has read them from leader epoch {last_fetched_epoch}, and the log"
        f" does not have its records; seek to {found.end_offset} to read the present records",
        **details,
    )
