"""Observer of all Raft nodes: the entries that each applies, and the leaders.

A node publishes no events. So its functions are wrapped for the duration of a run, and the code
under test is unchanged.
"""

# Reads private state of nodes.
# pyright: reportPrivateUsage=false

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from tests.simulation.mutations.mutation import Mutation
from tidelog.coordinator.raft.messages import Entry, Message, SnapshotMeta
from tidelog.coordinator.raft.role import Role
from tidelog.coordinator.raft_node.interfaces import StateMachine, Transport
from tidelog.coordinator.raft_node.node import RaftNode


class Listener(Protocol):
    """Listener for events of nodes."""

    def began(self, node: RaftNode) -> None:
        """Handle a process that starts with the state of its disk, and has applied no entry yet."""
        ...

    def elected(self, node: RaftNode) -> None:
        """Handle a node that has just become leader of its term."""
        ...

    def sends(self, node: RaftNode, message: Message) -> None:
        """Handle a message that is about to leave a node."""
        ...

    def applying(self, node: RaftNode, entry: Entry) -> None:
        """Handle an entry that a node is about to apply."""
        ...

    def applied(self, node: RaftNode, entry: Entry) -> None:
        """Handle an entry that a node has applied."""
        ...

    def restored(self, node: RaftNode, meta: SnapshotMeta) -> None:
        """Handle a snapshot that has replaced the state of a node."""
        ...


@contextmanager
def witnessing(listener: Listener) -> Generator[None]:
    """Report events of all nodes to `listener` while the block runs; it may end their processes."""
    # Wrap the current functions: they may contain mutations.
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

    def send_watched(self: RaftNode, messages: Sequence[Message]) -> None:
        for message in messages:
            listener.sends(self, message)
        send(self, messages)

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
    with Mutation("witness", "an observer is installed", *patches).applied():
        yield


def state_of(node: RaftNode) -> bytes:
    """Return the applied state of a node, as bytes that are equal for equal states."""
    assert node._machine is not None, "it runs"
    return node._machine.snapshot()


def has_entry(node: RaftNode, index: int, term: int) -> bool:
    """Return whether the log of a node has this entry, or a snapshot in its place."""
    log = node._core._log
    return index < log.base.index or log.term_at(index) == term


def snapshot_index(node: RaftNode) -> int:
    """Return the applied index of the state that a process started with."""
    return node._snapshot.meta.index
