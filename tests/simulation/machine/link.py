"""Simulated links between hosts, and packets on them.

They model TCP from below: applications see a bad network not as lost packets but as late bytes,
because of retransmissions, and as broken connections. A partition holds bytes back; when it heals
they flow at the next attempt of a sender with exponential backoff.
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
"""Maximum retransmission timeout; Linux uses 120 s, after which a short run would end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkQuality:
    """Delays and losses of a link."""

    delay_min_s: float = 0.0001
    delay_mean_s: float = 0.0004
    """Mean of the exponential part of the delay, in seconds, on top of the minimum."""
    loss: float = 0.0
    """Probability that a segment is lost; it is sent again after 0.2 s, 0.4 s and so on."""
    split: float = 0.0
    """Probability that one send arrives in two pieces."""
    reset: float = 0.0
    """Probability that a connection breaks in the middle of a send."""
    bytes_per_s: float = inf


LOOPBACK = LinkQuality(delay_min_s=0.00002, delay_mean_s=0.00003)
INSTANT = LinkQuality(delay_min_s=0.0, delay_mean_s=1e-12)
"""Less than a tick, which is no time."""


class Receiver(Protocol):
    """The machine at the end of a link."""

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        ...


@final
class Link:
    """One direction between two hosts; the other direction is another link."""

    def __init__(
        self, clock: SimulatedClock, random: Random, quality: LinkQuality, *, receiver: Receiver
    ) -> None:
        """Lead to `receiver`."""
        self.quality = quality
        """May be replaced at any time; packets in flight are not changed."""
        self.random = random
        self._clock = clock
        self._receiver = receiver
        self._block_count = 0
        self._stalled_until = 0.0
        self._waiting: dict[Flow, None] = {}

    @property
    def is_passable(self) -> bool:
        """Whether packets arrive now."""
        return self._receiver.is_on and not self._block_count

    def block(self) -> None:
        """Block the link; partitions may overlap, so blocks are counted."""
        self._block_count += 1

    def unblock(self) -> None:
        """Undo one `block`."""
        assert self._block_count, "the link is not blocked"
        self._block_count -= 1
        self.recover()

    def stall(self, seconds: float) -> None:
        """Delay all packets until so many seconds are over."""
        self._stalled_until = max(self._stalled_until, self._clock.now + quantised(seconds))

    def recover(self) -> None:
        """Resume waiting flows, if the link is passable again."""
        if self.is_passable:
            waiting, self._waiting = self._waiting, {}
            for flow in waiting:
                flow.retry()

    def wait_until_passable(self, flow: "Flow") -> None:
        """Register `flow.retry` for the time when the link is passable again."""
        self._waiting[flow] = None

    def arrival(self, size: int) -> float:
        """Return the arrival time of `size` bytes that are sent now."""
        quality = self.quality
        delay = quality.delay_min_s + self.random.expovariate(1 / quality.delay_mean_s)
        retry_s = _RETRY_FIRST_S
        while quality.loss and retry_s < _RETRY_MAX_S and self.random.random() < quality.loss:
            delay += retry_s
            retry_s *= 2
        delay += size / quality.bytes_per_s
        return max(self._clock.now + quantised(delay), self._stalled_until)

    def carry(self, arrive: Callable[[], None]) -> None:
        """Carry a packet without retransmission: if it cannot arrive, it is lost."""

        def arrive_or_not() -> None:
            if self.is_passable:
                arrive()

        self._clock.call_at(self.arrival(0), arrive_or_not)


@final
class Flow:
    """One direction of one connection: packets arrive in order, until the flow is dropped.

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
        """Time of the last arrival."""

    @property
    def waiting_since(self) -> float | None:
        """Due time of the first packet that has not arrived, `None` if all have."""
        return self._packets[0][0] if self._packets else None

    def send(self, arrive: Callable[[], None], *, size: int = 0) -> None:
        """Call `arrive` at the other end, after all earlier packets."""
        self._last_arrival = max(self._link.arrival(size), self._last_arrival)
        self._packets.append((self._last_arrival, arrive))
        if len(self._packets) == 1:
            self._clock.call_at(self._last_arrival, self._arrive)

    def retry(self) -> None:
        """Resume after an interruption, at the sender's next attempt."""
        if self._packets:
            lost_at = self._packets[0][0]
            self._clock.call_at(_next_attempt(lost_at, self._clock.now), self._arrive)

    def drop_unsent(self) -> None:
        """Drop packets that could not arrive: the sender is gone and retransmits nothing."""
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
    """Return the next retransmission time of a packet that was first sent in vain at `first`."""
    attempt, wait = first, _RETRY_FIRST_S
    while attempt < now:
        attempt += quantised(wait)
        wait = min(2 * wait, _RETRY_MAX_S)
    return attempt
