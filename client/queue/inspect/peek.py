"""Browser of the messages of a queue, without receiving them.

Shell: sends requests to the brokers that serve the partitions, one partition after the other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, final

import msgspec

from tidelog.client.admin.queue_metadata import QueueMetadata, leader_of
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.reply_shapes import excess
from tidelog.client.consumer.fetch.fetched_batches import FetchedBatches
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.queue.partition_calls import PartitionCalls
from tidelog.client.queue.receive.message import Origin, origin_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    ConnectionLostError,
    NotLeaderError,
    RetriableError,
)
from tidelog.wire.messages.queues import MessageState, PeekedRun, PeekReply, PeekRequest
from tidelog.wire.protocol import api

_PAGE: Final = 1000
_PAGE_BYTES: Final = 4 << 20
_UNCOMPRESSED_BYTES_MAX: Final = 256 << 20


@final
class PeekedMessage(msgspec.Struct, frozen=True):
    """Message with its state."""

    record: Record
    state: MessageState
    receive_count: int
    """Deliveries so far."""
    visible_at_ms: int | None
    """End of its lease or delay: Unix milliseconds by the clock of the broker."""
    holder: str
    """Name of its receiver while it is in flight, else empty."""
    reason: str
    """Reason of its last release or rejection."""

    @property
    def message_id(self) -> str:
        """Id of the message in its topic: partition and offset."""
        return f"{self.record.partition}-{self.record.offset}"

    @property
    def origin(self) -> Origin | None:
        """Source of a dead letter; `None` for other messages."""
        return origin_of(self.record.headers)


class PeekQuery(NamedTuple):
    """Selection of messages."""

    states: Sequence[MessageState]
    """States of messages; empty for all."""
    max_messages: int
    is_wanted: Callable[[PeekedMessage], bool] = lambda _: True


@final
class QueuePeeker:
    """Peeks at the messages of one queue."""

    def __init__(
        self, cluster: ClusterClient, queue_metadata: QueueMetadata, calls: PartitionCalls
    ) -> None:
        """Use the queue of `calls`."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self._calls = calls

    async def peek(self, query: PeekQuery) -> list[PeekedMessage]:
        """Return messages by partition and offset, up to the maximum of the query.

        Raises:
            UnknownQueueError: There is no such queue.
            TidelogError: A partition did not answer within `request_timeout`.
        """
        found: list[PeekedMessage] = []
        queue = await self._calls.describe()
        for number in range(len(queue.partitions)):
            offset: int | None = 0
            while offset is not None and len(found) < query.max_messages:
                room = min(query.max_messages - len(found), _PAGE)
                seen, offset = await self._page(number, offset, query, room=room)
                found += filter(query.is_wanted, seen)
        return found[: query.max_messages]

    async def _page(
        self, partition: int, offset: int, query: PeekQuery, *, room: int
    ) -> tuple[list[PeekedMessage], int | None]:
        """Return some messages of a partition, and the next offset."""

        async def attempt() -> tuple[list[PeekedMessage], int | None]:
            queue = await self._calls.describe()
            at = TopicPartition(queue.topic, partition)
            states = list(map(int, query.states))
            request = PeekRequest(queue.queue_id, partition, states, offset, room, _PAGE_BYTES)

            def take(reply: PeekReply, view: memoryview) -> tuple[list[PeekedMessage], int | None]:
                problem = _problem(reply, offset, room)
                if problem is not None:
                    raise connection.reject(api.PEEK, problem)
                chunk = FetchedBatches(at, bytes(view), 0, topic_id=queue.topic_id)
                return _peeked(chunk, reply.runs), reply.next_offset

            try:
                node_id = leader_of(queue, partition)
                if node_id is None:
                    raise NotLeaderError(f"partition {partition} of {queue.name!r} has no leader")
                connection = await self._cluster.connection_to(node_id)
                return await self._cluster.call_and_take(connection, api.PEEK, request, take=take)
            except (RetriableError, ConnectionLostError):
                self._queue_metadata.invalidate(queue)
                raise

        return await self._calls.retry_if_recreated(attempt, is_repeatable=True)


def _problem(reply: PeekReply, offset: int, room: int) -> str | None:
    """Return in which way a reply is wrong, `None` if it is right."""
    if reply.next_offset is not None and reply.next_offset <= offset:
        return f"offset {reply.next_offset} comes after {offset}"
    if not {run.state for run in reply.runs} <= {int(state) for state in MessageState}:
        return "a state of messages is unknown"
    return excess((run.count for run in reply.runs), room)


def _peeked(chunk: FetchedBatches, runs: Iterable[PeekedRun]) -> list[PeekedMessage]:
    """Return the messages of runs, in the order of their offsets."""
    records: dict[int, Record] = {}
    while batch := chunk.take(0, uncompressed_bytes_max=_UNCOMPRESSED_BYTES_MAX):
        records |= {record.offset: record for record in batch}
    return [
        PeekedMessage(
            records[offset],
            MessageState(run.state),
            run.receive_count,
            run.visible_at_ms or None,
            run.holder,
            run.reason,
        )
        for run in runs
        for offset in range(run.first_offset, run.first_offset + run.count)
        if offset in records
    ]
