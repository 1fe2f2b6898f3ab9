"""Records behind the cursor: how many there are, and which of them have to wait.

Pure: no clock, no I/O. Nothing of this is in the journal: it follows from the log.
"""

from collections.abc import Iterator
from typing import final

from queue_layer.deadlines import Deadlines
from queue_layer.range_map import RangeMap


@final
class FreshRecords:
    """What came and was neither received nor passed over.

    Invariant: `delayed_count` is the number of offsets in the ranges of `_delays`, all of which
    lie in `[cursor, end)` and have a time after the one that was last given to `pop_due`.
    """

    def __init__(self, start: int) -> None:
        self.end = start
        """The end of all records that came."""
        self.delayed_count = 0
        self._delays: RangeMap[int] = RangeMap()
        self._deadlines = Deadlines(self._is_current)

    def came(self, end: int) -> None:
        """Learn that there are records up to an offset."""
        self.end = end

    def delay(self, first: int, end: int, deliver_at_ms: int) -> None:
        """Learn that some of those that came have to wait."""
        begins = self._delays.put(first, end, deliver_at_ms)
        self.delayed_count += end - first
        self._deadlines.add(deliver_at_ms, begins)

    def delayed(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield which of some records have to wait, and until when."""
        return self._delays.pieces(first, end)

    def remove(self, first: int, end: int) -> None:
        """Learn that records are not fresh any more."""
        if not self.delayed_count:
            return
        for piece_first, piece_end, _ in self._delays.cut(first, end):
            self.delayed_count -= piece_end - piece_first
        rest = self._delays.starting_at(end)
        if rest is not None:
            self._deadlines.add(rest[1], end)

    def next_deadline_ms(self) -> int | None:
        """Return when the next ones have waited enough."""
        return self._deadlines.next_ms()

    def pop_due(self, now_ms: int) -> list[tuple[int, int, int]]:
        """Return ranges that have waited enough, and when they had; they are not delayed now."""
        due: list[tuple[int, int, int]] = []
        for time_ms, first in self._deadlines.pop_due(now_ms):
            found = self._delays.starting_at(first)
            assert found is not None
            end, _ = found
            self._delays.cut(first, end)
            self.delayed_count -= end - first
            due.append((first, end, time_ms))
        return due

    def _is_current(self, time_ms: int, first: int) -> bool:
        found = self._delays.starting_at(first)
        return found is not None and found[1] == time_ms
