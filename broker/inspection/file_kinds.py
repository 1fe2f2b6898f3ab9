"""Kinds of files in a data directory, by name and place.

Pure: no clock, no I/O.
"""

import re
from enum import Enum
from typing import Final, NamedTuple

from tidelog.broker.partitions.data_directory import (
    CLEAN_SHUTDOWN_NAME,
    LOCK_NAME,
    NODE_NAME,
    RECOVERY_NAME,
)
from tidelog.broker.partitions.idle_replicas import IDLE_LOGS_NAME
from tidelog.broker.partitions.replica_manifest import MANIFEST_NAME
from tidelog.coordinator.metadata.catalog import queue_of_journal
from tidelog.coordinator.raft_node.storage import OWNER, SNAPSHOT_NAME, VOTE_NAME
from tidelog.logstore.checkpoint import CHECKPOINT_NAME
from tidelog.logstore.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, base_offset_of
from tidelog.logstore.segments.segment_deletion import DELETION_SUFFIX


class FileKind(Enum):
    """Kinds of files; the values are shown to users."""

    SEGMENT = "segment"
    INDEX = "index"
    DELETION_MARKER = "deletion_marker"
    CHECKPOINT = "checkpoint"
    VOTE = "vote"
    SNAPSHOT = "snapshot"
    NODE = "node"
    REPLICAS = "replicas"
    IDLE_LOGS = "idle_logs"
    CLEAN_SHUTDOWN = "clean_shutdown"
    RECOVERY = "recovery"
    LOCK = "lock"
    STAGING_FILE = "staging_file"
    """Left by a write that did not finish; ignored."""
    SET_ASIDE = "set_aside"
    """A segment that overlapped others when a broker started."""
    UNKNOWN = "unknown"


class Content(Enum):
    """Kinds of records in a log."""

    RECORDS = "records"
    JOURNAL = "journal"
    """Frames of the journal of a queue."""
    ENTRIES = "entries"
    """Entries of the cluster's metadata."""


_BY_NAME: Final = {
    CHECKPOINT_NAME: FileKind.CHECKPOINT,
    VOTE_NAME: FileKind.VOTE,
    SNAPSHOT_NAME: FileKind.SNAPSHOT,
    NODE_NAME: FileKind.NODE,
    MANIFEST_NAME: FileKind.REPLICAS,
    IDLE_LOGS_NAME: FileKind.IDLE_LOGS,
    CLEAN_SHUTDOWN_NAME: FileKind.CLEAN_SHUTDOWN,
    RECOVERY_NAME: FileKind.RECOVERY,
    LOCK_NAME: FileKind.LOCK,
}
_BY_NUMBER: Final = {
    LOG_SUFFIX: FileKind.SEGMENT,
    INDEX_SUFFIX: FileKind.INDEX,
    DELETION_SUFFIX: FileKind.DELETION_MARKER,
}
_STAGING: Final = (".tmp", ".cleaned")
_STALE: Final = ".stale"
_TOPIC_DIRECTORY: Final = re.compile(r"(?P<name>.+)\.(?P<id>[0-9a-f]{32})")


class TopicPlace(NamedTuple):
    """The directory of a partition, as its path gives it."""

    topic: str
    topic_id: bytes
    partition: int


def kind_of(path: str) -> FileKind:
    """Return the kind of a file."""
    name = path.rpartition("/")[2]
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.endswith(_STAGING):
        return FileKind.STAGING_FILE
    if name.endswith(_STALE):
        return FileKind.SET_ASIDE
    for suffix, kind in _BY_NUMBER.items():
        if base_offset_of(name, suffix) is not None:
            return kind
    return FileKind.UNKNOWN


def number_in(path: str) -> int:
    """Return the offset in the name of a file, 0 if it has none."""
    stem = path.rpartition("/")[2].partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() else 0


def topic_place(directory: str) -> TopicPlace | None:
    """Return the partition of a directory, `None` if the path does not give it."""
    above, _, number = directory.rpartition("/")
    found = _TOPIC_DIRECTORY.fullmatch(above.rpartition("/")[2])
    if found is None or not number.isdecimal():
        return None
    return TopicPlace(found["name"], bytes.fromhex(found["id"]), int(number))


def content_of(directory: str, topic_id: bytes | None) -> Content:
    """Return the kind of a log's records, by its directory and the topic id in its segments."""
    if topic_id == OWNER.topic_id:
        return Content.ENTRIES
    place = topic_place(directory)
    if place is not None and queue_of_journal(place.topic) is not None:
        return Content.JOURNAL
    return Content.RECORDS
