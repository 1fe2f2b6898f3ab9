"""Values that pass between the core and its shell.

Pure: no clock, no I/O.
"""

from typing import Final, final

import msgspec

from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import Entry, EntryId, Message, SnapshotMeta
from tidelog.wire.messages.field_types import Epoch


@final
class HardState(msgspec.Struct, frozen=True, array_like=True):
    """The promises of a node; forgetting them breaks elections."""

    term: Epoch = 0
    """The highest term that the node has met."""
    voted_for: Identity | None = None
    """The candidate that has the node's vote in this term."""

    def covers(self, other: "HardState") -> bool:
        """Return whether a node with this hard state keeps the promises of `other` as well.

        A later term covers all of an earlier one, in which the node never votes again.
        """
        if self.term != other.term:
            return self.term > other.term
        return other.voted_for is None or other.voted_for == self.voted_for


@final
class Write(msgspec.Struct, frozen=True):
    """State that must be on the disk before `RaftCore.synced` is called with it.

    It is written in this order: hard state; snapshot; entries. So a crash at any point leaves a
    state that `StoredState` can start from.
    """

    hard_state: HardState | None
    """The new term and vote; `None` if they are the same as before."""
    snapshot: SnapshotMeta | None
    """Make the data of this snapshot durable, then empty the log: it restarts behind it."""
    entries: tuple[Entry, ...]
    """Truncate the log before the first of them, then append them."""
    last: EntryId
    """The end of the log after that."""


@final
class StoredState(msgspec.Struct, frozen=True):
    """The state on disk at the start of a node."""

    hard_state: HardState
    snapshot: SnapshotMeta
    """The newest snapshot with complete data. A new node has one of index and term 0. Its
    membership names all voters on the voters of a new cluster; on a node that will join a cluster
    it is empty."""
    entries: tuple[Entry, ...] = ()
    """All entries of the log. The core removes the remains of a crash."""


@final
class ReadState(msgspec.Struct, frozen=True):
    """A read that may be served."""

    context: int
    """The context that `RaftCore.read` got."""
    index: int
    """When the state machine has applied this index, it has all that was committed before the
    read."""


@final
class Ready(msgspec.Struct, frozen=True):
    """The pending work of a shell."""

    write: Write | None
    """Make this durable, then call `RaftCore.synced` with it; until then there is no other
    write."""
    messages: tuple[Message, ...]
    """Messages to send at once: none depends on a write that is not synced. May be lost."""
    snapshot: SnapshotMeta | None
    """Replace the state machine by this snapshot, which is durable, before `committed`."""
    committed: tuple[Entry, ...]
    """Entries to apply, in this order; durable here, and returned once."""
    reads: tuple[ReadState, ...]
    """Reads that a majority has confirmed."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no work."""
        return not (self.write or self.messages or self.snapshot or self.committed or self.reads)


EMPTY_READY: Final = Ready(None, (), None, (), ())


@final
class AddLearner(msgspec.Struct, frozen=True):
    """Add a node that gets all entries without a vote."""

    identity: Identity


@final
class Promote(msgspec.Struct, frozen=True):
    """Promote a learner that has caught up to a voter."""

    node_id: int


@final
class Remove(msgspec.Struct, frozen=True):
    """Remove a voter or learner, running or not."""

    node_id: int


MembershipChange = AddLearner | Promote | Remove
