"""Which message of a group comes after which: one number for each offset.

Pure: no clock, no I/O. In memory only; `docs/decisions/0017-group-chains-in-memory.md` says why.

What the number means is the business of `queue_layer.ordering.fifo_order`. It is kept for the
offsets from the
low-water mark to the end of what was read of the log, in blocks; a block is dropped when the
low-water mark has passed it. It takes 8 bytes a message, whatever the number of groups.

Nothing here is ever the only copy: it is made from the log whenever a broker begins to serve the
queue.
"""

from array import array
from typing import Final, Protocol, final

BLOCK_OFFSETS: Final = 4096
"""Offsets of one block: 32 kB."""
NO_LINK: Final = -1
"""The number of an offset that was given none."""


class GroupLinks(Protocol):
    """A number for each offset."""

    def get(self, offset: int) -> int:
        """Return the number of an offset that is not below the mark, `NO_LINK` if it has none."""
        ...

    def put(self, offset: int, link: int) -> None:
        """Give an offset at or above the low-water mark this number."""
        ...

    def drop_below(self, offset: int) -> None:
        """Forget, sooner or later, the numbers of lower offsets: nobody asks for them any more."""
        ...


def put_link(block: "array[int]", place: int, link: int) -> None:
    """Write a number into a block, which is only as long as it has to be."""
    if place >= len(block):
        block.extend([NO_LINK] * (place + 1 - len(block)))
    block[place] = link


@final
class InMemoryGroupLinks:
    """A number for each offset, in memory."""

    __slots__ = ("_blocks", "_first_block")

    def __init__(self) -> None:
        """Begin with no numbers."""
        self._blocks: dict[int, array[int]] = {}
        self._first_block = 0
        """Blocks below it were dropped."""

    def get(self, offset: int) -> int:
        """Return the number of an offset, `NO_LINK` if it has none."""
        block = self._blocks.get(offset // BLOCK_OFFSETS)
        place = offset % BLOCK_OFFSETS
        return block[place] if block is not None and place < len(block) else NO_LINK

    def put(self, offset: int, link: int) -> None:
        """Give an offset this number."""
        number = offset // BLOCK_OFFSETS
        block = self._blocks.get(number)
        if block is None:
            if number < self._first_block:
                return
            block = self._blocks[number] = array("q")
        put_link(block, offset % BLOCK_OFFSETS, link)

    def drop_below(self, offset: int) -> None:
        """Drop the blocks all of whose offsets are lower."""
        end = offset // BLOCK_OFFSETS
        if end - self._first_block < len(self._blocks):
            for number in range(self._first_block, end):
                self._blocks.pop(number, None)
        elif end > self._first_block:
            for number in [number for number in self._blocks if number < end]:
                del self._blocks[number]
        self._first_block = max(end, self._first_block)
