"""Records from the cursor on: how many there are, and which of them have to wait.

Pure: no clock, no I/O. Nothing of this is in the journal: it follows from the log.
"""

from collections.abc import Iterator, Sequence
from typing import final

from tidelog.queue_layer.collections.range_map import RangeMap
from tidelog.queue_layer.collections.visibility_timers import VisibilityTimers
from tidelog.queue_layer.ordering.delivery_order import RecordFields


@final
class UnreceivedRecords:
    """The records from the cursor on.

    Invariants: `delayed_count` is the number of offsets in `_times` whose time has not come, and
    `chunk_count` that of those in `_chunks`; all of them lie in `[cursor, end)`.
    """

    def __init__(self, start: int, now_ms: int) -> None:
        self.end = start
        """The end of all records that came."""
        self.delayed_count = 0
        self.chunk_count = 0
        """Records that are no messages, but parts of large ones."""
        self._time_ms = now_ms
        self._times: RangeMap[int] = RangeMap()
        """When records are visible that had to wait, also if that has passed."""
        self._chunks: RangeMap[None] = RangeMap()
        self._timers = VisibilityTimers(self._is_current)

    def on_records(self, end: int) -> None:
        """Learn that there are records up to an offset."""
        self.end = end

    def delay(self, first: int, end: int, deliver_at_ms: int) -> None:
        """Learn that some of those that came have to wait, or had to."""
        begins = self._times.put(first, end, deliver_at_ms)
        if deliver_at_ms > self._time_ms:
            self.delayed_count += end - first
            self._timers.add(deliver_at_ms, begins)

    def skip_chunks(self, first: int, end: int) -> None:
        """Learn that some of those that came are no messages."""
        self._chunks.put(first, end, None)
        self.chunk_count += end - first

    def chunks(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield which of some records are no messages."""
        return ((first, end) for first, end, _ in self._chunks.pieces(first, end))

    def messages(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield which of some records are messages."""
        if not self.chunk_count:
            if first < end:
                yield first, end
            return
        for chunks_first, chunks_end in self.chunks(first, end):
            if first < chunks_first:
                yield first, chunks_first
            first = chunks_end
        if first < end:
            yield first, end

    def delayed(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield which of some records have to wait now, and until when."""
        if self.delayed_count:
            for piece in self._times.pieces(first, end):
                if piece[2] > self._time_ms:
                    yield piece

    @property
    def has_times(self) -> bool:
        """Whether some have to wait or had to."""
        return len(self._times) > 0

    def timed(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield which of some records have to wait or had to, and until when."""
        return self._times.pieces(first, end)

    def remove(self, first: int, end: int) -> None:
        """Learn that records were received, skipped or removed."""
        if self.chunk_count:
            self.chunk_count -= sum(last - at for at, last, _ in self._chunks.cut(first, end))
        if not len(self._times):
            return
        for piece_first, piece_end, time_ms in self._times.cut(first, end):
            if time_ms > self._time_ms:
                self.delayed_count -= piece_end - piece_first
        rest = self._times.starting_at(end)
        if rest is not None and rest[1] > self._time_ms:
            self._timers.add(rest[1], end)

    def next_deadline_ms(self) -> int | None:
        """Return when the next ones have waited enough."""
        return self._timers.next_ms()

    def pop_due(self, now_ms: int) -> list[tuple[int, int, int]]:
        """Return ranges that have waited enough, and when they had; they are not delayed now."""
        if now_ms <= self._time_ms:
            return []
        due: list[tuple[int, int, int]] = []
        for time_ms, first in self._timers.pop_due(now_ms):
            found = self._times.starting_at(first)
            assert found is not None
            self.delayed_count -= found[0] - first
            due.append((first, found[0], time_ms))
        self._time_ms = now_ms
        return due

    def time_of(self, count: int, now_ms: int) -> int:
        """Return a time, up to now, until which so many ranges have waited; now if fewer have."""
        return self._timers.time_of(count, now_ms)

    def _is_current(self, time_ms: int, first: int) -> bool:
        found = self._times.starting_at(first)
        return found is not None and found[1] == time_ms > self._time_ms


def chunks_in(
    first: int, end: int, fields: Sequence[RecordFields] | None
) -> Iterator[tuple[int, int]]:
    """Yield ranges of records that are no messages."""
    at = first
    while fields is not None and at < end:
        stop = at + 1
        if fields[at - first].is_chunk:
            while stop < end and fields[stop - first].is_chunk:
                stop += 1
            yield at, stop
        at = stop


def delays_in(
    first: int, end: int, fields: Sequence[RecordFields] | None, *, deliver_at_ms: int
) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of records that say when they are to be delivered, and that time."""
    if fields is None:
        if deliver_at_ms:
            yield first, end, deliver_at_ms
        return
    for offset, record in enumerate(fields, first):
        if record.deliver_at_ms and not record.is_chunk:
            yield offset, offset + 1, record.deliver_at_ms
