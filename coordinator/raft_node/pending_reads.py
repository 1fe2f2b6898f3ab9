"""Pending reads, which wait until the local state machine has all entries committed before them."""

from dataclasses import dataclass, field
from typing import final

import trio


@dataclass(slots=True)
class PendingRead:
    """One read."""

    context: int
    """Name of the read in the core."""
    is_over: trio.Event = field(default_factory=trio.Event)
    """Set when the read may be served, or never will be."""
    index: int | None = None
    """The index to apply first, `None` before a majority has confirmed the read."""


@final
class PendingReads:
    """The pending reads of one node."""

    def __init__(self) -> None:
        """Start empty."""
        self._count = 0
        self.open: dict[int, PendingRead] = {}
        """The reads that wait, by context; read-only."""

    def add(self) -> PendingRead:
        """Return a new read, which waits until it is removed."""
        self._count += 1
        read = self.open[self._count] = PendingRead(self._count)
        return read

    def remove(self, read: PendingRead) -> None:
        """Remove a read."""
        self.open.pop(read.context, None)

    def confirmed(self, context: int, *, index: int) -> None:
        """Record that a read may be served when all entries up to `index` are applied."""
        read = self.open.get(context)
        if read is not None:  # A cancelled read was removed.
            read.index = index

    def applied(self, index: int) -> None:
        """Wake the reads whose index is applied."""
        for read in self.open.values():
            if read.index is not None and read.index <= index:
                read.is_over.set()

    def wake_all(self) -> None:
        """Wake all reads: this node does not lead any more."""
        for read in self.open.values():
            read.is_over.set()
