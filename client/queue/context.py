"""What all queues of one client share: where they are served, and a producer for what they send.

Shell: the producer is opened when the first message is sent, and lives as long as the client.
"""

from typing import Final, final

import trio

from tidelog.client.admin.queue_metadata import QueueDirectory
from tidelog.client.cluster.connection_manager import Cluster
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer import Producer
from tidelog.client.queue.receive.settled_messages import SettledMessages
from tidelog.client.queue.send.ordered_sender import QueueSender

_BATCH_BYTES: Final = 64 << 10
"""Of a batch that is sent. Brokers hand out whole batches, so whoever receives a few messages of a
large one is sent all of it."""


@final
class QueueShared:
    """One for each client."""

    def __init__(self, cluster: Cluster) -> None:
        """Open nothing yet."""
        self.cluster = cluster
        self.directory = QueueDirectory(cluster)
        self.settled = SettledMessages()
        self._senders: dict[str, QueueSender] = {}
        self._producer: Producer | None = None
        self._opening = trio.Lock()

    async def producer(self) -> Producer:
        """Return the producer of all queues; whoever sends by it waits for the acknowledgement."""
        if self._producer is not None:
            return self._producer
        async with self._opening:
            if self._producer is None:
                config = ProducerConfig(batch_bytes_max=_BATCH_BYTES)
                producer = Producer(self.cluster, config)
                self._producer = await producer.__aenter__()
        return self._producer

    def sender(self, name: str) -> QueueSender:
        """Return what sends to a queue whose brokers look at each message."""
        sender = self._senders.get(name)
        if sender is None:
            sender = self._senders[name] = QueueSender(self.cluster, self.directory, name)
        return sender
