"""The way from one host to another, and what travels on it.

TCP below its surface: what applications see of a bad network is not lost packets but bytes that
come later, because they had to be sent again, and connections that break. A partition holds
bytes back; when it heals they flow at the next attempt of a sender that tries less and less often.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Protocol, final

from tests.simulation.machine.clock import SimulatedClock, quantised

_RETRY_FIRST_S = 0.2
_RETRY_MAX_S = 3.2
"""Linux goes to 120 s; a run that short would see nothing after a long partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkQuality:
    """How a link treats what is sent over it."""

    delay_min_s: float = 0.0001
    delay_mean_s: float = 0.0004
    """Mean of the exponential part, on top of the least delay."""
    loss: float = 0.0
    """Probability that a segment is lost; it is sent again after 0.2 s, 0.4 s and so on."""
    split: float = 0.0
    """Probability that what is sent at once comes in two pieces."""
    reset: float = 0.0
    """Probability that a connection breaks when something is sent, in the midst of it."""
    bytes_per_s: float = inf


LOOPBACK = LinkQuality(delay_min_s=0.00002, delay_mean_s=0.00003)


class Receiver(Protocol):
    """The machine at the end of a link."""

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        ...


@final
class Link:
    """The way from one host to another; the way back is another link."""

    def __init__(
        self, clock: SimulatedClock, random: Random, quality: LinkQuality, *, receiver: Receiver
    ) -> None:
        """Lead to `receiver`."""
        self.quality = quality
        """May be replaced at any time; what is under way is not changed by it."""
        self.random = random
        self._clock = clock
        self._receiver = receiver
        self._block_count = 0
        self._stalled_until = 0.0
        self._waiting: dict[Flow, None] = {}

    @property
    def is_passable(self) -> bool:
        """Whether anything arrives now."""
        return self._receiver.is_on and not self._block_count

    def block(self) -> None:
        """Let nothing through; partitions may overlap, so this is counted."""
        self._block_count += 1

    def unblock(self) -> None:
        """Take back one `block`."""
        assert self._block_count, "the link is not blocked"
        self._block_count -= 1
        self.recover()

    def stall(self, seconds: float) -> None:
        """Let nothing arrive before so many seconds are over."""
        self._stalled_until = max(self._stalled_until, self._clock.now + quantised(seconds))

    def recover(self) -> None:
        """Go on with what waits, if the link is passable again."""
        if self.is_passable:
            waiting, self._waiting = self._waiting, {}
            for flow in waiting:
                flow.retry()

    def wait_until_passable(self, flow: "Flow") -> None:
        """Have `flow.retry` called when the link is passable again."""
        self._waiting[flow] = None

    def arrival(self, size: int) -> float:
        """Return when `size` bytes that are sent now will be there."""
        quality = self.quality
        delay = quality.delay_min_s + self.random.expovariate(1 / quality.delay_mean_s)
        retry_s = _RETRY_FIRST_S
        while quality.loss and retry_s < _RETRY_MAX_S and self.random.random() < quality.loss:
            delay += retry_s
            retry_s *= 2
        delay += size / quality.bytes_per_s
        return max(self._clock.now + quantised(delay), self._stalled_until)

    def carry(self, arrive: Callable[[], None]) -> None:
        """Carry something that nobody sends again: if it cannot arrive, it is lost."""

        def arrive_or_not() -> None:
            if self.is_passable:
                arrive()

        self._clock.call_at(self.arrival(0), arrive_or_not)


@final
class Flow:
    """One direction of one connection: everything arrives in order, or nothing does any more.

    Invariant: while `_packets` is not empty, either one event is due for the first of them, or
    the flow waits for its link.
    """

    def __init__(self, clock: SimulatedClock, link: Link) -> None:
        """Travel over `link`."""
        self._clock = clock
        self._link = link
        self._packets: deque[tuple[float, Callable[[], None]]] = deque()
        self._last_arrival = 0.0
        self.arrived_at = clock.now
        """When something arrived the last time."""

    @property
    def waiting_since(self) -> float | None:
        """When the first thing should have arrived that has not, `None` when all has."""
        return self._packets[0][0] if self._packets else None

    def send(self, arrive: Callable[[], None], *, size: int = 0) -> None:
        """Have `arrive` called at the other end, after all that was sent before."""
        self._last_arrival = max(self._link.arrival(size), self._last_arrival)
        self._packets.append((self._last_arrival, arrive))
        if len(self._packets) == 1:
            self._clock.call_at(self._last_arrival, self._arrive)

    def retry(self) -> None:
        """Go on after an interruption, when the sender tries the next time."""
        if self._packets:
            lost_at = self._packets[0][0]
            self._clock.call_at(_next_attempt(lost_at, self._clock.now), self._arrive)

    def drop_unsent(self) -> None:
        """The sender is gone: nobody sends again what could not arrive."""
        if not self._link.is_passable:
            self._packets.clear()

    def _arrive(self) -> None:
        now = self._clock.now
        while self._packets and self._packets[0][0] <= now:
            if not self._link.is_passable:
                self._link.wait_until_passable(self)
                return
            _, arrive = self._packets.popleft()
            self.arrived_at = now
            arrive()
        if self._packets:
            self._clock.call_at(self._packets[0][0], self._arrive)


def _next_attempt(first: float, now: float) -> float:
    """Return when something is sent again that was first sent in vain at `first`."""
    attempt, wait = first, _RETRY_FIRST_S
    while attempt < now:
        attempt += quantised(wait)
        wait = min(2 * wait, _RETRY_MAX_S)
    return attempt
