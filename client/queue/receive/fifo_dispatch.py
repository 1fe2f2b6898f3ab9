"""Dispatch of a worker's messages to its handlers, one at a time for each FIFO group.

Pure: no clock, no I/O. A message without a group may start at any time. In a group, the first one
may; the next one when that is done for good. If it is not done, the messages behind it must not
start, because they would overtake it.
"""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar, final

Item = TypeVar("Item")


@final
class FifoDispatch(Generic[Item]):
    """Messages that have not started.

    Invariant: at most one message of each group is ready or has started.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.behind_count = 0
        """Number of messages that wait for others of their groups."""
        self.ready: deque[Item] = deque()
        """Messages that may start now; the first one is ready for the longest time."""
        self._behind: dict[Hashable, deque[Item]] = {}
        """Waiting messages of each group with a message that is ready or has started."""

    def take_ready(self) -> list[Item]:
        """Remove and return the items of `ready`; `break_off` returns those behind each."""
        found = list(self.ready)
        self.ready.clear()
        return found

    def put(self, item: Item, group: Hashable | None) -> None:
        """Add an item behind those of its group; `None` is no group."""
        if group is None:
            self.ready.append(item)
        elif (behind := self._behind.get(group)) is not None:
            behind.append(item)
            self.behind_count += 1
        else:
            self._behind[group] = deque()
            self.ready.append(item)

    def begin(self) -> Item:
        """Remove and return the item that is ready for the longest time.

        Raises:
            IndexError: Nothing is ready.
        """
        return self.ready.popleft()

    def go_on(self, group: Hashable | None) -> Item | None:
        """Make the next item of a group ready, after the one that had started is done.

        Return that item, `None` if there is none.
        """
        behind = self._behind.get(group)
        if not behind:
            self._behind.pop(group, None)
            return None
        item = behind.popleft()
        self.ready.append(item)
        self.behind_count -= 1
        return item

    def break_off(self, group: Hashable | None) -> list[Item]:
        """Remove and return the waiting items of a group, whose started item is not done."""
        found = list(self._behind.pop(group, ()))
        self.behind_count -= len(found)
        return found

    def clear(self) -> list[Item]:
        """Remove and return all items."""
        found = [*self.ready, *(item for behind in self._behind.values() for item in behind)]
        self.ready.clear()
        self._behind.clear()
        self.behind_count = 0
        return found
