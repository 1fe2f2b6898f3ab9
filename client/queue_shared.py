"""What all queues of one client share: where they are served, and a producer for what they send.

Shell: the producer is opened when the first message is sent, and lives as long as the client.
"""

from typing import final

import trio

from client.cluster import Cluster
from client.config import ProducerConfig
from client.producer import Producer
from client.queue_directory import QueueDirectory


@final
class QueueShared:
    """One for each client."""

    def __init__(self, cluster: Cluster) -> None:
        """Open nothing yet."""
        self.cluster = cluster
        self.directory = QueueDirectory(cluster)
        self._producer: Producer | None = None
        self._opening = trio.Lock()

    async def producer(self) -> Producer:
        """Return the producer of all queues; whoever sends by it waits for the acknowledgement."""
        async with self._opening:
            if self._producer is None:
                producer = Producer(self.cluster, ProducerConfig())
                self._producer = await producer.__aenter__()
        return self._producer
