"""Records from the cursor on: their number, and which of them are delayed.

Pure: no clock, no I/O. None of this is in the journal: it follows from the log.
"""

from collections.abc import Iterator, Sequence
from typing import final

from tidelog.queue_layer.collections.range_map import RangeMap
from tidelog.queue_layer.collections.visibility_timers import VisibilityTimers
from tidelog.queue_layer.ordering.delivery_order import RecordFields


@final
class UnreceivedRecords:
    """Records from the cursor on.

    Invariants: `delayed_count` is the number of offsets in `_times` whose time is in the future,
    and `chunk_count` is the number of those in `_chunks`; all of them are in `[cursor, end)`.
    """

    __slots__ = (
        "_chunks",
        "_times",
        "chunk_count",
        "delayed_count",
        "end",
        "is_plain",
        "time_ms",
        "timers",
    )

    def __init__(self, start: int, now_ms: int) -> None:
        self.end = start
        """End of all known records."""
        self.delayed_count = 0
        self.chunk_count = 0
        """Records that are no messages, but chunks of large ones."""
        self.is_plain = True
        """Whether all records are messages without a delivery time."""
        self.time_ms = now_ms
        self._times: RangeMap[int] = RangeMap()
        """Delivery times of delayed records, past ones included."""
        self._chunks: RangeMap[None] = RangeMap()
        self.timers = VisibilityTimers(self._is_current)
        """Timers of records that become visible."""

    def on_records(self, end: int) -> None:
        """Add records up to an offset."""
        self.end = end

    def delay(self, first: int, end: int, deliver_at_ms: int) -> None:
        """Set the delivery time of records, in the past or the future."""
        self.is_plain = False
        begins = self._times.put(first, end, deliver_at_ms)
        if deliver_at_ms > self.time_ms:
            self.delayed_count += end - first
            self.timers.add(deliver_at_ms, begins)

    def skip_chunks(self, first: int, end: int) -> None:
        """Mark records as chunks, which are no messages."""
        self.is_plain = False
        self._chunks.put(first, end, None)
        self.chunk_count += end - first

    def chunks(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the records of a range that are no messages."""
        return ((first, end) for first, end, _ in self._chunks.pieces(first, end))

    def messages(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the records of a range that are messages."""
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
        """Yield the records of a range that are delayed now, with their times."""
        if self.delayed_count:
            for piece in self._times.pieces(first, end):
                if piece[2] > self.time_ms:
                    yield piece

    @property
    def has_times(self) -> bool:
        """Whether any record has a delivery time, past or future."""
        return bool(self._times.ranges)

    def timed(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the records of a range that have a delivery time, with that time."""
        return self._times.pieces(first, end)

    def remove(self, first: int, end: int) -> None:
        """Remove records that were received, skipped or removed."""
        if self.is_plain:
            return
        if self.chunk_count:
            self.chunk_count -= sum(last - at for at, last, _ in self._chunks.cut(first, end))
        if not self._times.ranges:
            self.is_plain = not self.chunk_count
            return
        for piece_first, piece_end, time_ms in self._times.cut(first, end):
            if time_ms > self.time_ms:
                self.delayed_count -= piece_end - piece_first
        self.is_plain = not (self.chunk_count or self._times.ranges)
        rest = self._times.starting_at(end)
        if rest is not None and rest[1] > self.time_ms:
            self.timers.add(rest[1], end)

    def next_deadline_ms(self) -> int | None:
        """Return the next delivery time."""
        return self.timers.next_ms()

    def pop_due(self, now_ms: int) -> list[tuple[int, int, int]]:
        """Return ranges whose delivery time has come, with it; they are not delayed any more."""
        if now_ms <= self.time_ms:
            return []
        due: list[tuple[int, int, int]] = []
        for time_ms, first in self.timers.pop_due(now_ms):
            found = self._times.starting_at(first)
            assert found is not None
            self.delayed_count -= found[0] - first
            due.append((first, found[0], time_ms))
        self.time_ms = now_ms
        return due

    def time_of(self, count: int, now_ms: int) -> int:
        """Return the time by which `count` ranges become visible, `now_ms` at most."""
        return self.timers.time_of(count, now_ms)

    def _is_current(self, time_ms: int, first: int) -> bool:
        found = self._times.starting_at(first)
        return found is not None and found[1] == time_ms > self.time_ms


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
    """Yield ranges of records with a delivery time, and that time."""
    if fields is None:
        if deliver_at_ms:
            yield first, end, deliver_at_ms
        return
    for offset, record in enumerate(fields, first):
        if record.deliver_at_ms and not record.is_chunk:
            yield offset, offset + 1, record.deliver_at_ms
