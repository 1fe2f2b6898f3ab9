"""Objects that all queues of one client share.

Only `Client` and `Queue` know the context: each part of a queue gets only what it needs.
"""

from typing import final

from tidelog.client.admin.queue_metadata import QueueMetadata
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.queue.receive.settled_messages import SettledMessages
from tidelog.client.queue.send.ordered_sender import OrderedSender
from tidelog.client.queue.send.publisher import SharedProducer


@final
class QueueContext:
    """Shared objects, once per client."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Start without open connections or producers."""
        self.cluster = cluster
        self.queue_metadata = QueueMetadata(cluster)
        self.settled = SettledMessages()
        self.producer = SharedProducer(cluster)
        self._ordered_senders: dict[str, OrderedSender] = {}

    def ordered_sender(self, name: str) -> OrderedSender:
        """Return the sender of a queue whose brokers inspect each message."""
        sender = self._ordered_senders.get(name)
        if sender is None:
            sender = OrderedSender(self.cluster, self.queue_metadata, name)
            self._ordered_senders[name] = sender
        return sender
