"""Somebody who reads over the shoulders of all nodes of Raft: what each applies, and who leads.

A node tells nobody what it applies. So its functions are wrapped for as long as a run goes on;
the code under test knows nothing of it.
"""

# It looks at what nodes show to nobody.
# pyright: reportPrivateUsage=false

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol

from tests.simulation.mutations.mutation import Mutation
from tidelog.coordinator.raft.messages import Entry, Message, SnapshotMeta
from tidelog.coordinator.raft.ready import Ready
from tidelog.coordinator.raft.role import Role
from tidelog.coordinator.raft_node.interfaces import StateMachine, Transport
from tidelog.coordinator.raft_node.node import RaftNode


class Listener(Protocol):
    """Whoever wants to know what nodes do."""

    def began(self, node: RaftNode) -> None:
        """A process takes part; it has what its disk had, and has applied nothing yet."""
        ...

    def elected(self, node: RaftNode) -> None:
        """A node has just begun to lead the term that it is in."""
        ...

    def sends(self, node: RaftNode, message: Message) -> None:
        """A message is about to leave a node."""
        ...

    def applying(self, node: RaftNode, entry: Entry) -> None:
        """A node is about to apply an entry of its log, and to act on it."""
        ...

    def applied(self, node: RaftNode, entry: Entry) -> None:
        """A node has applied an entry of its log."""
        ...

    def restored(self, node: RaftNode, meta: SnapshotMeta) -> None:
        """The state of a node was replaced by that of a snapshot."""
        ...


@contextmanager
def witnessing(listener: Listener) -> Generator[None]:
    """Tell `listener` of all nodes while the block runs; it may end their processes."""
    # As they are now: there may be mutations in them.
    run, note_role = RaftNode.run, RaftNode._note_role
    send, apply, restore = RaftNode._send, RaftNode._apply, RaftNode._restore

    async def run_watched(self: RaftNode, machine: StateMachine, links: Transport) -> None:
        listener.began(self)
        await run(self, machine, links)

    def note_role_watched(self: RaftNode) -> None:
        before = self._role_seen
        note_role(self)
        if self._role_seen != before and self._role_seen[0] is Role.LEADER:
            listener.elected(self)

    def send_watched(self: RaftNode, ready: Ready) -> None:
        for message in ready.messages:
            listener.sends(self, message)
        send(self, ready)

    def apply_watched(self: RaftNode, entry: Entry) -> None:
        listener.applying(self, entry)
        apply(self, entry)
        listener.applied(self, entry)

    def restore_watched(self: RaftNode, meta: SnapshotMeta) -> None:
        restore(self, meta)
        listener.restored(self, meta)

    wrapped: dict[str, Any] = {
        "run": run_watched,
        "_note_role": note_role_watched,
        "_send": send_watched,
        "_apply": apply_watched,
        "_restore": restore_watched,
    }
    patches = [(RaftNode, name, function) for name, function in wrapped.items()]
    with Mutation("witness", "somebody watches", *patches).applied():
        yield


def state_of(node: RaftNode) -> bytes:
    """Return all that a node has applied, as bytes that are equal for equal states."""
    assert node._machine is not None, "it runs"
    return node._machine.snapshot()


def has_entry(node: RaftNode, index: int, term: int) -> bool:
    """Return whether the log of a node has this entry, or a snapshot in its place."""
    log = node._core._log
    return index < log.base.index or log.term_at(index) == term


def snapshot_index(node: RaftNode) -> int:
    """Return where the state begins with which a process has started."""
    return node._snapshot.meta.index
