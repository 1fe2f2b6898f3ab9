"""Entries and snapshots of the cluster's one log, which holds metadata and consumer groups.

Pure: no clock, no I/O. An entry is an array of records, all about the cluster's metadata or all
about consumer groups; their tags tell them apart. So there is one log, and one snapshot is of one
moment. Entries and snapshots from before consumer groups existed are read unchanged.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, get_args

import msgspec

from tidelog.coordinator.groups.records import GroupRecord
from tidelog.coordinator.groups.state_machine import ConsumerGroups, GroupsSnapshot
from tidelog.coordinator.metadata import records as cluster_records
from tidelog.coordinator.metadata.records import Record
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.wire.errors import InvalidConfigError, InvalidRequestError

STATE_ERRORS: Final = (
    *(msgspec.MsgspecError, InvalidConfigError, LookupError, ValueError),
    *(TypeError, AttributeError, AssertionError),
)
"""Errors of records that cannot be read, or do not fit the state before them."""


class StateSnapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """The replicated state of a cluster, as of one entry."""

    cluster: cluster_records.ClusterSnapshot
    groups: GroupsSnapshot


class LevelSnapshot(StateSnapshot, frozen=True, array_like=True, tag="snapshot-with-level"):
    """The same for a cluster with a feature level, which a version without levels would drop."""


class EntryRecords(NamedTuple):
    """The records of one entry by their kind; one of the two is empty."""

    cluster: Sequence[Record]
    groups: Sequence[GroupRecord]


def encode_entry(records: Sequence[Record] | Sequence[GroupRecord]) -> bytes:
    """Return the payload of one entry; records of one kind, in their order.

    Raises:
        InvalidRequestError: `decode_entry` could not read the payload: a value is out of range.
    """
    try:
        payload = _encoder.encode(records)
        decode_entry(payload)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"the command would write metadata that no node can read: {error}; nothing was changed"
        ) from error
    return payload


def decode_entry(payload: bytes | memoryview) -> EntryRecords:
    """Return the records of one entry.

    Raises:
        msgspec.MsgspecError: The entry is damaged, or of an unknown version.
    """
    # All are of one kind. `cast` would cost each entry two calls.
    records: list[Any] = _entry_decoder.decode(payload)
    if records and type(records[0]) in _GROUP_RECORDS:
        return EntryRecords([], records)
    return EntryRecords(records, [])


def encode_snapshot(cluster: ClusterState, groups: ConsumerGroups) -> bytes:
    """Return both states as bytes; `decode_snapshot` is the inverse."""
    kind = LevelSnapshot if cluster.used_level else StateSnapshot
    return _encoder.encode(kind(cluster.snapshot(), groups.snapshot()))


def decode_snapshot_records(
    data: bytes | memoryview,
) -> StateSnapshot | cluster_records.ClusterSnapshot:
    """Return the records of a snapshot, also of one from before consumer groups existed.

    Raises:
        msgspec.MsgspecError: The snapshot is damaged, or of an unknown version.
    """
    found: StateSnapshot | cluster_records.ClusterSnapshot = _snapshot_decoder.decode(data)
    return found


def decode_snapshot(data: bytes | memoryview) -> tuple[MetadataStateMachine, ConsumerGroups]:
    """Restore the state machines from their snapshot.

    Raises:
        msgspec.MsgspecError: The snapshot is damaged, or of an unknown version.
        InvalidConfigError: A newer version recorded a setting that this one does not know.
    """
    snapshot = decode_snapshot_records(data)
    if isinstance(snapshot, StateSnapshot):
        cluster, groups = snapshot.cluster, ConsumerGroups.restore(snapshot.groups)
    else:
        cluster, groups = snapshot, ConsumerGroups()
    return MetadataStateMachine(ClusterState.from_snapshot(cluster)), groups


_GROUP_RECORDS: Final = frozenset(get_args(GroupRecord))
_encoder = msgspec.msgpack.Encoder()
_entry_decoder = msgspec.msgpack.Decoder(list[Record | GroupRecord])
_snapshot_decoder = msgspec.msgpack.Decoder(
    StateSnapshot | LevelSnapshot | cluster_records.ClusterSnapshot
)
