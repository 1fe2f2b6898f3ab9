"""State that the actions of one client share between requests: caches only.

Shell: it asks brokers about queues.
"""

from typing import Final, final

from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue
from tidelog.gateway.sqs.known_queues import KnownQueues, QueueFacts
from tidelog.gateway.sqs.strict_pauses import StrictPauses

_QUEUES_MAX: Final = 20_000
"""Queue objects that are kept, beyond which all are made again."""


@final
class FrontState:
    """Queue objects and descriptions of one client, by name.

    Concurrent calls of one queue object are gathered.
    """

    def __init__(self, client: Client) -> None:
        """Use queues of `client`."""
        self._client = client
        self._queues: dict[str, Queue] = {}
        self._known = KnownQueues(client)
        self.pauses = StrictPauses()

    def queue(self, name: str) -> Queue:
        """Return the one object for a queue."""
        queue = self._queues.get(name)
        if queue is None:
            if len(self._queues) >= _QUEUES_MAX:
                self._queues.clear()
            queue = self._queues[name] = self._client.queue(name)
        return queue

    def known(self, name: str) -> QueueFacts | None:
        """Return what is known about a queue, if it is fresh: the quick way of `facts`."""
        return self._known.known(name)

    async def facts(self, name: str) -> QueueFacts:
        """Return what is known about a queue; see `KnownQueues.facts`.

        Raises:
            SqsError: There is no such queue.
        """
        return await self._known.facts(name)

    async def describe(self, name: str, *, with_counts: bool = False) -> DescribedQueue:
        """Ask a broker about a queue; see `KnownQueues.describe`.

        Raises:
            UnknownQueueError: It does not exist.
            TidelogError: No broker answers.
        """
        (queue,) = await self._known.describe([name], with_counts=with_counts)
        return queue

    def change(self, name: str) -> None:
        """Ask again about a queue that was changed."""
        self._known.forget(name)

    def forget(self, name: str) -> None:
        """Forget a queue that was deleted."""
        self._queues.pop(name, None)
        self._known.forget(name)
