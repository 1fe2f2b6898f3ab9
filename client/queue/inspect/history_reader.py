"""Reader of the history of messages of a queue.

Shell: fetches from the leaders of the journals, one partition after the other.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeVar, final

from tidelog.client.admin.queue_metadata import QueueMetadata, leader_of
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.list_offsets import check_caught_up, checked_offsets
from tidelog.client.consumer.fetch.fetched_batches import FetchedBatches
from tidelog.client.queue.inspect.history import HistoryEvent, QueueHistory
from tidelog.client.queue.inspect.message_history import MessageHistory
from tidelog.client.queue.partition_calls import PartitionCalls
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    ConnectionLostError,
    LeaderNotAvailableError,
    NotLeaderError,
    OffsetOutOfRangeError,
    RetriableError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery
from tidelog.wire.messages.queue_admin import QueueDescription
from tidelog.wire.messages.queue_journal import JournalFrame, decode
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

_FETCH_BYTES: Final = 1 << 20
_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
Result = TypeVar("Result")


class HistoryQuery(NamedTuple):
    """Selection of events."""

    since_ms: int
    """Start in Unix milliseconds."""
    max_events: int
    """Maximum events; the newest are kept."""
    message: tuple[int, int] | None = None
    """Partition and offset of the only message; `None` for all."""


@final
class HistoryReader:
    """Reads the history of one queue."""

    def __init__(
        self, cluster: ClusterClient, queue_metadata: QueueMetadata, calls: PartitionCalls
    ) -> None:
        """Use the queue of `calls`."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self._calls = calls

    async def read(self, order: HistoryQuery) -> list[HistoryEvent]:
        """Return events by time.

        Raises:
            UnknownQueueError: There is no such queue.
            TidelogError: A partition did not answer within `request_timeout`.
        """
        numbers: Iterable[int] = range(len((await self._calls.describe()).partitions))
        if order.message is not None:
            numbers = [number for number in numbers if number == order.message[0]]
        found: list[HistoryEvent] = []
        for number in numbers:
            found += await self._of_partition(number, order)
        found.sort(key=lambda event: event.time_ms)
        return found[-order.max_events :]

    async def _of_partition(self, number: int, order: HistoryQuery) -> Iterable[HistoryEvent]:
        newest: deque[HistoryEvent] = deque(maxlen=order.max_events)
        start, first, end = await self._places(number, order.since_ms)
        if first is None:
            return newest
        history: QueueHistory | MessageHistory = QueueHistory(number)
        if order.message is not None:
            history = MessageHistory(*order.message)
        at_first = await self._frames(number, first)
        before = at_first[0][1].snapshot_offset
        offset = start if before is None else max(before, start)
        while offset < end:
            frames = await self._frames(number, offset)
            for offset, frame in frames:
                if offset < first:
                    history.pass_over(frame)
                else:
                    newest.extend(history.events(offset, frame))
            offset += 1
        return newest

    async def _places(self, number: int, since_ms: int) -> tuple[int, int | None, int]:
        """Return the start of a journal, the first offset of a time (if any), and the end."""

        async def ask(
            connection: RpcConnection, queue: QueueDescription
        ) -> tuple[int, int | None, int]:
            query = OffsetQuery(queue.queue_id, number, at_timestamp_ms=since_ms)
            request = ListOffsetsRequest([query], from_journals=True)
            reply = await self._cluster.call_once(connection, api.LIST_OFFSETS, request)
            (journal,) = checked_offsets(reply, 1)
            check_caught_up(journal)
            return journal.log_start_offset, journal.offset, journal.high_watermark

        return await self._at_leader(number, ask)

    async def _frames(self, number: int, offset: int) -> list[tuple[int, JournalFrame]]:
        """Return frames from an offset on, or from the first remaining one.

        There is at least one: a leader without frames does not know the high watermark yet.
        """

        async def ask(
            connection: RpcConnection, queue: QueueDescription
        ) -> list[tuple[int, JournalFrame]] | WireFormatError:
            wanted = PartitionFetch(queue.queue_id, number, offset, _FETCH_BYTES)
            request = FetchRequest(0, 1, _FETCH_BYTES, [wanted], from_journals=True)
            at = TopicPartition(queue.name, number)

            reply, content = await self._cluster.call_and_take(
                connection, api.FETCH, request, take=lambda reply, view: (reply, bytes(view))
            )
            (result,) = reply.results
            if result.error is not None:
                raise from_wire(result.error)
            try:
                frames = _decoded(at, content, offset)
            except WireFormatError as error:
                return error  # A frame of a newer broker; it would be the same again.
            if frames:
                return frames
            raise LeaderNotAvailableError(
                f"the leader of partition {number} of the journal does not know the high watermark"
                " yet"
            )

        try:
            found = await self._at_leader(number, ask)
        except OffsetOutOfRangeError as error:
            if error.log_start_offset is None or error.log_start_offset <= offset:
                raise
            return await self._frames(number, error.log_start_offset)
        if isinstance(found, WireFormatError):
            raise found
        return found

    async def _at_leader(
        self,
        number: int,
        ask: Callable[[RpcConnection, QueueDescription], Awaitable[Result]],
    ) -> Result:
        async def attempt() -> Result:
            queue = await self._calls.describe()
            try:
                node_id = leader_of(queue, number)
                if node_id is None:
                    raise NotLeaderError(f"partition {number} of {queue.name!r} has no leader")
                return await ask(await self._cluster.connection_to(node_id), queue)
            except (RetriableError, ConnectionLostError):
                self._queue_metadata.invalidate(queue)
                raise

        return await self._calls.retry_if_recreated(attempt, is_repeatable=True)


def _decoded(at: TopicPartition, content: bytes, offset: int) -> list[tuple[int, JournalFrame]]:
    chunk = FetchedBatches(at, content, 0)
    frames: list[tuple[int, JournalFrame]] = []
    while batch := chunk.take(offset, uncompressed_bytes_max=_UNCOMPRESSED_BYTES_MAX):
        for place, value in zip(batch.offsets, batch.values, strict=True):
            frames.append((place, decode(value or b"")))
    return frames
