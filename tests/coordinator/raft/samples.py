"""Identities, entries and messages for the tests of Raft."""

from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import Entry, EntryId, EntryKind, SnapshotMeta

A, B, C, D = (Identity(node_id, b"disk-%d" % node_id) for node_id in range(1, 5))
B_WITH_NEW_DISK = Identity(2, b"another")

THREE = Membership.of_voters([A, B, C])


def entry(index: int, term: int, payload: bytes = b"") -> Entry:
    """Return a command."""
    return Entry(index, term, EntryKind.COMMAND, payload)


def entries(*terms: int, first: int = 1) -> list[Entry]:
    """Return consecutive commands of these terms."""
    return [entry(first + position, term) for position, term in enumerate(terms)]


def at(index: int, term: int) -> EntryId:
    """Return the id of an entry."""
    return EntryId(index, term)


def snapshot(index: int, term: int, membership: Membership = THREE) -> SnapshotMeta:
    """Return the core's part of a snapshot."""
    return SnapshotMeta(index, term, membership)


NOTHING = snapshot(0, 0)
"""The first state of a voter of a new cluster."""
