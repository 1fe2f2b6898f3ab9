"""The catalog: which topics there are, with which settings, and which producer ids are taken.

Pure: no clock, no I/O. A replicated state machine: `handle` turns a command into records and a
reply and changes nothing; `apply` of a record is the only change. The catalog is a part of what the
nodes of a cluster agree on (`coordinator.cluster`), and its records are a part of their log.
"""

import re
from typing import final

import msgspec

from coordinator.topic_config import (
    TopicConfig,
    check_setting_name,
    check_settings,
    topic_config,
)
from wire.errors import (
    InvalidConfigError,
    InvalidTopicError,
    TopicExistsError,
    UnknownTopicError,
)

PARTITION_COUNT_MAX = 10_000
TOPIC_ID_SIZE = 16
PRODUCER_ID_BLOCK = 1000
"""Producer ids are taken from the catalog in blocks, so that most are given without a write."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag="create-topic"):
    """Make a topic. The same topic id is made once: a command that is given again does nothing."""

    name: str
    topic_id: bytes
    """16 bytes, random; drawn by whoever gives the command, so that `handle` stays pure."""
    partition_count: int
    overrides: dict[str, str]


class AlterTopic(msgspec.Struct, frozen=True, array_like=True, tag="alter-topic"):
    """Change settings of a topic."""

    name: str
    set_overrides: dict[str, str]
    reset_overrides: list[str]
    topic_id: bytes | None = None
    """Which topic of this name is meant, `None` for the one that is there now."""


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag="delete-topic"):
    """Make a topic go away. With its id, a command that is given again does nothing."""

    name: str
    topic_id: bytes | None = None
    """Which topic of this name is meant, `None` for the one that is there now."""


class TakeProducerIds(msgspec.Struct, frozen=True, array_like=True, tag="take-producer-ids"):
    """Take the next block of producer ids."""


Command = CreateTopic | AlterTopic | DeleteTopic | TakeProducerIds


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag="topic-created"):
    """A topic is there."""

    name: str
    topic_id: bytes
    partition_count: int
    overrides: dict[str, str]


class TopicAltered(msgspec.Struct, frozen=True, array_like=True, tag="topic-altered"):
    """A topic has other settings."""

    topic_id: bytes
    overrides: dict[str, str]
    """All of them, not only the changed ones."""


class TopicGrown(msgspec.Struct, frozen=True, array_like=True, tag="topic-grown"):
    """A topic has more partitions."""

    topic_id: bytes
    partition_count: int


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True, tag="topic-deleted"):
    """A topic is gone; its id stays known, so that left-over files can be told apart."""

    topic_id: bytes


class ProducerIdsTaken(msgspec.Struct, frozen=True, array_like=True, tag="producer-ids-taken"):
    """Producer ids below this one are taken."""

    next_producer_id: int


Record = TopicCreated | TopicAltered | TopicGrown | TopicDeleted | ProducerIdsTaken


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All of a catalog."""

    topics: list[TopicCreated]
    """As if they had been created as they are now."""
    deleted_ids: list[bytes]
    next_producer_id: int


class Topic(msgspec.Struct, frozen=True):
    """One topic as it is now."""

    name: str
    topic_id: bytes
    partition_count: int
    overrides: dict[str, str]
    """Settings that differ from the defaults, as text."""
    config: TopicConfig
    """All settings in force."""


@final
class Catalog:
    """The state that the records add up to.

    Invariant: `_by_name` and `_by_id` hold the same topics; an id is never used twice.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._deleted_ids: dict[bytes, None] = {}
        self._next_producer_id = 1

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> "Catalog":
        """Return a catalog as it was when the snapshot was taken.

        Raises:
            InvalidConfigError: A newer version recorded a setting that this one does not know.
        """
        catalog = cls()
        for topic in snapshot.topics:
            catalog.apply(topic)
        catalog._deleted_ids = dict.fromkeys(snapshot.deleted_ids)
        catalog._next_producer_id = snapshot.next_producer_id
        return catalog

    def snapshot(self) -> Snapshot:
        """Return all that there is; `from_snapshot` is the inverse."""
        topics = [
            TopicCreated(topic.name, topic.topic_id, topic.partition_count, topic.overrides)
            for topic in self._by_id.values()
        ]
        return Snapshot(topics, list(self._deleted_ids), self._next_producer_id)

    @property
    def topics(self) -> list[Topic]:
        """All topics, sorted by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    @property
    def next_producer_id(self) -> int:
        """The first producer id that is not taken."""
        return self._next_producer_id

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id."""
        return self._by_id.get(topic_id)

    def has_topic(self, name: str) -> bool:
        """Return whether there is a topic of this name."""
        return name in self._by_name

    def topic(self, name: str, topic_id: bytes | None = None) -> Topic:
        """Return the topic of this name, and of this id if one is given.

        Raises:
            UnknownTopicError: There is none.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopicError(
                f"there is no topic {name!r}; create it first (`tidelog topic create {name}`)"
            )
        if topic_id is not None and topic_id != topic.topic_id:
            raise UnknownTopicError(
                f"there is no topic {name!r} with the id {topic_id.hex()}; another one has the name"
                " now"
            )
        return topic

    def was_deleted(self, topic_id: bytes) -> bool:
        """Return whether a topic with this id existed and was deleted."""
        return topic_id in self._deleted_ids

    def knows(self, topic_id: bytes) -> bool:
        """Return whether a topic with this id is here, or was deleted."""
        return topic_id in self._by_id or topic_id in self._deleted_ids

    def handle(self, command: Command, *, replication_factor: int = 1) -> list[Record]:
        """Return what a command comes to; nothing is changed.

        Args:
            command: What is to be done.
            replication_factor: Of the topic; a broker that is alone keeps the only replica.

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
        """Carry out a record; the only way in which the catalog changes.

        Raises:
            InvalidConfigError: A newer version recorded a setting that this one does not know.
        """
        if isinstance(record, TopicCreated):
            self._put(
                Topic(
                    record.name,
                    record.topic_id,
                    record.partition_count,
                    record.overrides,
                    topic_config(record.overrides),
                )
            )
        elif isinstance(record, TopicAltered):
            topic = self._by_id[record.topic_id]
            self._put(
                msgspec.structs.replace(
                    topic, overrides=record.overrides, config=topic_config(record.overrides)
                )
            )
        elif isinstance(record, TopicGrown):
            topic = self._by_id[record.topic_id]
            self._put(msgspec.structs.replace(topic, partition_count=record.partition_count))
        elif isinstance(record, TopicDeleted):
            topic = self._by_id.pop(record.topic_id)
            del self._by_name[topic.name]
            self._deleted_ids[record.topic_id] = None
        else:
            self._next_producer_id = record.next_producer_id

    def _create(self, command: CreateTopic, replication_factor: int) -> list[Record]:
        if self.knows(command.topic_id):
            return []
        check_topic_name(command.name)
        check_partition_count(command.partition_count)
        if len(command.topic_id) != TOPIC_ID_SIZE:
            raise InvalidTopicError(
                f"a topic id has {len(command.topic_id)} bytes, it must have {TOPIC_ID_SIZE}"
            )
        if command.name in self._by_name:
            raise TopicExistsError(f"there is a topic {command.name!r} already")
        check_settings(command.overrides, replication_factor=replication_factor)
        return [
            TopicCreated(command.name, command.topic_id, command.partition_count, command.overrides)
        ]

    def _alter(self, command: AlterTopic, replication_factor: int) -> list[Record]:
        topic = self.topic(command.name, command.topic_id)
        overrides = {**topic.overrides, **command.set_overrides}
        for name in command.reset_overrides:
            check_setting_name(name)
            if name in command.set_overrides:
                raise InvalidConfigError(f"{name} cannot be set and reset at the same time")
            overrides.pop(name, None)
        check_settings(overrides, replication_factor=replication_factor)
        return [] if overrides == topic.overrides else [TopicAltered(topic.topic_id, overrides)]

    def _delete(self, command: DeleteTopic) -> list[Record]:
        if command.topic_id is not None and self.was_deleted(command.topic_id):
            return []
        return [TopicDeleted(self.topic(command.name, command.topic_id).topic_id)]

    def _put(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic


def check_topic_name(name: str) -> None:
    """Check that a topic may have this name.

    Raises:
        InvalidTopicError: Saying what a name may look like.
    """
    if _NAME.fullmatch(name) is None or name in {".", ".."}:
        raise InvalidTopicError(
            f"{name!r} cannot be the name of a topic: 1 to 249 of the characters a-z, A-Z, 0-9,"
            " '.', '_' and '-' can, except '.' and '..'"
        )


def check_partition_count(count: int) -> None:
    """Check that a topic may have so many partitions.

    Raises:
        InvalidTopicError: Saying how many it may have.
    """
    if not 1 <= count <= PARTITION_COUNT_MAX:
        raise InvalidTopicError(
            f"{count} partitions are not possible, 1 to {PARTITION_COUNT_MAX} are"
        )
