"""Traffic of one partition with clients, as cumulative counters (Kafka: BrokerTopicMetrics).

Replication and repairs do not count: only what clients wrote and read. Staging logs and journals of
queues are partitions with counters of their own.
"""

from typing import final

from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.topic_totals import TopicTotals
from tidelog.wire.batch.record_batch import HEADER_SIZE, BatchHeader


@final
class PartitionTraffic:
    """Counters of one replica since this process opened it; none of them ever falls."""

    __slots__ = (
        "_topic",
        "_topics",
        "received_batches",
        "received_bytes",
        "received_records",
        "refused_batches",
        "sent_bytes",
        "sent_replies",
    )

    def __init__(self, topics: ObjectCounts[TopicTotals], topic: str) -> None:
        """Begin at 0; add to the totals of `topic` in `topics`, too."""
        self._topics = topics
        self._topic = topic
        self.received_bytes = 0
        """Bytes of appended batches, as they are stored."""
        self.received_records = 0
        """Appended records."""
        self.received_batches = 0
        """Appended batches; a duplicate is none."""
        self.refused_batches = 0
        """Batches of producers that the partition did not append, because of an error."""
        self.sent_bytes = 0
        """Bytes of batches in replies to consumers and to receives of queues."""
        self.sent_replies = 0
        """Such replies with at least one batch of the partition."""

    def received(self, header: BatchHeader) -> None:
        """Count an appended batch."""
        size, record_count = HEADER_SIZE + header.payload_length, header.record_count
        self.received_bytes += size
        self.received_records += record_count
        self.received_batches += 1
        topic = self._topics.of(self._topic)
        topic.received_bytes += size
        topic.received_records += record_count
        topic.received_batches += 1

    def refused(self) -> None:
        """Count a batch that was not appended."""
        self.refused_batches += 1
        self._topics.of(self._topic).refused_batches += 1

    def sent(self, length: int) -> None:
        """Count `length` bytes of batches in a reply."""
        self.sent_bytes += length
        self.sent_replies += 1
        self._topics.of(self._topic).sent_bytes += length
