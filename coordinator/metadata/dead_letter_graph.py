"""What follows for queues and staging logs from their topics, and for queues from each other.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Mapping, Sequence

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.topic_config import topic_config
from tidelog.wire.errors import InvalidConfigError, UnknownQueueError

_SHARED_WITH_SOURCE = ("durability", "min_insync_replicas")
"""Settings of a topic that hold for its journals: what they say rests on its records."""
_OF_JOURNALS = {"retention_ms": "unlimited", "segment_bytes": "16MiB"}
"""A journal is cut where a snapshot begins, not by age, and in small pieces."""


def journal_overrides(source_overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings, as those of a topic, of each journal on a topic with these ones."""
    shared = {
        name: source_overrides[name] for name in _SHARED_WITH_SOURCE if name in source_overrides
    }
    return {**_OF_JOURNALS, **shared}


def staging_overrides(source_overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings, as those of a topic, of the staging log of a topic with these ones.

    What is staged goes into the topic later: it must not be larger than the topic takes.
    """
    overrides = journal_overrides(source_overrides)
    if "max_message_bytes" in source_overrides:
        overrides["max_message_bytes"] = source_overrides["max_message_bytes"]
    return overrides


def internal_topic_overrides(
    internal: Topic, source_overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of an internal topic of a topic with these ones."""
    settings = staging_overrides if internal.queue is None else journal_overrides
    return settings(source_overrides)


def check_compaction(topic: str, overrides: Mapping[str, str], *, queues: Sequence[str]) -> None:
    """Check that no message is taken out that some queue of a topic may have leased.

    Raises:
        InvalidConfigError: The topic is, or would be, compacted, and has, or would have, `queues`.
    """
    if queues and topic_config(overrides).compaction is not None:
        raise InvalidConfigError(
            f"topic {topic!r} cannot be compacted and have queues ({', '.join(sorted(queues))}):"
            " messages would go that they have not handed out yet; leave its cleanup_policy at"
            " delete, or have the queues on another topic"
        )


def listed_queues(journals: Iterable[Topic]) -> str:
    """Return the queues of some journals, for people."""
    return ", ".join(sorted(journal.queue_name for journal in journals))


def dead_letter_source_queues(state: ClusterState) -> dict[str, list[Topic]]:
    """Return, for each dead-letter queue, the journals of the queues whose it is, by name."""
    users: dict[str, list[Topic]] = {}
    for journal in state.catalog.journals:
        config = journal.queue_config
        if config is not None and config.dead_letter_queue is not None:
            users.setdefault(config.dead_letter_queue, []).append(journal)
    return users


def check_dead_letter_queue(
    state: ClusterState, queue: str, source_topic_id: bytes, *, name: str, is_fifo: bool
) -> None:
    """Check that a queue's dead letters may go to another one.

    They may not come back: every queue on a topic sees all of its records, so what counts is from
    topic to topic. The queue itself need not be there yet.

    Args:
        state: What there is.
        queue: Whose dead letters.
        source_topic_id: Of its topic.
        name: Of the dead-letter queue.
        is_fifo: Whether the queue is one.

    Raises:
        UnknownQueueError: There is no such dead-letter queue.
        InvalidConfigError: It is of another kind, or its messages come back.
    """
    if not state.catalog.has_queue(name):
        raise UnknownQueueError(
            f"there is no queue {name!r} that could take dead letters; create it first (`tidelog"
            f" queue create {name}`)"
        )
    target = state.catalog.journal(name)
    assert target.queue is not None
    if target.queue.is_fifo != is_fifo:
        kinds = ("a FIFO queue", "none") if is_fifo else ("no FIFO queue", "one")
        raise InvalidConfigError(
            f"{queue!r} is {kinds[0]} and {name!r} is {kinds[1]}; a dead-letter queue is of the"
            " same kind"
        )
    way = _dead_letter_path(state, target.source_id, source_topic_id)
    if way is not None:
        stops = " to ".join(repr(stop) for stop in (name, *way))
        raise InvalidConfigError(
            f"dead letters of {queue!r} would come back: from {stops}, which is on the same topic"
        )


def _dead_letter_path(state: ClusterState, start: bytes, end: bytes) -> list[str] | None:
    """Return the queues through which dead letters get from one topic to another.

    `None` if they do not; empty if it is the same topic.
    """
    ways: dict[bytes, list[str]] = {start: []}
    pending = [start]
    while pending:
        topic_id = pending.pop(0)
        if topic_id == end:
            return ways[topic_id]
        for journal in state.catalog.journals_of(topic_id):
            assert journal.queue_config is not None
            name = journal.queue_config.dead_letter_queue
            target = None if name is None else state.catalog.journal(name).source_id
            if name is not None and target is not None and target not in ways:
                ways[target] = [*ways[topic_id], name]
                pending.append(target)
    return None
