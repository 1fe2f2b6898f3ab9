"""What goes between the core and its shell.

Pure: no clock, no I/O.
"""

from typing import Final, final

import msgspec

from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import Entry, EntryId, Message, SnapshotMeta


@final
class HardState(msgspec.Struct, frozen=True, array_like=True):
    """What a node has promised; forgetting it breaks elections."""

    term: int = 0
    """The highest that the node has met."""
    voted_for: Identity | None = None
    """Who got the node's vote in this term."""

    def covers(self, other: "HardState") -> bool:
        """Return whether whoever remembers this keeps the promises of `other` as well.

        A later term covers all of an earlier one: the node votes in that one never again.
        """
        if self.term != other.term:
            return self.term > other.term
        return other.voted_for is None or other.voted_for == self.voted_for


@final
class Write(msgspec.Struct, frozen=True):
    """What must be on the disk before `RaftCore.synced` is called with it.

    In this order, so that a crash at any point leaves what `StoredState` can begin with: hard
    state; snapshot; entries.
    """

    hard_state: HardState | None
    """The new term and vote; `None` if they are the same as before."""
    snapshot: SnapshotMeta | None
    """Make the data of this snapshot durable, then empty the log: it begins anew behind it."""
    entries: tuple[Entry, ...]
    """Cut the log before the first of them, then append them."""
    last: EntryId
    """Where the log ends when that is done."""


@final
class StoredState(msgspec.Struct, frozen=True):
    """What the disk has when a node starts."""

    hard_state: HardState
    snapshot: SnapshotMeta
    """The newest one whose data is whole. A new node has one of index and term 0: on the voters of
    a new cluster its membership names them all; on one that will join it is empty."""
    entries: tuple[Entry, ...] = ()
    """All that the log has. The core sorts out what a crash has left."""


@final
class ReadState(msgspec.Struct, frozen=True):
    """A read that may be served."""

    context: int
    """What was given to `RaftCore.read`."""
    index: int
    """When the state machine has applied so much, it has all that was committed before the read."""


@final
class Ready(msgspec.Struct, frozen=True):
    """What there is to do."""

    write: Write | None
    """Make this durable, then call `RaftCore.synced` with it; until then there is no other one."""
    messages: tuple[Message, ...]
    """To be sent at once: nothing in them depends on a write that is not synced. May be lost."""
    snapshot: SnapshotMeta | None
    """Replace the state machine by this snapshot, which is durable, before `committed`."""
    committed: tuple[Entry, ...]
    """To be applied, in this order; durable here, and handed out once."""
    reads: tuple[ReadState, ...]
    """Reads that a majority has confirmed."""

    @property
    def is_empty(self) -> bool:
        """There is nothing to do."""
        return not (self.write or self.messages or self.snapshot or self.committed or self.reads)


EMPTY_READY: Final = Ready(None, (), None, (), ())


@final
class AddLearner(msgspec.Struct, frozen=True):
    """Let a node get all entries, without a say."""

    identity: Identity


@final
class Promote(msgspec.Struct, frozen=True):
    """Make a learner that has caught up a voter."""

    node_id: int


@final
class Remove(msgspec.Struct, frozen=True):
    """Let a voter or learner go, whether it runs or not."""

    node_id: int


MembershipChange = AddLearner | Promote | Remove
