"""What a client knows of the cluster: brokers, topics, leaders.

Pure: no clock, no I/O. Knowledge may be stale; the broker that is asked says so.
"""

from collections.abc import Iterable
from typing import final

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
"""What may be otherwise when a partition that the metadata have is asked for again. Topics get
partitions and lose none, so a broker that says there is none has not heard of it yet."""


@final
class MetadataCache:
    """The latest metadata of each topic that was asked for."""

    def __init__(self) -> None:
        """Know nothing."""
        self.brokers: dict[int, BrokerAddress] = {}
        self.controller_id: int | None = None
        """The node that decides for the cluster; `None` when it is not known."""
        self._topics: dict[str, TopicMetadata] = {}
        self._errors: dict[str, BrokerError] = {}

    def apply(self, reply: MetadataReply) -> None:
        """Take over an answer; older leaders of the same topic do not replace newer ones."""
        self.brokers = {broker.node_id: broker for broker in reply.brokers}
        self.controller_id = reply.controller_id
        for topic in reply.topics:
            error = None if topic.error is None else from_wire(topic.error)
            if isinstance(error, RetriableError):
                continue  # Whoever was asked does not know whether it is there.
            if error is not None:
                self._topics.pop(topic.name, None)
                self._errors[topic.name] = error
            else:
                self._errors.pop(topic.name, None)
                self._topics[topic.name] = _newest(self._topics.get(topic.name), topic)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget errors about topics, so that they count as not asked for."""
        for topic in topics:
            self._errors.pop(topic, None)

    @property
    def topic_names(self) -> list[str]:
        """The topics that are known."""
        return list(self._topics)

    def topic(self, name: str) -> TopicMetadata | None:
        """Return what is known of a topic, `None` when it is not known."""
        return self._topics.get(name)

    def error(self, name: str) -> BrokerError | None:
        """Return why a topic that was asked for is not there."""
        return self._errors.get(name)

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the node that leads a partition, `None` when none is known."""
        known = self._topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return None
        return known.partitions[partition].leader_id

    def in_sync_replicas_of(self, topic: str, partition: int) -> list[int]:
        """Return the nodes that have what is committed, none if that is not known."""
        known = self._topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return []
        return known.partitions[partition].in_sync_replicas or []

    def is_leader(self, node_id: int) -> bool:
        """Return whether a node leads any partition of the topics that are known."""
        return any(
            partition.leader_id == node_id
            for topic in self._topics.values()
            for partition in topic.partitions
        )


def _newest(known: TopicMetadata | None, received: TopicMetadata) -> TopicMetadata:
    """Return the received metadata, with leaders and partitions that are known to be newer."""
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
        UnknownPartitionError: The topic does not have it.
    """
    check_partition(topic.name, partition, len(topic.partitions))
    return topic.partitions[partition]


def check_partition(topic: str, partition: int, partition_count: int) -> None:
    """Check the number of a partition.

    Raises:
        UnknownPartitionError: The topic does not have it.
    """
    if not 0 <= partition < partition_count:
        raise UnknownPartitionError(
            f"topic {topic!r} has {partition_count} partitions, 0 to {partition_count - 1};"
            f" there is no {partition}"
        )
