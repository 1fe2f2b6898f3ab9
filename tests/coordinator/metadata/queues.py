"""Queues of a cluster's metadata for tests."""

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.commands import CreateQueue, QueueAnswer

KEY = bytes(range(32))


def creation(
    cluster: Cluster,
    name: str,
    topic: str | None = None,
    *,
    fifo: bool = False,
    partitions: int | None = None,
    **overrides: str,
) -> CreateQueue:
    """Return the creation command of a client that knows the current topic."""
    wanted = topic or name
    catalog = cluster.state.catalog
    known = catalog.topic(wanted) if catalog.has_topic(wanted) else None
    return CreateQueue(
        name,
        cluster.draw().to_bytes(16, "big"),
        KEY,
        cluster.draw().to_bytes(16, "big"),
        NOW_MS,
        wanted,
        None if known is None else known.topic_id,
        [] if known is None else [7] * known.partition_count,
        fifo,
        overrides,
        partitions,
    )


def make(cluster: Cluster, command: CreateQueue) -> Topic:
    """Apply a creation, and return the journal."""
    answer = cluster.answer(QueueAnswer, command)
    journal = cluster.state.catalog.topic_by_id(answer.queue_id)
    assert journal is not None
    assert journal.source_id == answer.topic_id
    return journal
