"""Cached metadata of the cluster: brokers, topics, leaders.

Pure: no clock, no I/O. Metadata may be stale; then the broker that receives a request says so.
"""

from collections.abc import Iterable
from typing import final

from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    RetriableError,
    UnknownPartitionError,
    from_wire,
)
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    PartitionMetadata,
    TopicMetadata,
)

PASSING_ERRORS = (RetriableError, ConnectionLostError, UnknownPartitionError)
"""Errors that may pass when a known partition is requested again. Topics gain partitions and lose
none, so a broker that does not know the partition only lags behind."""


@final
class MetadataCache:
    """The latest metadata of each topic that was requested."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self.brokers: dict[int, BrokerAddress] = {}
        self.controller_id: int | None = None
        """The controller's node id; `None` when it is unknown."""
        self.batch_format = 1
        """Highest format version of batches that leaders accept; 1 until a broker tells."""
        self._topics: dict[str, TopicMetadata] = {}
        self._errors: dict[str, BrokerError] = {}

    def apply(self, reply: MetadataReply) -> None:
        """Apply a reply; older leaders of the same topic do not replace newer ones."""
        self.brokers = {broker.node_id: broker for broker in reply.brokers}
        self.controller_id = reply.controller_id
        self.batch_format = reply.batch_format
        for topic in reply.topics:
            error = None if topic.error is None else from_wire(topic.error)
            if isinstance(error, RetriableError):
                continue  # The broker does not know whether the topic exists.
            if error is not None:
                self._topics.pop(topic.name, None)
                self._errors[topic.name] = error
            else:
                self._errors.pop(topic.name, None)
                self._topics[topic.name] = _newest(self._topics.get(topic.name), topic)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop the errors of topics, so that they are fetched again."""
        for topic in topics:
            self._errors.pop(topic, None)

    @property
    def topic_names(self) -> list[str]:
        """Names of the cached topics."""
        return list(self._topics)

    def topic(self, name: str) -> TopicMetadata | None:
        """Return the metadata of a topic, `None` if they are not cached."""
        return self._topics.get(name)

    def error(self, name: str) -> BrokerError | None:
        """Return the error of a topic that was requested."""
        return self._errors.get(name)

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the leader of a partition, `None` when it is unknown."""
        known = self._topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return None
        return known.partitions[partition].leader_id

    def in_sync_replicas_of(self, topic: str, partition: int) -> list[int]:
        """Return the nodes in the ISR, none if that is unknown."""
        known = self._topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return []
        return known.partitions[partition].in_sync_replicas or []

    def first_leaderless(self, topics: Iterable[str]) -> TopicPartition | None:
        """Return a partition of these topics that has no leader, if there is one."""
        for name in topics:
            known = self._topics.get(name)
            for number, partition in enumerate(() if known is None else known.partitions):
                if partition.leader_id is None:
                    return TopicPartition(name, number)
        return None

    def is_leader(self, node_id: int) -> bool:
        """Return whether a node leads any partition of the cached topics."""
        return any(
            partition.leader_id == node_id
            for topic in self._topics.values()
            for partition in topic.partitions
        )


def _newest(known: TopicMetadata | None, received: TopicMetadata) -> TopicMetadata:
    """Return the received metadata, with cached partitions whose leader epoch is newer."""
    if known is None or known.topic_id != received.topic_id:
        return received
    partitions: list[PartitionMetadata] = list(received.partitions)
    for place, (old, new) in enumerate(zip(known.partitions, received.partitions, strict=False)):
        if old.leader_epoch > new.leader_epoch:
            partitions[place] = old
    partitions += known.partitions[len(received.partitions) :]  # A topic never gets fewer.
    return TopicMetadata(received.name, received.topic_id, partitions)


def partition_of(topic: TopicMetadata, partition: int) -> PartitionMetadata:
    """Return one partition of a topic.

    Raises:
        UnknownPartitionError: The topic does not have the partition.
    """
    check_partition(topic.name, partition, len(topic.partitions))
    return topic.partitions[partition]


def check_partition(topic: str, partition: int, partition_count: int) -> None:
    """Check the number of a partition.

    Raises:
        UnknownPartitionError: The topic does not have the partition.
    """
    if not 0 <= partition < partition_count:
        raise UnknownPartitionError(
            f"topic {topic!r} has {partition_count} partitions, 0 to {partition_count - 1};"
            f" there is no {partition}"
        )
