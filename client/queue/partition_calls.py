"""Asking whoever serves the partitions of a queue, again while that may help.

Shell: without tasks.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar, final

from msgspec.structs import replace

from tidelog.client.admin.queue_metadata import QueueMetadata, leader_of
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.durations import seconds_of
from tidelog.wire.errors import (
    ConnectionLostError,
    ErrorDetail,
    NotLeaderError,
    RetriableError,
    UnknownQueueError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.queue_admin import QueueDescription
from tidelog.wire.messages.queues import (
    CountMessagesRequest,
    PurgeRequest,
    QueueCounts,
    QueuePartitionDone,
    QueueSeekRequest,
    RedriveRequest,
)
from tidelog.wire.messages.redrives import DescribeRedriveRequest, RedriveDescription
from tidelog.wire.protocol import api
from tidelog.wire.protocol.rpc import RpcConnection

Result = TypeVar("Result", bound="PartitionResult")
Answer = TypeVar("Answer")


class PartitionResult(Protocol):
    """What a broker says of one partition."""

    @property
    def partition(self) -> int:
        """Its number."""
        ...

    @property
    def error(self) -> ErrorDetail | None:
        """Why nothing else is said."""
        ...


Ask = Callable[[RpcConnection, QueueDescription, list[int]], Awaitable[Sequence[Result]]]
"""Asks one broker once about partitions that it serves."""


@final
class PartitionCalls:
    """Asks about the partitions of one queue."""

    def __init__(self, cluster: ClusterClient, queue_metadata: QueueMetadata, name: str) -> None:
        """Ask about the queue `name`."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self._name = name

    async def describe(self) -> QueueDescription:
        """Return what is known of the queue.

        Raises:
            UnknownQueueError: There is no such queue.
        """
        return await self._queue_metadata.find(self._name)

    async def visibility_timeout(self) -> float:
        """Return for how many seconds nobody else gets what is received, as the queue says.

        Raises:
            UnknownQueueError: There is no such queue.
        """
        return seconds_of((await self.describe()).config["visibility_timeout_ms"])

    async def counts(self) -> list[QueueCounts]:
        """Count the messages of every partition."""

        async def ask(
            connection: RpcConnection, queue: QueueDescription, partitions: list[int]
        ) -> Sequence[QueueCounts]:
            request = CountMessagesRequest(queue.queue_id, partitions)
            reply = await self._cluster.call_once(connection, api.COUNT_MESSAGES, request)
            return reply.counts

        return await self.call_all(ask, is_repeatable=True)

    async def purge(self) -> list[QueuePartitionDone]:
        """Do away with all messages there are when their brokers hear of it."""

        async def ask(
            connection: RpcConnection, queue: QueueDescription, partitions: list[int]
        ) -> Sequence[QueuePartitionDone]:
            request = PurgeRequest(queue.queue_id, partitions)
            return (await self._cluster.call_once(connection, api.PURGE, request)).results

        return await self.call_all(ask, is_repeatable=True)

    async def seek(self, offsets: Sequence[int]) -> list[QueuePartitionDone]:
        """Hand out again everything from these offsets on, one for each partition."""

        async def ask(
            connection: RpcConnection, queue: QueueDescription, partitions: list[int]
        ) -> Sequence[QueuePartitionDone]:
            done: list[QueuePartitionDone] = []
            for partition in partitions:
                request = QueueSeekRequest(queue.queue_id, partition, offsets[partition])
                done += (await self._cluster.call_once(connection, api.QUEUE_SEEK, request)).results
            return done

        return await self.call_all(ask, is_repeatable=True)

    async def redrive(self, wanted: RedriveRequest) -> list[QueuePartitionDone]:
        """Bring dead letters back, or stop doing so; id and partitions are filled in here."""

        async def ask(
            connection: RpcConnection, queue: QueueDescription, partitions: list[int]
        ) -> Sequence[QueuePartitionDone]:
            request = replace(wanted, queue_id=queue.queue_id, partitions=partitions)
            return (await self._cluster.call_once(connection, api.REDRIVE, request)).results

        return await self.call_all(ask, is_repeatable=True)

    async def redrives(self) -> tuple[list[RedriveDescription], int]:
        """Return how far redrives are, and the time at a broker that said so."""
        now_ms = 0

        async def ask(
            connection: RpcConnection, queue: QueueDescription, partitions: list[int]
        ) -> Sequence[RedriveDescription]:
            nonlocal now_ms
            request = DescribeRedriveRequest(queue.queue_id, partitions)
            reply = await self._cluster.call_once(connection, api.DESCRIBE_REDRIVE, request)
            now_ms = reply.now_ms
            return reply.redrives

        return await self.call_all(ask, is_repeatable=True), now_ms

    async def call_all(self, ask: Ask[Result], *, is_repeatable: bool) -> list[Result]:
        """Return what brokers say of every partition, in order.

        Raises:
            UnknownQueueError: There is no such queue.
            BrokerError: A partition could not be asked, or nothing could be done to it.
            ConnectionLostError: It may or may not be done.
        """
        found: dict[int, Result] = {}

        async def attempt() -> list[Result]:
            queue = await self.describe()
            try:
                for node_id, partitions in _by_leader(queue, found).items():
                    connection = await self._cluster.connection_to(node_id)
                    for result in await ask(connection, queue, partitions):
                        if result.error is not None:
                            raise from_wire(result.error)
                        found[result.partition] = result
            except (RetriableError, ConnectionLostError, UnknownQueueError):
                self._queue_metadata.invalidate(queue)
                raise
            if len(found) != len(queue.partitions):
                raise WireFormatError(f"nothing was said of some partitions of {queue.name!r}")
            return [found[number] for number in sorted(found)]

        return await self.retry_if_recreated(attempt, is_repeatable=is_repeatable)

    async def retry_if_recreated(
        self, attempt: Callable[[], Awaitable[Answer]], *, is_repeatable: bool
    ) -> Answer:
        """Return what `attempt` returns; repeat it while that may help, also with a new queue."""
        before = await self.describe()
        try:
            return await self._cluster.retry(attempt, is_repeatable=is_repeatable)
        except UnknownQueueError:
            # There is another one of this name, or none.
            if (await self.describe()).queue_id == before.queue_id:
                raise
            return await self._cluster.retry(attempt, is_repeatable=is_repeatable)


def _by_leader(queue: QueueDescription, known: dict[int, Result]) -> dict[int, list[int]]:
    """Return the partitions that are not known yet, by the node to ask.

    Raises:
        NotLeaderError: One of them is served by nobody now.
    """
    by_leader: dict[int, list[int]] = {}
    for number in range(len(queue.partitions)):
        if number not in known:
            leader_id = leader_of(queue, number)
            if leader_id is None:
                raise NotLeaderError(f"nobody serves partition {number} of {queue.name!r} now")
            by_leader.setdefault(leader_id, []).append(number)
    return by_leader
