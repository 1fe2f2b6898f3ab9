"""The catalog: topics, their settings, and the producer ids that are taken.

Pure: no clock, no I/O. A replicated state machine: `handle` turns a command into records and a
reply and changes nothing; `apply` of a record is the only change. The catalog is a part of the
metadata of a cluster (`coordinator.metadata`), and its records are a part of the metadata log.
"""

import re
from typing import NamedTuple, final

import msgspec

from tidelog.coordinator.metadata.name_index import NameIndex
from tidelog.coordinator.metadata.topic_config import (
    TopicConfig,
    check_setting_name,
    check_settings,
    topic_config,
)
from tidelog.wire.config.durations import portable_settings
from tidelog.wire.config.queue_config import QueueConfig, queue_config
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidTopicError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.field_types import PARTITION_COUNT_MAX
from tidelog.wire.messages.transactions import STAGING_PREFIX
from tidelog.wire.security.audit_topic import AUDIT_TOPIC
from tidelog.wire.security.principal import ANONYMOUS

TOPIC_ID_SIZE = 16
PRODUCER_ID_BLOCK = 1000
"""Size of a block of producer ids; most ids are given out without a write."""

RECEIPT_KEY_SIZE = 32
JOURNAL_PREFIX = "queue@"
"""Prefix of the names of journals; not legal in other names."""

_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,248}")


def journal_name(queue: str) -> str:
    """Return the name of a queue's journal."""
    return JOURNAL_PREFIX + queue


def queue_of_journal(topic: str) -> str | None:
    """Return the queue of a journal with this name; `None` for any other topic."""
    return topic.removeprefix(JOURNAL_PREFIX) if topic.startswith(JOURNAL_PREFIX) else None


def staging_name(topic: str) -> str:
    """Return the name of a topic's staging log."""
    return STAGING_PREFIX + topic


def topic_of_staging(name: str) -> str | None:
    """Return the topic of a staging log with this name; `None` for any other topic."""
    return name.removeprefix(STAGING_PREFIX) if name.startswith(STAGING_PREFIX) else None


def unknown_topic(name: str) -> UnknownTopicError:
    """Return the error for a name that no topic has; also for one that a principal may not see."""
    return UnknownTopicError(
        f"there is no topic {name!r}; create it first (`tidelog topic create {name}`)"
    )


def unknown_queue(name: str) -> UnknownQueueError:
    """Return the error for a name that no queue has, as `unknown_topic`."""
    return UnknownQueueError(
        f"there is no queue {name!r}; create it first (`tidelog queue create {name}`)"
    )


def unknown_topic_id(topic_id: bytes) -> UnknownTopicIdError:
    """Return the error for an id that no topic has, as `unknown_topic`."""
    return UnknownTopicIdError(
        f"no topic has the id {topic_id.hex()}; it was deleted, or never existed here"
    )


def unknown_queue_id(queue_id: bytes) -> UnknownQueueError:
    """Return the error for an id that no queue has, as `unknown_topic`."""
    return UnknownQueueError(
        f"no queue has the id {queue_id.hex()}; it was deleted, or never existed here"
    )


class QueueSpec(msgspec.Struct, frozen=True, array_like=True):
    """The properties of the queue of a journal.

    All but `overrides` is as it was created, but that `start_offsets` grow with the topic.
    """

    source_topic_id: bytes
    """Id of the source topic, whose records are the messages."""
    is_fifo: bool
    start_offsets: tuple[int, ...]
    """For each partition: records below it were never messages of this queue."""
    created_at_ms: int
    """Wall clock of the sender of the command that created it."""
    receipt_key: bytes
    """32 bytes, random: without it, receipt handles cannot be forged."""
    frozen: dict[str, str]
    """Immutable settings, with their values."""
    overrides: dict[str, str]
    """The other settings of the queue that differ from the defaults, as text."""

    @property
    def settings(self) -> dict[str, str]:
        """All settings that differ from the defaults."""
        return {**self.overrides, **self.frozen}


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag="create-topic"):
    """Create a topic. The same topic id is created once: a repeated command does nothing."""

    name: str
    topic_id: bytes
    """16 bytes, random; drawn by the sender of the command, so that `handle` stays pure."""
    partition_count: int
    overrides: dict[str, str]


class AlterTopic(msgspec.Struct, frozen=True, array_like=True, tag="alter-topic"):
    """Change settings and labels of a topic."""

    name: str
    set_overrides: dict[str, str]
    reset_overrides: list[str]
    topic_id: bytes | None = None
    """Id of the topic, `None` for the current topic of this name."""
    set_labels: dict[str, str] = {}
    remove_labels: list[str] = []


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag="delete-topic"):
    """Delete a topic. With its id, a repeated command does nothing."""

    name: str
    topic_id: bytes | None = None
    """Id of the topic, `None` for the current topic of this name."""


class TakeProducerIds(msgspec.Struct, frozen=True, array_like=True, tag="take-producer-ids"):
    """Take the next block of producer ids."""


Command = CreateTopic | AlterTopic | DeleteTopic | TakeProducerIds


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag="topic-created"):
    """A topic is created."""

    name: str
    topic_id: bytes
    partition_count: int
    overrides: dict[str, str]
    queue: QueueSpec | None = None
    """The queue of a journal; `None` for other topics."""
    staging_of: bytes | None = None
    """The source topic of a staging log; `None` for other topics."""


class TopicAltered(msgspec.Struct, frozen=True, array_like=True, tag="topic-altered"):
    """The settings of a topic have changed."""

    topic_id: bytes
    overrides: dict[str, str]
    """All settings, not only the changed ones."""
    queue_overrides: dict[str, str] | None = None
    """All settings of the queue of a journal; `None` if these do not change."""


class TopicLabelsSet(msgspec.Struct, frozen=True, array_like=True, tag="topic-labels-set"):
    """The labels of a topic, or of the queue of a journal, have changed."""

    topic_id: bytes
    labels: dict[str, str]
    """All labels, not only the changed ones."""


class TopicOwned(msgspec.Struct, frozen=True, array_like=True, tag="topic-owned"):
    """A topic, or the queue of a journal, counts for the quotas of a principal: its creator."""

    topic_id: bytes
    owner: str
    """Text of the principal, such as `user:alice`."""


class QueueModified(msgspec.Struct, frozen=True, array_like=True, tag="queue-modified"):
    """Settings or labels of a queue have changed (SQS: LastModifiedTimestamp)."""

    queue_id: bytes
    """The topic id of its journal."""
    modified_at_ms: int
    """Wall clock of the sender of the command that changed it."""


class TopicGrown(msgspec.Struct, frozen=True, array_like=True, tag="topic-grown"):
    """A topic has more partitions; the queue of a journal starts in them at 0."""

    topic_id: bytes
    partition_count: int


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True, tag="topic-deleted"):
    """A topic is deleted; its id stays known, so that left-over files can be told apart."""

    topic_id: bytes


class ProducerIdsTaken(msgspec.Struct, frozen=True, array_like=True, tag="producer-ids-taken"):
    """Producer ids below this one are taken."""

    next_producer_id: int


Record = (
    TopicCreated
    | TopicAltered
    | TopicLabelsSet
    | TopicOwned
    | QueueModified
    | TopicGrown
    | TopicDeleted
    | ProducerIdsTaken
)


class CatalogSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The whole catalog."""

    topics: list[TopicCreated]
    """As if each had been created in its current state."""
    deleted_ids: list[bytes]
    next_producer_id: int
    labels: list[TopicLabelsSet] = []
    """The labels of topics and queues that have any."""
    owners: list[TopicOwned] = []
    """The creators of topics and queues, as far as they have authenticated."""
    modified: list[QueueModified] = []
    """The queues that have changed since their creation."""


class Topic(msgspec.Struct, frozen=True):
    """The current state of one topic."""

    name: str
    topic_id: bytes
    partition_count: int
    overrides: dict[str, str]
    """Settings that differ from the defaults, as text."""
    config: TopicConfig
    """All settings in force."""
    queue: QueueSpec | None = None
    """The queue of a journal; `None` for other topics."""
    queue_config: QueueConfig | None = None
    """All settings of that queue in force."""
    staging_of: bytes | None = None
    """The source topic of a staging log; `None` for other topics."""
    labels: dict[str, str] = {}
    """Labels of the topic, or of the queue of a journal."""
    owner: str = ANONYMOUS.kind.value
    """Text of the principal that created the topic, or the queue of a journal."""
    modified_at_ms: int | None = None
    """Unix milliseconds of the last change of the queue of a journal; `None` before any."""

    @property
    def is_internal(self) -> bool:
        """Whether it is a journal or staging log; only brokers use it, beside its source."""
        return self.queue is not None or self.staging_of is not None

    @property
    def is_audit(self) -> bool:
        """Whether it is the audit topic, which clients read and only brokers write."""
        return self.name == AUDIT_TOPIC

    @property
    def queue_name(self) -> str:
        """The queue of a journal; empty for other topics."""
        return queue_of_journal(self.name) or ""

    @property
    def source_id(self) -> bytes:
        """The source topic of an internal topic, else the topic itself."""
        if self.queue is not None:
            return self.queue.source_topic_id
        return self.topic_id if self.staging_of is None else self.staging_of


class OwnedCounts(NamedTuple):
    """What the topics and queues of a principal count."""

    partitions: int = 0
    """Partitions of its topics, and of the journals of its queues."""
    queues: int = 0


@final
class Catalog:
    """The state that the records of topics add up to.

    Invariant: `_by_name` and `_by_id` hold the same topics; an id is never used twice. Each journal
    and each staging log is in `_internal_topics` under its source, which exists. `topic_names` has
    the names of all topics that are not internal, `queue_names` those of all queues. `_owned` and
    `_dead_letter_sources` equal those computed from the topics.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.topic_names = NameIndex()
        """Names of the topics that are not internal; read-only."""
        self.queue_names = NameIndex()
        """Names of the queues; read-only."""
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._internal_topics: dict[bytes, dict[bytes, None]] = {}
        self._owned: dict[str, OwnedCounts] = {}
        self._dead_letter_sources: dict[str, dict[bytes, None]] = {}
        """Ids of the queues that use a queue as their dead-letter queue, by its name."""
        self._deleted_ids: dict[bytes, None] = {}
        self._next_producer_id = 1

    @classmethod
    def from_snapshot(cls, snapshot: CatalogSnapshot) -> "Catalog":
        """Restore a catalog from its snapshot.

        Raises:
            InvalidConfigError: A newer version recorded a setting that this one does not know.
        """
        catalog = cls()
        for topic in snapshot.topics:
            catalog.apply(topic)
        for labels in snapshot.labels:
            catalog.apply(labels)
        for owner in snapshot.owners:
            catalog.apply(owner)
        for change in snapshot.modified:
            catalog.apply(change)
        catalog._deleted_ids = dict.fromkeys(snapshot.deleted_ids)
        catalog._next_producer_id = snapshot.next_producer_id
        return catalog

    def copy(self) -> "Catalog":
        """Return an independent catalog with the same topics, which never change in place."""
        catalog = Catalog()
        catalog.topic_names = self.topic_names.copy()
        catalog.queue_names = self.queue_names.copy()
        catalog._by_name = self._by_name.copy()
        catalog._by_id = self._by_id.copy()
        catalog._internal_topics = {
            topic_id: each.copy() for topic_id, each in self._internal_topics.items()
        }
        catalog._owned = self._owned.copy()
        catalog._dead_letter_sources = {
            queue: each.copy() for queue, each in self._dead_letter_sources.items()
        }
        catalog._deleted_ids = self._deleted_ids.copy()
        catalog._next_producer_id = self._next_producer_id
        return catalog

    def snapshot(self) -> CatalogSnapshot:
        """Return the whole catalog; `from_snapshot` is the inverse."""
        topics = [
            TopicCreated(
                topic.name,
                topic.topic_id,
                topic.partition_count,
                topic.overrides,
                topic.queue,
                topic.staging_of,
            )
            for topic in self._by_id.values()
        ]
        labels = [
            TopicLabelsSet(topic.topic_id, topic.labels)
            for topic in self._by_id.values()
            if topic.labels
        ]
        owners = [
            TopicOwned(topic.topic_id, topic.owner)
            for topic in self._by_id.values()
            if topic.owner != ANONYMOUS.kind
        ]
        modified = [
            QueueModified(topic.topic_id, topic.modified_at_ms)
            for topic in self._by_id.values()
            if topic.modified_at_ms is not None
        ]
        return CatalogSnapshot(
            topics, list(self._deleted_ids), self._next_producer_id, labels, owners, modified
        )

    @property
    def topics(self) -> list[Topic]:
        """All topics, journals of queues and staging logs included, sorted by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    @property
    def record_topics(self) -> list[Topic]:
        """The topics that are not internal, sorted by name."""
        return [topic for topic in self.topics if not topic.is_internal]

    @property
    def journals(self) -> list[Topic]:
        """The journals of all queues, sorted by name."""
        return [topic for topic in self.topics if topic.queue is not None]

    def journals_of(self, topic_id: bytes) -> list[Topic]:
        """Return the journals of the queues that stand on a topic, always in the same order."""
        return [each for each in self.internal_topics_of(topic_id) if each.queue is not None]

    def staging_of(self, topic_id: bytes) -> Topic | None:
        """Return the staging log of a topic, `None` if it has none (yet)."""
        for each in self.internal_topics_of(topic_id):
            if each.staging_of is not None:
                return each
        return None

    def internal_topics_of(self, topic_id: bytes) -> list[Topic]:
        """Return the internal topics of a topic: journals of its queues, and its staging log."""
        return [self._by_id[each] for each in sorted(self._internal_topics.get(topic_id, ()))]

    def journal(self, queue: str) -> Topic:
        """Return the journal of the queue of this name.

        Raises:
            UnknownQueueError: There is no such queue.
        """
        topic = self._by_name.get(journal_name(queue))
        if topic is None:
            raise unknown_queue(queue)
        return topic

    def has_queue(self, name: str) -> bool:
        """Return whether there is a queue of this name."""
        return journal_name(name) in self._by_name

    def dead_letter_sources(self, queue: str) -> list[Topic]:
        """Return the journals of the queues whose dead-letter queue has this name, by name."""
        found = [self._by_id[each] for each in self._dead_letter_sources.get(queue, ())]
        return sorted(found, key=lambda journal: journal.name)

    def owned(self, owner: str) -> OwnedCounts:
        """Return what the topics and queues of a principal count."""
        return self._owned.get(owner, OwnedCounts())

    @property
    def next_producer_id(self) -> int:
        """The first producer id that is not taken."""
        return self._next_producer_id

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id."""
        return self._by_id.get(topic_id)

    def record_topic(self, name: str) -> Topic | None:
        """Return the topic of this name, `None` if there is none, or an internal one."""
        topic = self._by_name.get(name)
        return None if topic is None or topic.is_internal else topic

    def has_topic(self, name: str) -> bool:
        """Return whether there is a topic of this name."""
        return name in self._by_name

    def topic(self, name: str, topic_id: bytes | None = None) -> Topic:
        """Return the topic of this name, and of this id if one is given; never an internal one.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidTopicError: The name is that of a journal or a staging log, which only brokers
            use.
        """
        if topic_of_staging(name) is not None:
            raise InvalidTopicError(
                f"{name!r} is the name of a topic's staging log, which only brokers read and write"
            )
        queue = queue_of_journal(name)
        if queue is not None:
            raise InvalidTopicError(
                f"{name!r} is the name of a queue's journal, which only brokers read and write; see"
                f" `tidelog queue describe {queue}`"
            )
        topic = self._by_name.get(name)
        if topic is None:
            raise unknown_topic(name)
        if topic_id is not None and topic_id != topic.topic_id:
            raise UnknownTopicError(
                f"there is no topic {name!r} with the id {topic_id.hex()}; another topic has the"
                " name now"
            )
        return topic

    def was_deleted(self, topic_id: bytes) -> bool:
        """Return whether a topic with this id existed and was deleted."""
        return topic_id in self._deleted_ids

    def knows(self, topic_id: bytes) -> bool:
        """Return whether a topic with this id exists, or was deleted."""
        return topic_id in self._by_id or topic_id in self._deleted_ids

    def handle(self, command: Command, *, replication_factor: int = 1) -> list[Record]:
        """Return the records of a command; the catalog does not change.

        Args:
            command: The command to decide.
            replication_factor: Replicas of the topic; a single broker keeps the only replica.

        Raises:
            BrokerError: The command is refused; see the subclasses named in `wire.errors`.
        """
        if isinstance(command, CreateTopic):
            return self._create(command, replication_factor)
        if isinstance(command, AlterTopic):
            return self._alter(command, replication_factor)
        if isinstance(command, DeleteTopic):
            return self._delete(command)
        return [ProducerIdsTaken(self._next_producer_id + PRODUCER_ID_BLOCK)]

    def apply(self, record: Record) -> None:
        """Apply a record; the only way in which the catalog changes.

        Raises:
            InvalidConfigError: A newer version recorded a setting that this one does not know.
        """
        if isinstance(record, TopicCreated):
            self._put(_created_topic(record))
        elif isinstance(record, TopicAltered):
            self._put(altered_topic(self._by_id[record.topic_id], record))
        elif isinstance(record, TopicLabelsSet):
            topic = self._by_id[record.topic_id]
            self._put(msgspec.structs.replace(topic, labels=record.labels))
        elif isinstance(record, TopicOwned):
            topic = self._by_id[record.topic_id]
            self._put(msgspec.structs.replace(topic, owner=record.owner))
        elif isinstance(record, QueueModified):
            topic = self._by_id[record.queue_id]
            self._put(msgspec.structs.replace(topic, modified_at_ms=record.modified_at_ms))
        elif isinstance(record, TopicGrown):
            self._put(_grown_topic(self._by_id[record.topic_id], record.partition_count))
        elif isinstance(record, TopicDeleted):
            self._remove(self._by_id[record.topic_id])
        else:
            self._next_producer_id = record.next_producer_id

    def _create(self, command: CreateTopic, replication_factor: int) -> list[Record]:
        if self.knows(command.topic_id):
            return []
        if command.name != AUDIT_TOPIC:
            check_topic_name(command.name)
        check_partition_count(command.partition_count)
        if len(command.topic_id) != TOPIC_ID_SIZE:
            raise InvalidTopicError(
                f"a topic id has {len(command.topic_id)} bytes, it must have {TOPIC_ID_SIZE}"
            )
        if command.name in self._by_name:
            raise TopicExistsError(f"there is a topic {command.name!r} already")
        check_settings(command.overrides, replication_factor=replication_factor)
        overrides = portable_settings(command.overrides)
        return [TopicCreated(command.name, command.topic_id, command.partition_count, overrides)]

    def _alter(self, command: AlterTopic, replication_factor: int) -> list[Record]:
        topic = self.topic(command.name, command.topic_id)
        overrides = {**topic.overrides, **command.set_overrides}
        for name in command.reset_overrides:
            check_setting_name(name)
            if name in command.set_overrides:
                raise InvalidConfigError(f"{name} cannot be set and reset at the same time")
            overrides.pop(name, None)
        check_settings(overrides, replication_factor=replication_factor)
        overrides = portable_settings(overrides)
        return [] if overrides == topic.overrides else [TopicAltered(topic.topic_id, overrides)]

    def _delete(self, command: DeleteTopic) -> list[Record]:
        if command.topic_id is not None and self.was_deleted(command.topic_id):
            return []
        topic = self.topic(command.name, command.topic_id)
        check_not_audit(topic.name, "cannot be deleted")
        return [TopicDeleted(topic.topic_id)]

    def _put(self, topic: Topic) -> None:
        before = self._by_id.get(topic.topic_id)
        if before is not None:
            self._count(before, -1)
        self._count(topic, 1)
        if before is None:
            if topic.queue is not None:
                self.queue_names.add(topic.queue_name)
            elif not topic.is_internal:
                self.topic_names.add(topic.name)
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        if topic.is_internal:
            self._internal_topics.setdefault(topic.source_id, {})[topic.topic_id] = None

    def _count(self, topic: Topic, sign: int) -> None:
        """Add a topic to the indexes by owner and by dead-letter queue, or remove it."""
        if topic.staging_of is None and not topic.is_audit:
            known = self.owned(topic.owner)
            counts = OwnedCounts(
                known.partitions + sign * topic.partition_count,
                known.queues + sign * (topic.queue is not None),
            )
            if counts.partitions:
                self._owned[topic.owner] = counts
            else:
                del self._owned[topic.owner]
        config = topic.queue_config
        if config is None or config.dead_letter_queue is None:
            return
        sources = self._dead_letter_sources.setdefault(config.dead_letter_queue, {})
        if sign > 0:
            sources[topic.topic_id] = None
        else:
            del sources[topic.topic_id]
            if not sources:
                del self._dead_letter_sources[config.dead_letter_queue]

    def _remove(self, topic: Topic) -> None:
        self._count(topic, -1)
        del self._by_id[topic.topic_id], self._by_name[topic.name]
        if topic.queue is not None:
            self.queue_names.remove(topic.queue_name)
        elif not topic.is_internal:
            self.topic_names.remove(topic.name)
        self._deleted_ids[topic.topic_id] = None
        if topic.is_internal:
            siblings = self._internal_topics[topic.source_id]
            del siblings[topic.topic_id]
            if not siblings:
                del self._internal_topics[topic.source_id]


def _created_topic(record: TopicCreated) -> Topic:
    spec = record.queue
    return Topic(
        record.name,
        record.topic_id,
        record.partition_count,
        record.overrides,
        topic_config(record.overrides),
        spec,
        None if spec is None else queue_config(spec.settings, is_fifo=spec.is_fifo),
        record.staging_of,
    )


def altered_topic(topic: Topic, record: TopicAltered) -> Topic:
    """Return a topic with other settings.

    Raises:
        InvalidConfigError: A newer version recorded a setting that this one does not know.
    """
    altered = msgspec.structs.replace(
        topic, overrides=record.overrides, config=topic_config(record.overrides)
    )
    if record.queue_overrides is None:
        return altered
    assert topic.queue is not None, "the topic is a journal"
    spec = msgspec.structs.replace(topic.queue, overrides=record.queue_overrides)
    config = queue_config(spec.settings, is_fifo=spec.is_fifo)
    return msgspec.structs.replace(altered, queue=spec, queue_config=config)


def _grown_topic(topic: Topic, partition_count: int) -> Topic:
    """Return a topic with more partitions; its queue starts in them at 0."""
    spec = topic.queue
    if spec is not None:
        starts = (*spec.start_offsets, *[0] * (partition_count - topic.partition_count))
        spec = msgspec.structs.replace(spec, start_offsets=starts)
    return msgspec.structs.replace(topic, partition_count=partition_count, queue=spec)


def check_topic_name(name: str) -> None:
    """Check that a topic may have this name.

    Raises:
        InvalidTopicError: The name is invalid; the text says which names are valid.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidTopicError(
            f"{name!r} cannot be the name of a topic: 1 to 249 of the characters a-z, A-Z, 0-9,"
            " '.', '_' and '-' can, with a letter, a digit or '_' first"
        )


def check_not_audit(name: str, problem: str) -> None:
    """Check that a topic is not the audit topic.

    Raises:
        InvalidTopicError: It is; the text says the `problem`, such as "cannot be deleted".
    """
    if name == AUDIT_TOPIC:
        raise InvalidTopicError(
            f"{AUDIT_TOPIC!r} {problem}: it has the audit records of the cluster, which only"
            " brokers write; retention_ms says how long they stay"
        )


def check_partition_count(count: int) -> None:
    """Check that a topic may have this number of partitions.

    Raises:
        InvalidTopicError: The number is invalid; the text says which are valid.
    """
    if not 1 <= count <= PARTITION_COUNT_MAX:
        raise InvalidTopicError(
            f"{count} partitions are not possible, 1 to {PARTITION_COUNT_MAX} are"
        )
