"""Cache of queue descriptions, with the leaders of their partitions.

Shell: fetches from any broker; concurrent lookups of one queue share a request.
"""

from typing import Final, final

import trio

from tidelog.client.admin.queues import describe_queues
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import TidelogError, UnknownPartitionError, WireFormatError
from tidelog.wire.messages.queue_admin import QueueDescription

_FRESH_S: Final = 30.0
"""Age in seconds after which a description is fetched again in the background."""


@final
class QueueMetadata:
    """The latest description of each queue that was looked up."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Create an empty cache."""
        self._cluster = cluster
        self._now = cluster.counters.now
        self._cached: dict[str, QueueDescription] = {}
        self._cached_at: dict[str, float] = {}
        """Times of the requests, in seconds of trio's clock."""
        self._pending: dict[str, trio.Event] = {}

    async def find(self, name: str) -> QueueDescription:
        """Return the description of a queue; fetch it if it is unknown or invalidated.

        Raises:
            UnknownQueueError: There is no such queue.
            TidelogError: No broker answered within `request_timeout`; the last error.
        """
        while (known := self.known(name)) is None:
            pending = self._pending.get(name)
            if pending is not None:
                await self._cluster.tasks.wait(pending)
            else:
                await self._ask(name)
        return known

    def known(self, name: str) -> QueueDescription | None:
        """Return the description of a queue without a wait; `None` if it must be fetched."""
        known = self._cached.get(name)
        if known is not None:
            now = self._now()
            if now > self._cached_at[name] + _FRESH_S and name not in self._pending:
                # Brokers that serve a queue do not announce changes of its settings.
                self._cached_at[name] = now
                self._cluster.tasks.start_soon(self._ask_again, known)
        return known

    def invalidate(self, description: QueueDescription) -> None:
        """Drop a stale description, unless a newer one is cached already."""
        if self._cached.get(description.name) is description:
            del self._cached[description.name]

    async def _ask_again(self, known: QueueDescription) -> None:
        if known.name in self._pending:
            return  # Another task fetches it already.
        try:
            await self._ask(known.name)
        except TidelogError:
            self.invalidate(known)

    async def _ask(self, name: str) -> None:
        done = self._pending[name] = trio.Event()
        try:
            (found,) = await describe_queues(self._cluster, [name])
        finally:
            del self._pending[name]
            done.set()
        self._cached[name] = found
        self._cached_at[name] = trio.current_time()
        if self._cluster.metadata.topic(found.topic) is None:
            # The pool drops a silent broker only if metadata say that it leads nothing.
            self._cluster.request_refresh([found.topic])


def setting_of(description: QueueDescription, name: str) -> str:
    """Return the value of a setting of a queue.

    Raises:
        WireFormatError: The description does not have the setting.
    """
    value = description.config.get(name)
    if value is None:
        raise WireFormatError(f"the description of queue {description.name!r} has no {name}")
    return value


def leader_of(description: QueueDescription, partition: int) -> int | None:
    """Return the leader of a partition of a queue, `None` while it has none.

    Raises:
        UnknownPartitionError: The queue does not have the partition.
    """
    if not 0 <= partition < len(description.partitions):
        raise UnknownPartitionError(
            f"queue {description.name!r} has {len(description.partitions)} partitions,"
            f" there is no {partition}"
        )
    return description.partitions[partition].leader_id
