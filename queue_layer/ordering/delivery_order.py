"""Delivery order: the interface between the state of a queue and the choice of the next messages.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol


class RecordFields(NamedTuple):
    """Fields of a record that matter for its delivery."""

    deliver_at_ms: int = 0
    """Earliest delivery in Unix milliseconds."""
    priority: int | None = None
    """Priority; 0 is the most urgent, and `None` is that of a message without one."""
    group: bytes | None = None
    """Message group, the key; `None` is a group of its own."""
    is_chunk: bool = False
    """Whether it is a chunk of a large message, and no message."""


class GroupSize(NamedTuple):
    """Size of a message group."""

    message_count: int
    """Messages that are neither deleted nor moved; in a FIFO queue without dead letters."""
    not_visible_count: int
    """Messages in flight among them; in a FIFO queue also delayed ones."""
    offset: int
    """One of its messages, for the key of the group."""


Candidates = tuple[int, int, int]
"""First offset and exclusive end of messages to deliver, and their rank: a receiver processes the
messages of one receive by rank, and those of equal rank by offset."""


class DeliveryOrder(Protocol):
    """Chooses among visible messages. In memory only, rebuilt from the calls of the queue.

    The queue reports every change of a message's state, at the moment of the change, in ranges of
    offsets with exclusive ends. A range may cover messages of many groups and priorities. The
    calls, and their sequence:

    1. An order is created for an offset. From there, all records are reported by `on_records`,
       ascending and without gaps, before any other call about them. A new record is visible. (A
       delayed record is reported as invisible right after, a chunk as deleted.) Records below that
       offset do not exist.
    2. If `needs_all_records` is false, that offset is the cursor. Before the first record, visible
       messages below it are reported (`on_visible`); the others below are not reported until they
       become visible. If it is true, the offset is the low-water mark, or the start of the log if
       that is higher. Each stretch of records is then followed at once by its current states:
       done, dead, invisible.
    3. `on_invisible` is called for visible messages, and again for invisible ones when only
       `is_in_flight` changes or another lease takes over. `on_visible` is called for invisible and
       dead ones, and right after an `on_invisible` when a receive did not make them invisible
       (visibility timeout 0).
    4. `on_dead_lettered`: the messages are not delivered here, and they block no others; they may
       become visible again when they cannot be moved. `on_deleted`: no later call is about them;
       the range may hold some that were done before. Both are called for messages in any state.
    5. After a seek the order is replaced by a new one.
    """

    needs_all_records: bool
    """Whether it needs each record from the low-water mark on."""

    def on_records(self, first: int, end: int, fields: Sequence[RecordFields] | None) -> None:
        """Add records; `fields` has one for each, `None` if all have the defaults."""
        ...

    def on_invisible(self, first: int, end: int, *, is_in_flight: bool) -> None:
        """Make messages invisible: in flight, or delayed."""
        ...

    def on_visible(self, first: int, end: int, since_ms: int) -> None:
        """Make messages visible again, since a time."""
        ...

    def on_dead_lettered(self, first: int, end: int) -> None:
        """Make messages dead letters."""
        ...

    def on_deleted(self, first: int, end: int) -> None:
        """Remove messages that were deleted, moved, expired or purged."""
        ...

    def candidates(self, limit: int, turn: int) -> Iterator[Candidates]:
        """Yield ranges of messages to deliver, best first, without overlap.

        The iteration changes nothing, and no other call comes during it. The queue takes as many
        messages as it wants, in this sequence, and passes over those that become dead letters.
        Then it reports them as invisible. So a message that may only follow another one is yielded
        after it.

        Args:
            limit: Maximum number of wanted messages; yielding more is fine.
            turn: Grows by one with each receive that gets messages; alternation between receives
                depends on it, and not on own state.
        """
        ...

    def blocked(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the visible messages of a range that wait for others before them."""
        ...

    def largest_groups(self, limit: int) -> Generator[None, None, list[GroupSize]]:
        """Return the groups with the most messages, the largest first; yield after each step.

        No step takes longer than some milliseconds. Messages may change between steps: then the
        size of a group is that of the step that counted it. An order without groups returns none.
        """
        ...


MakeOrder = Callable[[int], DeliveryOrder]
"""Returns an order for the records from an offset on."""


def no_groups(limit: int) -> Generator[None, None, list[GroupSize]]:
    """Return no groups, as `DeliveryOrder.largest_groups` of an order that has none."""
    del limit
    yield from ()
    return []


def take_turns(
    sources: Sequence[tuple[Iterator[Candidates], int]],
) -> Iterator[Candidates]:
    """Yield a share of each source, given in messages, and then the rest of all of them."""
    left: list[Candidates] = []
    for source, share in sources:
        wanted = share
        while wanted:
            found = next(source, None)
            if found is None:
                break
            first, end, rank = found
            stop = min(end, first + wanted)
            yield first, stop, rank
            wanted -= stop - first
            if stop < end:
                left.append((stop, end, rank))
    yield from left
    for source, _ in sources:
        yield from source


def ranked(ranges: Iterable[tuple[int, int]], rank: int = 0) -> Iterator[Candidates]:
    """Yield ranges of messages with one rank."""
    return ((first, end, rank) for first, end in ranges)
