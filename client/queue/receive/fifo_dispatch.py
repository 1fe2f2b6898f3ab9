"""Which of the messages that a worker has may begin: of a FIFO group, one after the other.

Pure: no clock, no I/O. A message without a group may begin at any time. Of a group, the first one
may; the next one when that is done for good. If it is not, what stands behind it is not to begin at
all, for it would overtake.
"""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar, final

Item = TypeVar("Item")


@final
class FifoDispatch(Generic[Item]):
    """Messages that have not begun.

    Invariant: of each group at most one message is ready or has begun.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._ready: deque[Item] = deque()
        self._behind: dict[Hashable, deque[Item]] = {}
        """What waits, by group, for each of which one message is ready or has begun."""

    @property
    def ready_count(self) -> int:
        """How many may begin now."""
        return len(self._ready)

    @property
    def behind_count(self) -> int:
        """How many wait for others of their groups."""
        return sum(map(len, self._behind.values()))

    def put(self, item: Item, group: Hashable | None) -> None:
        """Put an item behind those of its group; `None` is no group."""
        if group is None:
            self._ready.append(item)
        elif (behind := self._behind.get(group)) is not None:
            behind.append(item)
        else:
            self._behind[group] = deque()
            self._ready.append(item)

    def begin(self) -> Item:
        """Return the item that is ready for the longest time; none of its group is until it ends.

        Raises:
            IndexError: Nothing is ready.
        """
        return self._ready.popleft()

    def go_on(self, group: Hashable | None) -> None:
        """Let the next one of a group begin, for the one that had begun is done."""
        behind = self._behind.get(group)
        if behind:
            self._ready.append(behind.popleft())
        else:
            self._behind.pop(group, None)

    def break_off(self, group: Hashable | None) -> list[Item]:
        """Take out and return what waits in a group, for the one that had begun is not done."""
        return list(self._behind.pop(group, ()))

    def clear(self) -> list[Item]:
        """Take out and return everything."""
        found = [*self._ready, *(item for behind in self._behind.values() for item in behind)]
        self._ready.clear()
        self._behind.clear()
        return found
