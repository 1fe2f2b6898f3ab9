"""Virtual time, and its events.

trio asks its clock how long to sleep exactly when no task can run. For the simulated clock that
question means that the world is idle. It jumps to the next event or deadline, runs the due
callbacks, and answers that there is nothing to sleep for. Events are plain callbacks, so a packet
in flight costs no task.
"""

import heapq
from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import floor, inf
from typing import final

import trio

from tests.simulation.machine.scheduler import (
    describe_waiting_tasks,
    has_runnable_tasks,
    interrupt_waiting_tasks,
    is_waiting_for_idle,
)

TICK_S = 2.0**-20
"""Unit of drawn delays in seconds, so that sums of them are exact on every machine."""

EPOCH_MS = 1_700_000_000_000
"""Time of a correct wall clock at the beginning of a simulation, in ms."""


def quantised(seconds: float) -> float:
    """Return `seconds`, rounded down to ticks."""
    return floor(seconds / TICK_S) * TICK_S


@final
class DeadlockError(Exception):
    """Every task waits, and no event is left."""


@final
class EventBudgetError(Exception):
    """More events than a healthy run has: a storm of messages, or a busy loop."""


@final
class SimulatedClock(trio.abc.Clock):
    """The one clock of a simulation, and the queue of its events.

    Invariant: time never goes back, and events of one time run in the order of their calls.
    """

    def __init__(self, *, events_per_s_max: int) -> None:
        """Start at zero; more events and task steps in one second are a failure."""
        self.now = 0.0
        """Seconds since the beginning."""
        self._events_per_s_max = events_per_s_max
        self._second_ends_at = 1.0
        self._event_count_max = events_per_s_max
        """Maximum count of events at the end of this second."""
        self.event_count = 0
        """Callbacks and task steps so far."""
        self.failure: BaseException | None = None
        """The error that ended the run, `None` while there is none."""
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._ticket = 0
        self._stop: Callable[[], None] | None = None
        self._at_moment_end: list[Callable[[], None]] = []

    def call_at(self, time: float, callback: Callable[[], object]) -> None:
        """Call `callback` at a time, outside of all tasks; it must not wait."""
        self._ticket += 1
        heapq.heappush(self._events, (time, self._ticket, callback))

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        """Call `callback` after so many seconds, outside of all tasks; it must not wait."""
        self.call_at(self.now + quantised(delay), callback)

    def call_at_moment_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` before time goes on, when no task can run; it must start nothing."""
        self._at_moment_end.append(callback)

    @contextmanager
    def running(self, stop: Callable[[], None]) -> Generator[None]:
        """Let time pass while the block runs; before and after it, trio starts and ends itself.

        `stop` is called when the run has failed; it must make the block end.
        """
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def fail(self, error: BaseException) -> None:
        """End the run because of `error`, unless it has failed already."""
        if self.failure is None:
            self.failure = error
            if self._stop is not None:
                self._stop()

    def count_event(self) -> None:
        """Count an event towards this second's budget."""
        self.event_count += 1
        if self.event_count > self._event_count_max:
            self.fail(
                EventBudgetError(
                    f"more than {self._events_per_s_max} events in the simulated second that ends"
                    f" at {self._second_ends_at:.0f} s; it is {self.now:.3f} s"
                )
            )

    def start_clock(self) -> None:
        """See `trio.abc.Clock`."""

    def current_time(self) -> float:
        """See `trio.abc.Clock`."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Let time pass until a task can run; see `trio.abc.Clock`."""
        if self._stop is None:
            return 0.0
        if is_waiting_for_idle():
            return 1.0  # trio wakes the task that waits for this moment, and does not sleep.
        while not has_runnable_tasks():
            if not self._pass_time(deadline):
                break
        return 0.0

    def _pass_time(self, deadline: float) -> bool:
        """Run the next event; return whether it came before `deadline`."""
        time = min(self._events[0][0], deadline) if self._events else deadline
        while self._at_moment_end and time > self.now:
            self._run(self._at_moment_end.pop(0))
        if time == inf:
            error = DeadlockError(
                "every task waits, and nothing is left that could happen:\n"
                + describe_waiting_tasks()
            )
            if self.failure is None:
                self.fail(error)
            else:  # Even the end of the run is stuck, in spite of its cancellation.
                interrupt_waiting_tasks(error)
            return False
        self.now = max(self.now, time)
        if self.now >= self._second_ends_at:
            self._second_ends_at = floor(self.now) + 1.0
            self._event_count_max = self.event_count + self._events_per_s_max
        while self._events and self._events[0][0] <= self.now:
            _, _, callback = heapq.heappop(self._events)
            self.count_event()
            self._run(callback)
        return self.now < deadline

    def _run(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except BaseException as error:  # noqa: BLE001  (raised again at the end of the run)
            self.fail(error)


@final
class WallClock:
    """The wall clock of one machine, with an error, drift and jumps."""

    def __init__(self, monotonic: Callable[[], float], *, skew_s: float = 0.0) -> None:
        """Start `skew_s` ahead of the true time, which `monotonic` measures in seconds."""
        self._monotonic = monotonic
        self._rate = 1.0
        self._anchor_s = monotonic()
        self._shown_s = self._anchor_s + skew_s

    def now_ms(self) -> int:
        """Return Unix time in milliseconds on this machine."""
        return EPOCH_MS + floor(self._now_s() * 1000)

    def jump(self, seconds: float) -> None:
        """Jump forward, or back."""
        self._shown_s, self._anchor_s = self._now_s() + seconds, self._monotonic()

    def drift(self, rate: float) -> None:
        """Run at another rate from now on: 1.01 is 1 % too fast."""
        self.jump(0)
        self._rate = rate

    def _now_s(self) -> float:
        return self._shown_s + (self._monotonic() - self._anchor_s) * self._rate
