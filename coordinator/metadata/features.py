"""Feature levels of the records in the metadata log (Kafka: metadata.version).

Pure: no clock, no I/O. A version that does not know a kind of record, or a setting in one, cannot
apply a log with it. So each new one belongs to a feature level, and a cluster writes it only while
its level is at least that. `coordinator.groups.records` has the levels of records of groups.
"""

from collections.abc import Iterable, Mapping
from typing import Final, get_args

from tidelog.coordinator.metadata.catalog import (
    QueueModified,
    TopicAltered,
    TopicCreated,
    TopicLabelsSet,
    TopicOwned,
)
from tidelog.coordinator.metadata.records import (
    EqualPartitionsChanged,
    FeatureLevelSet,
    Record,
)
from tidelog.coordinator.metadata.topic_config import ENCRYPTION_SETTINGS
from tidelog.coordinator.metadata.transactions import TransactionCommitted
from tidelog.coordinator.security.records import (
    AccessKeyRemoved,
    AccessKeySet,
    SecurityRecord,
)
from tidelog.wire.config.queue_config import ALERT_SETTINGS
from tidelog.wire.errors import InvalidRequestError

RECORD_LEVELS: Final[Mapping[type[Record], int]] = {
    FeatureLevelSet: 1,
    TopicLabelsSet: 2,
    TopicOwned: 4,
    **dict.fromkeys(get_args(SecurityRecord), 4),
    AccessKeySet: 7,
    AccessKeyRemoved: 7,
    QueueModified: 7,
    EqualPartitionsChanged: 5,
}
"""Feature level of each kind of record that the first version did not know."""
CREATE_QUEUES_LEVEL: Final = 5
"""Feature level at which each node that may be the controller knows the command for many queues."""
FORGET_NAMES_LEVEL: Final = 6
"""The same of the command that forgets names of transactions."""
REDRIVE_SOURCES_LEVEL: Final = 7
"""Feature level at which each broker that may continue a redrive knows `only_sources`. The metadata
do not show which redrives run, so the level does not fall below it again."""
COLUMNAR_BATCH_LEVEL: Final = 6
"""Feature level from which producers may send batches of format version 2. Logs may hold some from
then on, which versions of a lower level cannot read: the level does not fall below it again."""
_KEPT_LEVELS: Final = (COLUMNAR_BATCH_LEVEL, REDRIVE_SOURCES_LEVEL)
"""Levels below which the level does not fall again."""
_TOPIC_SETTING_LEVELS: Final[Mapping[str, int]] = dict.fromkeys(ENCRYPTION_SETTINGS, 4)
_QUEUE_SETTING_LEVELS: Final[Mapping[str, int]] = dict.fromkeys(ALERT_SETTINGS, 3)


def queue_settings_level(names: Iterable[str]) -> int:
    """Return the lowest feature level of a cluster whose queues may have these settings."""
    return max((_QUEUE_SETTING_LEVELS.get(name, 0) for name in names), default=0)


def record_level(record: Record) -> int:
    """Return the lowest feature level of a cluster that may write a record."""
    level = RECORD_LEVELS.get(type(record), 0)
    if isinstance(record, TransactionCommitted):
        return record.level
    if isinstance(record, FeatureLevelSet):
        return max((each for each in _KEPT_LEVELS if each <= record.level), default=level)
    if isinstance(record, TopicCreated):
        settings = () if record.queue is None else record.queue.overrides
    elif isinstance(record, TopicAltered):
        settings = record.queue_overrides or ()
    else:
        return level
    overrides = topic_settings_level(record.overrides)
    return max(level, overrides, queue_settings_level(settings))


def batch_format(level: int) -> int:
    """Return the highest format version of batches that leaders accept at a feature level."""
    return 2 if level >= COLUMNAR_BATCH_LEVEL else 1


def topic_settings_level(names: Iterable[str]) -> int:
    """Return the lowest feature level of a cluster whose topics may have these settings."""
    return max((_TOPIC_SETTING_LEVELS.get(name, 0) for name in names), default=0)


def check_records(records: Iterable[Record], level: int) -> None:
    """Check that a cluster with a feature level may write records.

    A record that changes the level counts for itself and those after it.

    Raises:
        InvalidRequestError: A record belongs to a higher level.
    """
    for record in records:
        if isinstance(record, FeatureLevelSet):
            level = record.level
        check_level(record_level(record), level)


def check_level(needed: int, level: int) -> None:
    """Check that a feature level is at least the one that a record needs.

    Raises:
        InvalidRequestError: It is lower.
    """
    if needed > level:
        raise InvalidRequestError(
            f"feature level {needed} is needed, and the cluster has level {level}; when all"
            " nodes run a newer version, run `tidelog cluster features --upgrade`"
        )
