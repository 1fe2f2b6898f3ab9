"""Feature levels of metadata records: which kinds a cluster may write (Kafka: metadata.version).

Pure: no clock, no I/O. A version that does not know a kind of record cannot apply a log with one.
So a new kind of record belongs to a feature level, and a cluster writes it only while its level is
at least that. Records of consumer groups are all of level 0.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.coordinator.metadata.catalog import TopicLabelsSet
from tidelog.coordinator.metadata.records import FeatureLevelSet, Record
from tidelog.wire.errors import InvalidRequestError

RECORD_LEVELS: Final[Mapping[type[Record], int]] = {FeatureLevelSet: 1, TopicLabelsSet: 2}
"""Feature level of each kind of record that the first version did not know."""


def record_level(record: Record) -> int:
    """Return the lowest feature level of a cluster that may write a record."""
    return RECORD_LEVELS.get(type(record), 0)


def check_records(records: Iterable[Record], level: int) -> None:
    """Check that a cluster with a feature level may write records.

    A record that changes the level counts for itself and those after it.

    Raises:
        InvalidRequestError: A record belongs to a higher level.
    """
    for record in records:
        if isinstance(record, FeatureLevelSet):
            level = record.level
        needed = record_level(record)
        if needed > level:
            raise InvalidRequestError(
                f"feature level {needed} is needed, and the cluster has level {level}; when all"
                " nodes run a newer version, run `tidelog cluster features --upgrade`"
            )
