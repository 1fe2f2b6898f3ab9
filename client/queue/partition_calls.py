"""Requests to the leaders of a queue's partitions, with retries.

Shell: without tasks.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar, final

from msgspec.structs import replace

from tidelog.client.admin.queue_metadata import QueueMetadata, leader_of, setting_of
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.durations import seconds_of
from tidelog.wire.errors import (
    ConnectionLostError,
    ErrorDetail,
    NotLeaderError,
    RetriableError,
    UnknownQueueError,
    UnsupportedVersionError,
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
from tidelog.wire.transport.rpc import RpcConnection

_REDRIVE_ID_VERSION: Final = 2
"""First version of REDRIVE with an id and a restriction to sources."""

Result = TypeVar("Result", bound="PartitionResult")
Answer = TypeVar("Answer")


class PartitionResult(Protocol):
    """Result of one partition."""

    @property
    def partition(self) -> int:
        """Number of the partition."""
        ...

    @property
    def error(self) -> ErrorDetail | None:
        """Error of the partition, if it failed."""
        ...


Ask = Callable[[RpcConnection, QueueDescription, list[int]], Awaitable[Sequence[Result]]]
"""Sends one request to a broker about partitions that it serves."""


@final
class PartitionCalls:
    """Calls for the partitions of one queue."""

    def __init__(self, cluster: ClusterClient, queue_metadata: QueueMetadata, name: str) -> None:
        """Use the queue `name`."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self.name = name
        """Name of the queue."""

    async def describe(self) -> QueueDescription:
        """Return the description of the queue.

        Raises:
            UnknownQueueError: There is no such queue.
        """
        return await self._queue_metadata.find(self.name)

    async def visibility_timeout(self) -> float:
        """Return the visibility timeout of the queue in seconds.

        Raises:
            UnknownQueueError: There is no such queue.
        """
        return seconds_of(setting_of(await self.describe(), "visibility_timeout_ms"))

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
        """Delete all messages that exist when their brokers execute the request."""

        async def ask(
            connection: RpcConnection, queue: QueueDescription, partitions: list[int]
        ) -> Sequence[QueuePartitionDone]:
            request = PurgeRequest(queue.queue_id, partitions)
            return (await self._cluster.call_once(connection, api.PURGE, request)).results

        return await self.call_all(ask, is_repeatable=True)

    async def seek(self, offsets: Sequence[int]) -> list[QueuePartitionDone]:
        """Seek each partition to its offset."""

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
        """Start or cancel a redrive; id and partitions of `wanted` are filled in here.

        Raises:
            UnsupportedVersionError: A broker would skip fields of `wanted`: it would start another
                redrive, or cancel any.
        """
        is_of_id = bool(wanted.redrive_id) or wanted.only_sources

        async def ask(
            connection: RpcConnection, queue: QueueDescription, partitions: list[int]
        ) -> Sequence[QueuePartitionDone]:
            if is_of_id and connection.version_of(api.REDRIVE) < _REDRIVE_ID_VERSION:
                raise UnsupportedVersionError(
                    f"the broker at {connection.peer} would skip the id or the restriction of a"
                    " redrive; upgrade it"
                )
            request = replace(wanted, queue_id=queue.queue_id, partitions=partitions)
            return (await self._cluster.call_once(connection, api.REDRIVE, request)).results

        return await self.call_all(ask, is_repeatable=True)

    async def redrives(self, *, with_earlier: bool = False) -> tuple[list[RedriveDescription], int]:
        """Return the progress of redrives, and the time at a broker that answered.

        Args:
            with_earlier: Whether to return all redrives that the partitions remember; else the
                latest one of each.
        """
        now_ms = 0
        earlier: dict[int, list[RedriveDescription]] = {}

        async def ask(
            connection: RpcConnection, queue: QueueDescription, partitions: list[int]
        ) -> Sequence[RedriveDescription]:
            nonlocal now_ms
            request = DescribeRedriveRequest(queue.queue_id, partitions, with_earlier)
            reply = await self._cluster.call_once(connection, api.DESCRIBE_REDRIVE, request)
            now_ms = reply.now_ms
            for number in partitions:
                earlier[number] = [each for each in reply.earlier if each.partition == number]
            return reply.redrives

        latest = await self.call_all(ask, is_repeatable=True)
        return [*latest, *(each for redrives in earlier.values() for each in redrives)], now_ms

    async def call_all(self, ask: Ask[Result], *, is_repeatable: bool) -> list[Result]:
        """Return the results of every partition, in order.

        Raises:
            UnknownQueueError: There is no such queue.
            BrokerError: A partition refused, or could not be reached.
            ConnectionLostError: The request may or may not have been executed.
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
                raise WireFormatError(f"a reply lacks some partitions of {queue.name!r}")
            return [found[number] for number in sorted(found)]

        return await self.retry_if_recreated(attempt, is_repeatable=is_repeatable)

    async def retry_if_recreated(
        self, attempt: Callable[[], Awaitable[Answer]], *, is_repeatable: bool
    ) -> Answer:
        """Return the result of `attempt`; repeat it while that may help, also with a new queue."""
        before = await self.describe()
        try:
            return await self._cluster.retry(attempt, is_repeatable=is_repeatable)
        except UnknownQueueError:
            # The queue was deleted, and perhaps created again.
            if (await self.describe()).queue_id == before.queue_id:
                raise
            return await self._cluster.retry(attempt, is_repeatable=is_repeatable)


def _by_leader(queue: QueueDescription, known: dict[int, Result]) -> dict[int, list[int]]:
    """Return the partitions without a result, by their leader.

    Raises:
        NotLeaderError: A partition has no leader now.
    """
    by_leader: dict[int, list[int]] = {}
    for number in range(len(queue.partitions)):
        if number not in known:
            leader_id = leader_of(queue, number)
            if leader_id is None:
                raise NotLeaderError(f"partition {number} of {queue.name!r} has no leader now")
            by_leader.setdefault(leader_id, []).append(number)
    return by_leader
