"""Interfaces of a Raft node: its state machine and its transport.

Pure: declarations.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from tidelog.coordinator.raft.messages import Message, SnapshotRequest


class StateMachine(Protocol):
    """The state machine that committed commands drive."""

    def apply(self, index: int, command: bytes, decoded: object | None) -> None:
        """Apply one command; commands come in order, each once.

        `decoded` is the decoded form of an entry that this process proposed, otherwise `None`.

        Raises:
            DataDirectoryError: It is of a newer version, or does not fit the state.
        """
        ...

    def check_entry(self, command: bytes) -> None:
        """Check that a command can be read, before it is written to the log.

        Raises:
            WireFormatError: This version cannot read it.
        """
        ...

    def check_snapshot(self, data: bytes) -> None:
        """Check that a snapshot can be read, before it is written to the disk.

        Raises:
            WireFormatError: This version cannot read it.
        """
        ...

    def snapshot(self) -> bytes:
        """Return the whole state."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace the state by that of a snapshot.

        Raises:
            DataDirectoryError: The snapshot is of a newer version.
        """
        ...


class Transport(Protocol):
    """The transport to the other nodes; see `coordinator.raft_node.transport`."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages, each to its target; returns at once, and may lose them."""
        ...

    def send_snapshot(
        self, message: SnapshotRequest, data: bytes, *, on_failed: Callable[[], None]
    ) -> None:
        """Send a snapshot beside its message; returns at once, calls `on_failed` if it is lost."""
        ...
