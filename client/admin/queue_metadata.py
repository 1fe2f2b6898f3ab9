"""Where queues are served: cached descriptions, until they are invalidated.

Shell: asks any broker; several who ask for one queue at once ask together.
"""

from typing import Final, final

import trio

from tidelog.client.admin.queues import describe_queues
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import TidelogError, UnknownPartitionError
from tidelog.wire.messages.queue_admin import QueueDescription

_FRESH_S: Final = 30.0
"""How long settings are believed before they are asked for again, beside the work."""


@final
class QueueMetadata:
    """The latest description of each queue that was asked for."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Know of no queue."""
        self._cluster = cluster
        self._cached: dict[str, QueueDescription] = {}
        self._cached_at: dict[str, float] = {}
        """When that was asked, in seconds of trio's clock."""
        self._pending: dict[str, trio.Event] = {}

    async def find(self, name: str) -> QueueDescription:
        """Return the description of a queue, fetched first if it is unknown or invalidated.

        Raises:
            UnknownQueueError: There is no such queue.
            TidelogError: Nobody could be asked for `request_timeout`; what went wrong last.
        """
        while (known := self._cached.get(name)) is None:
            pending = self._pending.get(name)
            if pending is not None:
                await self._cluster.tasks.wait(pending)
            else:
                await self._ask(name)
        is_old = trio.current_time() > self._cached_at[name] + _FRESH_S
        if is_old and name not in self._pending:
            # Nobody who serves a queue says that its settings were changed.
            self._cached_at[name] = trio.current_time()
            self._cluster.tasks.start_soon(self._ask_again, known)
        return known

    def invalidate(self, description: QueueDescription) -> None:
        """Drop a description that is stale, unless a newer one is cached already."""
        if self._cached.get(description.name) is description:
            del self._cached[description.name]

    async def _ask_again(self, known: QueueDescription) -> None:
        if known.name in self._pending:
            return  # It was invalidated before this task began.
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
            # A broker that falls silent is given up when it is known to lead nothing any more.
            self._cluster.request_refresh([found.topic])


def leader_of(description: QueueDescription, partition: int) -> int | None:
    """Return who serves a partition of a queue, `None` while nobody does.

    Raises:
        UnknownPartitionError: The queue does not have it.
    """
    if not 0 <= partition < len(description.partitions):
        raise UnknownPartitionError(
            f"queue {description.name!r} has {len(description.partitions)} partitions,"
            f" there is no {partition}"
        )
    return description.partitions[partition].leader_id
