"""View of a queue in the metadata.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tidelog.coordinator.metadata.catalog import Catalog, Topic, unknown_queue_id
from tidelog.queue_layer.commands.deduplication import DeduplicationRule
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import Target


@final
@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue, as in one version of the metadata."""

    journal: Topic
    dead_letters: Topic | None
    """The topic of the dead-letter queue."""
    source_id: bytes
    """Topic id of the records."""
    start_offsets: Sequence[int]
    receipt_key: bytes

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.journal.queue_name

    @property
    def queue_id(self) -> bytes:
        """The topic id of the journal."""
        return self.journal.topic_id

    def is_same(self, other: "QueueView") -> bool:
        """Return whether nothing has changed: a changed topic is another object."""
        return self.journal is other.journal and self.dead_letters is other.dead_letters

    @property
    def is_fifo(self) -> bool:
        """Whether the queue has message groups."""
        spec = self.journal.queue
        return spec is not None and spec.is_fifo

    @property
    def window_ms(self) -> int:
        """Deduplication window in milliseconds."""
        config = self.journal.queue_config
        assert config is not None
        return config.deduplication_window_ms

    @property
    def history_retention_ms(self) -> int:
        """Time in milliseconds for which the journal keeps history before its snapshots."""
        config = self.journal.queue_config
        assert config is not None
        return config.history_retention_ms

    @property
    def retention_ms(self) -> int | None:
        """Time in milliseconds for which messages are delivered; `None` for ever."""
        config = self.journal.queue_config
        assert config is not None
        return config.retention_ms

    @property
    def deduplication_rule(self) -> DeduplicationRule:
        """The rule by which messages are duplicates."""
        config = self.journal.queue_config
        assert config is not None
        return DeduplicationRule(
            config.deduplication_scope, is_content_based=config.content_based_deduplication
        )

    @property
    def messages_per_s(self) -> float | None:
        """Maximum rate of sends to one partition in messages a second, `None` for any."""
        config = self.journal.queue_config
        assert config is not None
        return None if config.send_rate is None else config.send_rate / len(self.start_offsets)

    def has_same_window(self, other: "QueueView") -> bool:
        """Return whether the same messages are duplicates under both."""
        ours, theirs = self.deduplication_rule, other.deduplication_rule
        return (self.window_ms, ours.scope, ours.is_content_based) == (
            other.window_ms,
            theirs.scope,
            theirs.is_content_based,
        )

    def config(self, number: int) -> QueueConfig:
        """Return the settings of one partition."""
        config = self.journal.queue_config
        assert config is not None
        return config.for_partition(
            number, len(self.start_offsets), dead_letter_target=self._target(number)
        )

    @property
    def max_in_flight(self) -> int:
        """Maximum messages in flight in the whole queue."""
        config = self.journal.queue_config
        assert config is not None
        return config.max_in_flight

    def _target(self, number: int) -> Target | None:
        """Return the target of dead letters: always the same, so that groups stay in order."""
        topic = self.dead_letters
        return None if topic is None else (topic.topic_id, number % topic.partition_count)


def view_of(catalog: Catalog, queue_id: bytes) -> QueueView:
    """Return the view of a queue.

    Raises:
        UnknownQueueError: The queue was deleted, or is not known here yet.
    """
    journal = catalog.topic_by_id(queue_id)
    if journal is None or journal.queue is None or journal.queue_config is None:
        raise unknown_queue_id(queue_id)
    spec = journal.queue
    return QueueView(
        journal,
        _dead_letters(catalog, journal.queue_config),
        spec.source_topic_id,
        spec.start_offsets,
        spec.receipt_key,
    )


def is_current(catalog: Catalog, view: QueueView) -> bool:
    """Return whether nothing has changed: a changed topic is another object."""
    journal = view.journal
    return (
        catalog.topic_by_id(journal.topic_id) is journal
        and journal.queue_config is not None
        and _dead_letters(catalog, journal.queue_config) is view.dead_letters
    )


def _dead_letters(catalog: Catalog, config: QueueConfig) -> Topic | None:
    name = config.dead_letter_queue
    if name is None or not catalog.has_queue(name):
        return None
    return catalog.topic_by_id(catalog.journal(name).source_id)
