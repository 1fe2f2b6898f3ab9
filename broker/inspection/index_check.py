"""Check of an index against its segment, batch by batch.

Pure: no clock, no I/O.
"""

from typing import final

from tidelog.logstore.segments.offset_index import OffsetIndex


@final
class IndexCheck:
    """An index, compared during the walk over its segment.

    An entry is right if a batch begins at its position with its offset, and no batch before has a
    larger timestamp than the entry: a search would begin too late. The entry's timestamp may be
    larger, from batches that were truncated.
    """

    def __init__(self, index: OffsetIndex) -> None:
        """Expect the batches of all entries, in order."""
        self._entries = index.entries()
        self._next = next(self._entries, None)
        self.problem: str | None = None
        """The first problem found."""

    def batch(self, offset: int, position: int, *, max_timestamp_before: int) -> None:
        """Compare the entries up to a batch."""
        while self._next is not None and self._next[1] <= position:
            entry_offset, entry_position, before_ms = self._next
            if entry_position < position:
                self._note(f"no batch begins at position {entry_position}, as an entry says")
            elif entry_offset != offset:
                self._note(
                    f"an entry says that offset {entry_offset} is at position {position},"
                    f" where offset {offset} is"
                )
            elif before_ms < max_timestamp_before:
                self._note(
                    f"an entry gives {before_ms} as the largest timestamp before offset {offset},"
                    f" and a record has {max_timestamp_before}"
                )
            self._next = next(self._entries, None)

    def end(self) -> str | None:
        """Return the problem after the last batch, `None` if there is none."""
        if self._next is not None:
            self._note(f"no batch begins at position {self._next[1]}, as an entry says")
        return self.problem

    def _note(self, problem: str) -> None:
        if self.problem is None:
            self.problem = problem
