"""What the actions of one client share between requests: caches, nothing that may not be lost.

Pure: it only remembers.
"""

from typing import final

from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue


@final
class FrontState:
    """Queue objects of one client, by name: concurrent calls of one object are gathered."""

    def __init__(self, client: Client) -> None:
        """Use queues of `client`."""
        self._client = client
        self._queues: dict[str, Queue] = {}

    def queue(self, name: str) -> Queue:
        """Return the one object for a queue."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = self._client.queue(name)
        return queue

    def forget(self, name: str) -> None:
        """Forget a queue that was deleted."""
        self._queues.pop(name, None)
