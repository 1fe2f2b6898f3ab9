"""Fair order, as in SQS fair queues: a group with many messages in flight does not block others.

Pure: no clock, no I/O. It stores each message that is not done, 8 bytes for most of them.
"""

from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from hashlib import blake2b
from heapq import nlargest
from itertools import chain
from typing import Final, final

from tidelog.queue_layer.collections.range_map import RangeMap
from tidelog.queue_layer.ordering.delivery_order import (
    Candidates,
    GroupSize,
    RecordFields,
    take_turns,
)
from tidelog.queue_layer.ordering.standard_order import StandardOrder

NOISY_SHARE: Final = 10
"""A group is noisy with more than a tenth of all messages in flight,"""
NOISY_IN_FLIGHT_MIN: Final = 30
"""and with so many at least."""
SET_ASIDE_MAX: Final = 1_000
"""Maximum messages that one receive sets aside, so that it does not take long."""
_SPARE: Final = 4096
_OFFSETS_AT_ONCE: Final = 3_000
"""Messages that are counted in one step: that takes two milliseconds at most."""
_SHARDS: Final = 256
_ONE: Final = 1 << 42
"""A message in the size of a group; the bits below are the place of its first one."""


@final
class FairOrder:
    """As a standard queue, but messages of noisy groups wait behind all others.

    A group is noisy while it has more than a tenth of the messages in flight, and 30 or more. A
    receive sets its messages aside when it meets them, once for each message. They are delivered
    when no others are left, the group with the fewest messages in flight first, or when the group
    is quiet again. Messages without a group are never noisy.

    Invariant: a visible message is either in `_order` or set aside.
    """

    needs_all_records = True

    def __init__(self, start: int) -> None:
        self._order = StandardOrder(start)
        self._start = start
        """Offset below which all messages are done."""
        self._done: RangeMap[None] = RangeMap()
        """Done messages after `_start`."""
        self._origin = start
        self._groups: array[int] = array("Q")
        """Hash of the group of each message from `_origin` on; 0 without a group."""
        self._in_flight: set[int] = set()
        self._in_flight_count: dict[int, int] = {}
        """Messages in flight by group; never 0."""
        self._aside: dict[int, dict[int, None]] = {}
        """Offsets by group, in order; never empty."""

    @property
    def known_count(self) -> int:
        """Number of messages whose group is stored."""
        return len(self._groups)

    def on_records(self, first: int, end: int, fields: Sequence[RecordFields] | None) -> None:
        """Add records."""
        self._order.on_records(first, end, fields)
        if fields is None:
            self._groups.extend([0] * (end - first))
        else:
            self._groups.extend(_hash(record.group) for record in fields)

    def on_invisible(self, first: int, end: int, *, is_in_flight: bool) -> None:
        """Make messages invisible: in flight, or delayed."""
        self._take(first, end)
        if not is_in_flight:
            self._land(first, end)
            return
        for offset in range(first, end):
            if offset not in self._in_flight:
                self._in_flight.add(offset)
                group = self._group(offset)
                self._in_flight_count[group] = self._in_flight_count.get(group, 0) + 1

    def on_visible(self, first: int, end: int, since_ms: int) -> None:
        """Make messages visible again."""
        self._land(first, end)
        if not self._aside:
            self._order.on_visible(first, end, since_ms)
            return
        for offset in range(first, end):
            aside = self._aside.get(self._group(offset))
            if aside is None:
                self._order.on_visible(offset, offset + 1, since_ms)
            else:
                aside[offset] = None

    def on_dead_lettered(self, first: int, end: int) -> None:
        """Make messages dead letters."""
        self._take(first, end)
        self._land(first, end)

    def on_deleted(self, first: int, end: int) -> None:
        """Remove messages."""
        self.on_dead_lettered(first, end)
        self._forget(max(first, self._start), end)

    def candidates(self, limit: int, turn: int) -> Iterator[Candidates]:
        """Yield messages of quiet groups, and then those of noisy ones."""
        quiet = self._set_aside(limit, turn)
        back = (
            offset
            for group, found in self._aside.items()
            if not self._is_noisy(group)
            for offset in found
        )
        noisy = sorted(filter(self._is_noisy, self._aside), key=self._in_flight_of)
        share = max(1, limit // 2)
        first = take_turns([(_singles(back), share), (_singles(quiet), share)])
        behind = chain.from_iterable(self._aside[group] for group in noisy)
        return chain(first, _singles(behind), self._not_looked_at(limit, turn, set(quiet)))

    def _not_looked_at(self, limit: int, turn: int, quiet: set[int]) -> Iterator[Candidates]:
        others = _offsets(self._order.candidates(limit, turn))
        return _singles(offset for offset in others if offset not in quiet)

    def blocked(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield nothing: no message waits for another without end."""
        del first, end
        return iter(())

    def largest_groups(self, limit: int) -> Generator[None, None, list[GroupSize]]:
        """Return the groups with the most messages, and with their dead letters.

        All messages are counted: the order stores no sizes, which a delivery does not need.
        """
        base = at = self._start
        # Many small dicts: to enlarge a large one takes too long.
        shards: list[dict[int, int]] = [{} for _ in range(_SHARDS)]
        while at < (end := self._origin + len(self._groups)):
            at = max(at, self._start)
            stop = min(end, at + _OFFSETS_AT_ONCE)
            for first, gap in self._left(at, stop):
                groups = self._groups[first - self._origin : gap - self._origin]
                for group, place in zip(groups, range(first - base, gap - base), strict=True):
                    counts = shards[group % _SHARDS]
                    counts[group] = counts.get(group, place) + _ONE
            at = stop
            yield
        shards[0].pop(0, None)
        largest: list[tuple[int, int]] = []
        for counts in shards:
            sizes = ((size, group) for group, size in counts.items())
            largest = nlargest(limit, [*largest, *sizes])
            counts.clear()
            yield
        return [
            GroupSize(size // _ONE, self._in_flight_of(group), base + size % _ONE)
            for size, group in largest
        ]

    def _left(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between two offsets whose messages are not done."""
        for done_first, done_end, _ in self._done.pieces(first, end):
            if first < done_first:
                yield first, done_first
            first = done_end
        if first < end:
            yield first, end

    def _set_aside(self, limit: int, turn: int) -> list[int]:
        """Return up to `limit` messages of quiet groups; set those of noisy groups aside."""
        quiet: list[int] = []
        noisy: list[tuple[int, int]] = []
        for offset in _offsets(self._order.candidates(limit, turn)):
            group = self._group(offset)
            if self._is_noisy(group):
                noisy.append((group, offset))
            else:
                quiet.append(offset)
            if len(quiet) >= limit or len(noisy) >= SET_ASIDE_MAX:
                break
        for group, offset in noisy:
            self._order.on_invisible(offset, offset + 1, is_in_flight=False)
            self._aside.setdefault(group, {})[offset] = None
        return quiet

    def _take(self, first: int, end: int) -> None:
        self._order.on_invisible(first, end, is_in_flight=False)
        if not self._aside:
            return
        for offset in range(max(first, self._start), end):
            group = self._group(offset)
            aside = self._aside.get(group)
            if aside is not None and offset in aside:
                del aside[offset]
                if not aside:
                    del self._aside[group]

    def _land(self, first: int, end: int) -> None:
        if not self._in_flight:
            return
        for offset in range(max(first, self._start), end):
            if offset in self._in_flight:
                self._in_flight.discard(offset)
                group = self._group(offset)
                count = self._in_flight_count[group] - 1
                if count:
                    self._in_flight_count[group] = count
                else:
                    del self._in_flight_count[group]

    def _forget(self, first: int, end: int) -> None:
        if first >= end:
            return
        self._done.cut(first, end)
        self._done.put(first, end, None)
        done = self._done.starting_at(self._start)
        if done is None:
            return
        self._done.cut(self._start, done[0])
        self._start = done[0]
        spare = self._start - self._origin
        if spare > _SPARE and 2 * spare > len(self._groups):
            del self._groups[:spare]
            self._origin = self._start

    def _group(self, offset: int) -> int:
        return self._groups[offset - self._origin]

    def _in_flight_of(self, group: int) -> int:
        return self._in_flight_count.get(group, 0)

    def _is_noisy(self, group: int) -> bool:
        in_flight = self._in_flight_of(group)
        return (
            group != 0
            and in_flight >= NOISY_IN_FLIGHT_MIN
            and in_flight * NOISY_SHARE > len(self._in_flight)
        )


def _hash(group: bytes | None) -> int:
    if group is None:
        return 0
    return int.from_bytes(blake2b(group, digest_size=8).digest(), "big") or 1


def _offsets(ranges: Iterator[Candidates]) -> Iterator[int]:
    for first, end, _ in ranges:
        yield from range(first, end)


def _singles(offsets: Iterable[int]) -> Iterator[Candidates]:
    for offset in offsets:
        yield offset, offset + 1, 0
