"""Counts of the traffic of one topic with clients (Kafka: BrokerTopicMetrics)."""

from typing import final


@final
class TopicTotals:
    """Totals of the replicas of a topic that this broker leads or has led."""

    __slots__ = (
        "received_batches",
        "received_bytes",
        "received_records",
        "refused_batches",
        "sent_bytes",
    )

    def __init__(self) -> None:
        """Begin at 0."""
        self.received_batches = 0
        self.received_bytes = 0
        self.received_records = 0
        self.refused_batches = 0
        self.sent_bytes = 0

    @property
    def total(self) -> int:
        """See `ObjectCounts`."""
        return self.received_batches + self.refused_batches + self.sent_bytes
