"""Which messages are handed out next: the seam between the state of a queue and its order.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol


class RecordFields(NamedTuple):
    """What a record says about its delivery."""

    deliver_at_ms: int = 0
    """Unix milliseconds; nobody gets it earlier."""
    priority: int = 0
    """Priority; 0 is the most urgent."""
    group: bytes | None = None
    """The key; `None` is a group of its own."""
    is_chunk: bool = False
    """Whether it is a part of a large message, and no message."""


class DeliveryOrder(Protocol):
    """Chooses among visible messages. In memory only, made anew from what it is told.

    The queue tells every change of a message's state, at the moment of the change, in ranges of
    offsets with exclusive ends. A range may cover messages of many groups and priorities. What the
    order is told, and in which sequence:

    1. It is made for an offset, from which on it is told of all records by `on_records`, ascending
       and without gaps, before anything else about them. A record is visible when it came. (One
       with a delay is told to be invisible right after, and one that is no message to be done.)
       Those below that offset are not there.
    2. If `needs_all_records` is false, that offset is the cursor, and before any record comes it
       is told what of the messages below is visible (`on_visible`); it is not told of the
       others below until they become visible. If true, the offset is the low-water mark, or where
       the log begins if that is higher, and each stretch of records that came is followed at once
       by what has become of them: done, dead, invisible.
    3. `on_invisible` is told of messages that are visible, and again, of invisible ones, when
       only `is_in_flight` changes or another lease takes over. `on_visible` is told of invisible
       and dead ones, and when a receive did not make them invisible (visibility timeout 0), right
       behind an `on_invisible`.
    4. `on_dead_lettered`: nobody gets them here, and they block nobody; they may become visible
       again when they cannot be moved. `on_deleted`: they will never be spoken of again; the range
       may hold some that were done before. Both are told of messages in any state.
    5. After a seek the order is thrown away, and another is made.
    """

    needs_all_records: bool
    """Whether it has to know of each record from the low-water mark on."""

    def on_records(self, first: int, end: int, fields: Sequence[RecordFields] | None) -> None:
        """Learn of records; `fields` has one for each, `None` if all have the defaults."""
        ...

    def on_invisible(self, first: int, end: int, *, is_in_flight: bool) -> None:
        """Learn that messages are in flight, or delayed."""
        ...

    def on_visible(self, first: int, end: int, since_ms: int) -> None:
        """Learn that messages are visible again, since when."""
        ...

    def on_dead_lettered(self, first: int, end: int) -> None:
        """Learn that messages are dead letters."""
        ...

    def on_deleted(self, first: int, end: int) -> None:
        """Learn that messages are deleted, moved, expired or purged."""
        ...

    def candidates(self, limit: int, turn: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of messages to hand out, best first, without overlap.

        Nothing changes by that, and nothing else is told while it is iterated over. The queue takes
        as many messages as it wants, in this sequence, passes over those that are to die, and
        then tells that they became invisible. So an order in which a message stands only behind
        another one yields the other one before.

        Args:
            limit: No more than so many messages are wanted; yielding more is fine.
            turn: Grows by one with each receive that gets something; whatever is to alternate
                between receives depends on it, and not on state of its own.
        """
        ...

    def blocked(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield which of some visible messages nobody gets because of others before them."""
        ...


MakeOrder = Callable[[int], DeliveryOrder]
"""Returns an order that is told of the records from an offset on."""


def take_turns(
    sources: Sequence[tuple[Iterator[tuple[int, int]], int]],
) -> Iterator[tuple[int, int]]:
    """Yield a share of each source, given in messages, and then what is left of all of them."""
    left: list[tuple[int, int]] = []
    for source, share in sources:
        wanted = share
        while wanted:
            found = next(source, None)
            if found is None:
                break
            first, end = found
            stop = min(end, first + wanted)
            yield first, stop
            wanted -= stop - first
            if stop < end:
                left.append((stop, end))
    yield from left
    for source, _ in sources:
        yield from source
