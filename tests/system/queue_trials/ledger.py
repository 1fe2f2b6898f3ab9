"""Ledger of a queue: every message from its send to its end, and the checks of all replies.

Pure: no clock, no I/O. Times are seconds of one clock, which all clients share.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, final

_SLEW: Final = 1 / 200
"""Share by which a broker may count time faster, as docs/queues.md states."""
_LEADERS_DIFFER_S: Final = 0.05
"""Allowed difference of two leaders, which learn the agreed time by heartbeats."""


class Name(NamedTuple):
    """Unique name of a message, which is its value."""

    group: str
    number: int
    """Position in the order in which the messages of the group were sent."""

    def value(self) -> bytes:
        """Return the value of the message."""
        return f"{self.group}/{self.number}".encode()


def name_of(value: bytes | None) -> Name:
    """Return the name in a value."""
    group, _, number = (value or b"").decode().rpartition("/")
    return Name(group, int(number))


class Fate(Enum):
    """A worker's outcome for a message."""

    DELETED = "deleted"
    DELETED_PERHAPS = "deleted perhaps"
    """The reply was lost."""
    REJECTED = "rejected"
    """The message is a dead letter; perhaps, if the reply was lost."""


@final
@dataclass(slots=True)
class Delivery:
    """One message of one receive."""

    name: Name
    receive_count: int
    asked_at: float
    got_at: float
    mine_until: float
    """Time before which no other worker may get it: the time of the request plus the visibility
    timeout, or the time at which this worker began to release it."""

    def extended(self, asked_at: float, seconds: float, *, is_certain: bool) -> None:
        """Record an extension to `seconds` after the request, which may be a shorter time."""
        until = asked_at + seconds
        self.mine_until = until if is_certain else min(until, self.mine_until)


@final
@dataclass(slots=True)
class Ledger:
    """All replies to senders and workers of one queue."""

    is_fifo: bool
    max_receive_count: int
    accepted: set[Name] = field(default_factory=set[Name])
    uncertain: set[Name] = field(default_factory=set[Name])
    """Sends without a reply."""
    receives: list[list[Delivery]] = field(default_factory=list[list[Delivery]])
    fates: dict[Name, Fate] = field(default_factory=dict[Name, Fate])
    settled_at: dict[Name, float] = field(default_factory=dict[Name, float])
    """Time of the reply that it is deleted."""
    deleted_in_time: set[Name] = field(default_factory=set[Name])
    """Messages whose reply came while the worker's visibility timeout still ran."""

    def received(self, deliveries: list[Delivery]) -> None:
        """Record the messages of one receive."""
        self.receives.append(deliveries)

    def deleted(self, delivery: Delivery, now: float) -> None:
        """Record an acknowledged delete of one delivery."""
        name = delivery.name
        self.fates[name] = Fate.DELETED
        self.settled_at.setdefault(name, now)
        if now < delivery.mine_until:
            self.deleted_in_time.add(name)

    def perhaps_deleted(self, name: Name) -> None:
        """Record a delete without a reply."""
        if self.fates.get(name) is not Fate.DELETED:
            self.fates[name] = Fate.DELETED_PERHAPS

    @property
    def deliveries(self) -> Iterator[Delivery]:
        """All received messages, in the order of receipt."""
        return (each for receive in self.receives for each in receive)

    def story(self, name: Name) -> str:
        """Return the known events of a message."""
        received = [
            f"{each.receive_count}. from {each.got_at:.1f} to {each.mine_until:.1f}"
            for each in self.deliveries
            if each.name == name
        ]
        return f" (received: {', '.join(received) or 'never'}; fate: {self.fates.get(name)})"

    def count(self, fate: Fate) -> int:
        """Return the number of messages with this outcome."""
        return sum(each is fate for each in self.fates.values())


def problems(ledger: Ledger, dead: Collection[Name], left: Collection[Name]) -> list[str]:
    """Return the problems, after all clients have ended.

    Args:
        ledger: All replies.
        dead: The messages in the dead-letter queue.
        left: The messages that are still in the queue.
    """
    return [
        *_unaccounted(ledger, dead, left),
        *_wrong_counts(ledger),
        *_come_back(ledger),
        *_taken_twice(ledger),
        *(_out_of_order(ledger) if ledger.is_fifo else ()),
    ]


def _unaccounted(ledger: Ledger, dead: Collection[Name], left: Collection[Name]) -> Iterator[str]:
    """Yield messages that are lost, at two places, or were never sent."""
    everywhere = [*dead, *left]
    for name, count in Counter(everywhere).items():
        if count > 1:
            yield f"{name} is there {count} times at the end"
    ended = {name for name, fate in ledger.fates.items() if fate is not Fate.REJECTED}
    seen = {each.name for each in ledger.deliveries}
    for name in sorted(ledger.accepted - ended - set(everywhere)):
        yield f"{name} was accepted and is neither deleted nor dead nor left{ledger.story(name)}"
    for name in sorted((seen | set(everywhere)) - ledger.accepted - ledger.uncertain):
        yield f"{name} was never sent"
    for name in sorted(set(left)):
        if ledger.fates.get(name) is Fate.DELETED:
            yield f"{name} was deleted and is still there"
        if ledger.fates.get(name) is Fate.REJECTED:
            yield f"{name} was rejected and is no dead letter"
    # A repeated delete succeeds: a late worker may get that reply for a moved dead letter.
    for name in sorted(ledger.deleted_in_time.intersection(dead)):
        yield f"{name} was deleted and is a dead letter"


def _wrong_counts(ledger: Ledger) -> Iterator[str]:
    """Yield receive counts that do not grow, or exceed the maximum."""
    last: dict[Name, Delivery] = {}
    for each in sorted(ledger.deliveries, key=lambda delivery: delivery.receive_count):
        before = last.get(each.name)
        if before is not None and before.receive_count == each.receive_count:
            yield f"{each.name} was received for the {each.receive_count}. time twice"
        elif before is not None and each.got_at < before.asked_at:
            yield f"the receive count of {each.name} fell to {before.receive_count}"
        if not 1 <= each.receive_count <= ledger.max_receive_count:
            yield f"{each.name} was received for the {each.receive_count}. time"
        last[each.name] = each


def _come_back(ledger: Ledger) -> Iterator[str]:
    """Yield messages that were received after the reply that they are deleted."""
    for each in ledger.deliveries:
        if each.asked_at > ledger.settled_at.get(each.name, each.asked_at):
            yield f"{each.name} came again after it was deleted"


def _taken_twice(ledger: Ledger) -> Iterator[str]:
    """Yield messages that a worker received while another one held them."""
    by_name: dict[Name, list[Delivery]] = defaultdict(list)
    for each in ledger.deliveries:
        by_name[each.name].append(each)
    for name, deliveries in by_name.items():
        for first in deliveries:
            for second in deliveries:
                lease_s = first.mine_until - first.asked_at
                until = first.mine_until - lease_s * _SLEW - _LEADERS_DIFFER_S
                if first.got_at < second.asked_at and second.got_at < until:
                    yield f"{name} was delivered again {first.mine_until - second.got_at} s early"


def _out_of_order(ledger: Ledger) -> Iterator[str]:
    """Yield messages that were received after later ones of their group.

    A receive of a message without an earlier one of its group implies that the earlier one is
    settled: it must not be received any more.
    """
    by_group: dict[str, list[list[Delivery]]] = defaultdict(list)
    for receive in ledger.receives:
        mine: dict[str, list[Delivery]] = defaultdict(list)
        for each in receive:
            mine[each.name.group].append(each)
        for group, deliveries in mine.items():
            by_group[group].append(deliveries)
    for receives in by_group.values():
        yield from _out_of_order_in_group(receives)


def _out_of_order_in_group(receives: list[list[Delivery]]) -> Iterator[str]:
    receives.sort(key=lambda receive: receive[0].got_at)
    ends = [receive[0].got_at for receive in receives]
    floors: list[int] = []
    """By receive: the smallest number that may follow all receives up to this one."""
    closed: dict[int, float] = {}
    """Numbers between those of one receive, and the time since when they must be settled."""
    for receive in receives:
        numbers = [each.name.number for each in receive]
        if numbers != sorted(numbers):
            yield f"one receive has the numbers {numbers} of {receive[0].name.group}"
        before = bisect_left(ends, receive[0].asked_at)
        floor = floors[before - 1] if before else 0
        for each in receive:
            is_closed = closed.get(each.name.number, each.asked_at) < each.asked_at
            if each.name.number < floor or is_closed:
                yield f"{each.name} came after a later message of its group without it"
        floors.append(max(floors[-1] if floors else 0, min(numbers)))
        for number in set(range(min(numbers), max(numbers))) - set(numbers):
            closed.setdefault(number, receive[0].got_at)
