"""The producer that all queues of one client share.

Shell: opened when the first message is sent; it lives as long as the client.
"""

from typing import Final, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer import Producer

_BATCH_BYTES: Final = 64 << 10
"""Largest batch. Brokers deliver whole batches, so a receive of a few messages fetches one."""


@final
class SharedProducer:
    """Opens one producer for any number of queues."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Open nothing yet."""
        self._cluster = cluster
        self._producer: Producer | None = None
        self._opening = trio.Lock()

    async def get(self) -> Producer:
        """Return the producer, after opening it the first time."""
        if self._producer is not None:
            return self._producer
        async with self._opening:
            if self._producer is None:
                config = ProducerConfig(batch_size=_BATCH_BYTES)
                producer = Producer(self._cluster, config)
                self._producer = await producer.__aenter__()
        return self._producer
