"""Purgatory: parked requests, and the task that expires them (Kafka: DelayedOperationPurgatory).

Shell: owns the deadline task.
"""

from typing import Protocol, final

import trio

from tidelog.broker.metrics.catalog import COMMIT_WAIT
from tidelog.broker.requests.deadlines import Deadlines
from tidelog.wire.metrics.metric import Histogram


class Waiter(Protocol):
    """A parked request."""

    def expire(self) -> None:
        """Answer with the available data: the deadline is reached."""
        ...

    def close(self) -> None:
        """Answer now if waiting on is useless: the broker is shutting down."""
        ...


@final
class Purgatory:
    """All parked requests of a broker."""

    def __init__(self) -> None:
        """Start without requests; `run` must run in a task of its own."""
        self._deadlines: Deadlines[Waiter] = Deadlines()
        self._waiters: dict[Waiter, None] = {}
        self._changed = trio.Event()
        self.commit_waits = Histogram(COMMIT_WAIT)
        """Seconds that records and messages waited for their acknowledgement, by request."""

    def __len__(self) -> int:
        """Return the number of parked requests."""
        return len(self._waiters)

    def add(self, waiter: Waiter, deadline: float) -> None:
        """Park a request until it calls `done`, or until `deadline` (seconds of trio's clock)."""
        self._waiters[waiter] = None
        if self._deadlines.add(waiter, deadline):
            self._changed.set()

    def done(self, waiter: Waiter) -> None:
        """Remove a request that is answered."""
        self._waiters.pop(waiter, None)
        self._deadlines.discard(waiter)

    def close_all(self) -> None:
        """Close every parked request; some may keep waiting."""
        for waiter in list(self._waiters):
            waiter.close()

    async def run(self) -> None:
        """Expire requests until cancelled."""
        while True:
            deadline = self._deadlines.next_deadline
            with trio.move_on_at(deadline if deadline is not None else float("inf")):
                await self._changed.wait()
            self._changed = trio.Event()
            for waiter in self._deadlines.take_expired(trio.current_time()):
                # The expiry of one request may end the wait of another one.
                if waiter in self._waiters:
                    del self._waiters[waiter]
                    waiter.expire()
