"""Links between the messages of a group: one number for each offset.

Pure: no clock, no I/O. In memory only; `docs/decisions/0017-group-chains-in-memory.md` has the
reasons.

`queue_layer.ordering.fifo_order` defines the meaning of the number. Numbers are kept in blocks, for
the offsets from the low-water mark to the last record that was read. A block is dropped when the
low-water mark has passed it. It takes 8 bytes a message, regardless of the number of groups.

The numbers are never the only copy: a broker that starts to serve the queue rebuilds them from the
log.
"""

from array import array
from typing import Final, Protocol, final

BLOCK_OFFSETS: Final = 4096
"""Offsets of one block: 32 kB."""
NO_LINK: Final = -1
"""Number of an offset without a link."""


class GroupLinks(Protocol):
    """Number for each offset."""

    def get(self, offset: int) -> int:
        """Return the number of an offset that is not below the mark, `NO_LINK` without one."""
        ...

    def put(self, offset: int, link: int) -> None:
        """Set the number of an offset at or above the low-water mark."""
        ...

    def drop_below(self, offset: int) -> None:
        """Drop, sooner or later, the numbers of lower offsets, which are not needed any more."""
        ...


def put_link(block: "array[int]", place: int, link: int) -> None:
    """Write a number into a block, which is only as long as it has to be."""
    if place >= len(block):
        block.extend([NO_LINK] * (place + 1 - len(block)))
    block[place] = link


@final
class InMemoryGroupLinks:
    """Number for each offset, in memory."""

    __slots__ = ("_blocks", "_first_block")

    def __init__(self) -> None:
        """Start without numbers."""
        self._blocks: dict[int, array[int]] = {}
        self._first_block = 0
        """First block that was not dropped."""

    def get(self, offset: int) -> int:
        """Return the number of an offset, `NO_LINK` without one."""
        block = self._blocks.get(offset // BLOCK_OFFSETS)
        place = offset % BLOCK_OFFSETS
        return block[place] if block is not None and place < len(block) else NO_LINK

    def put(self, offset: int, link: int) -> None:
        """Set the number of an offset."""
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
