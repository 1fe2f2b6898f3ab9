"""Reads that wait until the state machine here has all that was committed before them."""

from dataclasses import dataclass, field
from typing import final

import trio


@dataclass(slots=True)
class PendingRead:
    """One read."""

    context: int
    """What the core knows it by."""
    is_over: trio.Event = field(default_factory=trio.Event)
    """Set when it may be served, or never will be."""
    index: int | None = None
    """What must be applied before, `None` before a majority has confirmed it."""


@final
class PendingReads:
    """The reads under way on one node."""

    def __init__(self) -> None:
        """Begin with none."""
        self._count = 0
        self._reads: dict[int, PendingRead] = {}

    def add(self) -> PendingRead:
        """Return a new read, which waits until it is removed."""
        self._count += 1
        read = self._reads[self._count] = PendingRead(self._count)
        return read

    def remove(self, read: PendingRead) -> None:
        """Forget a read."""
        self._reads.pop(read.context, None)

    def confirmed(self, context: int, *, index: int) -> None:
        """Take note that a read may be served when all up to `index` is applied."""
        read = self._reads.get(context)
        if read is not None:  # Or else nobody waits for it any more.
            read.index = index

    def applied(self, index: int) -> None:
        """Wake whoever needs no more than what is applied."""
        for read in self._reads.values():
            if read.index is not None and read.index <= index:
                read.is_over.set()

    def wake_all(self) -> None:
        """Wake everybody: this node does not lead any more."""
        for read in self._reads.values():
            read.is_over.set()
