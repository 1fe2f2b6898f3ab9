"""Which replica of a partition a consumer reads.

Pure: no clock, no I/O. Only replicas that are in sync are chosen, as far as the metadata says: the
others may be behind by any amount.
"""

from tidelog.client.cluster.metadata import MetadataCache
from tidelog.client.config import ConsumerConfig
from tidelog.client.topic_partition import TopicPartition


def follower_to_read(
    metadata: MetadataCache, at: TopicPartition, config: ConsumerConfig
) -> int | None:
    """Return the follower to read a partition from, `None` to read it from the leader."""
    if config.read_from == "leader":
        return None
    leader_id = metadata.leader_of(at.topic, at.partition)
    known = [
        node_id
        for node_id in metadata.in_sync_replicas_of(at.topic, at.partition)
        if node_id in metadata.brokers
    ]
    if config.read_from == "nearest":
        known = [
            node_id for node_id in known if metadata.brokers[node_id].rack == config.client_rack
        ]
        if leader_id in known:
            return None
    followers = sorted(node_id for node_id in known if node_id != leader_id)
    # Partitions are spread over the followers; all readers of one share what is in its page cache.
    return followers[at.partition % len(followers)] if followers else None
