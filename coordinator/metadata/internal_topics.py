"""Settings and placement of internal topics: journals of queues, and staging logs.

Pure: no clock, no I/O. An internal topic is colocated: its replicas are on the same brokers as
those of its source topic.
"""

from collections.abc import Iterable, Mapping, Sequence

from tidelog.coordinator.metadata.catalog import QueueSpec, Topic, check_not_audit
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.topic_config import (
    ENCRYPTION_SETTINGS,
    SETTINGS,
    topic_config,
)
from tidelog.wire.config.queue_config import effective_queue_settings, queue_config
from tidelog.wire.errors import InvalidConfigError, LeaderNotAvailableError

_SHARED_WITH_SOURCE = ("durability", "min_insync_replicas")
"""Settings of a topic that hold for its journals: the journals are about its records."""
_OF_JOURNALS = {"retention_ms": "unlimited", "segment_bytes": "16MiB"}
"""A journal is deleted up to the start of a snapshot, not by age, and in small segments."""


def journal_overrides(source_overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the topic settings of each journal on a topic with these settings."""
    shared = {
        name: source_overrides[name] for name in _SHARED_WITH_SOURCE if name in source_overrides
    }
    return {**_OF_JOURNALS, **shared}


def staging_overrides(source_overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the topic settings of the staging log of a topic with these settings.

    Staged records are appended to the topic later, so they must not be larger than it accepts, and
    are encrypted as its records are. Journals have no records, and are never encrypted.
    """
    overrides = journal_overrides(source_overrides)
    for name in ("max_message_bytes", *ENCRYPTION_SETTINGS):
        if name in source_overrides:
            overrides[name] = source_overrides[name]
    return overrides


def internal_topic_overrides(
    internal: Topic, source_overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of an internal topic whose source topic has these settings."""
    settings = staging_overrides if internal.queue is None else journal_overrides
    return settings(source_overrides)


def check_compaction(topic: str, overrides: Mapping[str, str], *, queues: Sequence[str]) -> None:
    """Check that compaction cannot remove messages of the queues on a topic.

    Raises:
        InvalidConfigError: The topic is, or would be, compacted, and has, or would have, `queues`.
        InvalidTopicError: It is the audit topic.
    """
    if topic_config(overrides).compaction is None:
        return
    check_not_audit(topic, "cannot be compacted")
    if queues:
        raise InvalidConfigError(
            f"topic {topic!r} cannot be compacted and have queues ({', '.join(sorted(queues))}):"
            " compaction would remove messages that they have not delivered yet; leave its"
            " cleanup_policy at delete, or put the queues on another topic"
        )


def check_retention(
    topic: str, overrides: Mapping[str, str], queues: Iterable[tuple[str, QueueSpec]]
) -> None:
    """Check that a topic keeps records until its queues have delivered them, as they promise.

    A queue without a retention of its own keeps messages no longer than its topic.

    Args:
        topic: Name of the topic.
        overrides: Settings of the topic.
        queues: Names and settings of its queues.

    Raises:
        InvalidConfigError: A queue promises more; the text has both figures.
    """
    kept_ms = topic_config(overrides).log.retention_ms
    if kept_ms is None:
        return
    for name, spec in queues:
        config = queue_config(spec.settings, is_fifo=spec.is_fifo)
        own_ms = config.retention_ms if "retention_ms" in spec.overrides else None
        delay_ms = config.delivery_delay_ms
        if (own_ms or 0) + delay_ms + (own_ms is None and delay_ms > 0) > kept_ms:
            texts = effective_queue_settings(spec.settings, is_fifo=spec.is_fifo)
            delay = f"delivery_delay_ms {texts['delivery_delay_ms']}" if delay_ms else ""
            own = f"retention_ms {texts['retention_ms']}" if own_ms is not None else ""
            kept = overrides.get("retention_ms", SETTINGS["retention_ms"].default)
            raise InvalidConfigError(
                f"queue {name!r} has {' and '.join(filter(None, (delay, own)))}, and topic"
                f" {topic!r} deletes records after retention_ms {kept}: raise that of the topic"
                f" (tidelog topic alter {topic} --set retention_ms=...), or lower that of the queue"
            )


def listed_queues(journals: Iterable[Topic]) -> str:
    """Return the names of the queues of some journals, for error texts."""
    return ", ".join(sorted(journal.queue_name for journal in journals))


def colocated_partitions(
    state: ClusterState, topic: Topic, first: int = 0
) -> list[PartitionRegistration]:
    """Return new partitions of an internal topic, from `first` on, colocated with their source.

    Raises:
        LeaderNotAvailableError: A partition has no replica that can lead.
    """
    partitions: list[PartitionRegistration] = []
    for number, source in enumerate(state.partitions(topic.topic_id)[first:], first):
        in_sync = tuple(node for node in source.replicas if state.brokers[node].can_lead)
        if not in_sync:
            raise LeaderNotAvailableError(
                f"partition {number} of the internal topic of {topic.name!r} would have no leader:"
                " none of its replicas is alive"
            )
        partitions.append(
            PartitionRegistration(
                source.replicas,
                in_sync,
                leader=colocated_leader(source, in_sync),
                adding_replicas=source.adding_replicas,
                removing_replicas=source.removing_replicas,
            )
        )
    return partitions


def colocated_leader(source: PartitionRegistration, in_sync: Sequence[int]) -> int:
    """Return the leader of a new internal partition: the leader of its source, if it can lead."""
    by_use = sorted(
        in_sync, key=lambda node: (node != source.leader, node not in source.in_sync_replicas)
    )
    return by_use[0]
