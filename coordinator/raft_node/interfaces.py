"""What a node of Raft needs around it: what the commands add up to, and a way to the others.

Pure: declarations.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from tidelog.coordinator.raft.messages import Message, SnapshotRequest


class StateMachine(Protocol):
    """What the committed commands add up to."""

    def apply(self, index: int, command: bytes, decoded: object | None) -> None:
        """Carry out one command; they come in order, each once.

        `decoded` is what this process proposed the very entry with, `None` if there is nothing.

        Raises:
            DataDirectoryError: It is of a newer version.
        """
        ...

    def snapshot(self) -> bytes:
        """Return all of the state."""
        ...

    def restore(self, data: bytes) -> None:
        """Become what a snapshot says, whatever was before.

        Raises:
            DataDirectoryError: It is of a newer version.
        """
        ...


class Transport(Protocol):
    """The way to the other nodes; see `coordinator.raft_node.transport`."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages, each to its target; returns at once, and may lose them."""
        ...

    def send_snapshot(
        self, message: SnapshotRequest, data: bytes, *, on_failed: Callable[[], None]
    ) -> None:
        """Send a snapshot beside its message; returns at once, calls `on_failed` if it is lost."""
        ...
