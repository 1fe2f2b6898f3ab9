"""Ledger of what clients of a trial sent, received and deleted, and what must hold for it.

Each message has a body of its own: `KIND/GROUP/NUMBER`. Times are of one monotonic clock.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Delivery(NamedTuple):
    """A message in the reply to a receive."""

    message_id: str
    body: str
    receive_count: int
    sequence: int
    asked_at: float
    """When the receive was sent."""
    came_at: float
    """When its reply came."""


@dataclass
class Ledger:
    """All that happened to the messages of one queue."""

    visibility_s: float
    is_fifo: bool
    url: str = ""
    sent: dict[str, str] = field(default_factory=dict[str, str])
    """Body by the id of each acknowledged message."""
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    deleting: dict[str, float] = field(default_factory=dict[str, float])
    """When the first deletion of each message was sent."""
    deleted: dict[str, float] = field(default_factory=dict[str, float])
    """When the deletion of each message was acknowledged."""

    def problems(self) -> list[str]:
        """Return what does not hold, one line each."""
        found = [
            *self._lost(),
            *self._returned(),
            *self._doubled(),
        ]
        if self.is_fifo:
            found += self._out_of_order()
        return found

    def _lost(self) -> list[str]:
        received = {each.message_id for each in self.deliveries}
        return [
            f"lost: {body} {message_id}"
            for message_id, body in self.sent.items()
            if message_id not in received
        ]

    def _returned(self) -> list[str]:
        never = float("inf")
        return [
            f"came back after its delete: {each}"
            for each in self.deliveries
            if each.asked_at > self.deleted.get(each.message_id, never)
        ]

    def _doubled(self) -> list[str]:
        """Return deliveries within a visibility timeout, and counts that two deliveries have."""
        found: list[str] = []
        by_id: dict[str, list[Delivery]] = defaultdict(list)
        for each in self.deliveries:
            by_id[each.message_id].append(each)
        for all_of_it in by_id.values():
            all_of_it.sort(key=lambda each: each.receive_count)
            for first, second in pairwise(all_of_it):
                if first.receive_count == second.receive_count:
                    found.append(f"two receives have one count: {first} {second}")
                elif second.came_at < first.asked_at + self.visibility_s:
                    found.append(f"within its visibility timeout: {first} {second}")
        return found

    def _out_of_order(self) -> list[str]:
        found: list[str] = []
        ids: dict[str, set[str]] = defaultdict(set)
        for each in self.deliveries:
            ids[each.body].add(each.message_id)
        found += [f"a duplicate: {body} {both}" for body, both in ids.items() if len(both) > 1]
        open_ones: dict[str, dict[int, Delivery]] = defaultdict(dict)
        highest: dict[str, int] = {}
        for each in sorted(self.deliveries, key=lambda each: (each.came_at, each.sequence)):
            group = each.body.rpartition("/")[0]
            held = open_ones[group]
            for sequence, before in list(held.items()):
                if self.deleting.get(before.message_id, each.came_at) < each.came_at:
                    del held[sequence]
                elif sequence < each.sequence and before.came_at != each.came_at:
                    found.append(f"before the end of the message before: {before} {each}")
            is_late = each.sequence < highest.get(group, 0) and each.sequence not in held
            if is_late and each.receive_count == 1:
                found.append(f"first received after a later one: {each}")
            held[each.sequence] = each
            highest[group] = max(each.sequence, highest.get(group, 0))
        return found + self._unsorted()

    def _unsorted(self) -> list[str]:
        """Return groups that the log has in another order than they were sent in."""
        numbers: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for each in self.deliveries:
            group, _, number = each.body.rpartition("/")
            numbers[group].add((each.sequence, int(number)))
        orders = {group: [number for _, number in sorted(each)] for group, each in numbers.items()}
        return [f"the order of {name}" for name, order in orders.items() if order != sorted(order)]
