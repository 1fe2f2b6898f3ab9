"""What the queues of one client share.

Only `Client` and `Queue` know the context: each part of a queue is given what that part needs.
"""

from typing import final

from tidelog.client.admin.queue_metadata import QueueDirectory
from tidelog.client.cluster.connection_manager import Cluster
from tidelog.client.queue.receive.settled_messages import SettledMessages
from tidelog.client.queue.send.ordered_sender import QueueSender
from tidelog.client.queue.send.shared_producer import SharedProducer


@final
class QueueContext:
    """One for each client."""

    def __init__(self, cluster: Cluster) -> None:
        """Open nothing yet."""
        self.cluster = cluster
        self.directory = QueueDirectory(cluster)
        self.settled = SettledMessages()
        self.producer = SharedProducer(cluster)
        self._ordered_senders: dict[str, QueueSender] = {}

    def ordered_sender(self, name: str) -> QueueSender:
        """Return the sender for a queue whose brokers inspect each message."""
        sender = self._ordered_senders.get(name)
        if sender is None:
            sender = QueueSender(self.cluster, self.directory, name)
            self._ordered_senders[name] = sender
        return sender
