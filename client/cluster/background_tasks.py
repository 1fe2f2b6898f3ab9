"""Background tasks of a client, and the calls that wait for them.

Shell: owns the background tasks. They end when the client is closed; callers that wait for them,
in any task, then raise an error.
"""

import math
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from typing import Final, TypeVar, TypeVarTuple, final

import trio

from tidelog.client.errors import ClosedError

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


_CLOSED: Final = "the client is closed"
_TICKS: Final = ((10.0, 0.1), (1.0, 0.01))
"""Seconds from which on a wait is long, and to which its end is rounded up then, so that many long
waits end together."""


@final
class ParkedTask:
    """A task that waits in `BackgroundTasks.park`: an event for one task, which is used again."""

    __slots__ = ("is_given_up", "task")

    def __init__(self) -> None:
        """Start without a task."""
        self.task: trio.lowlevel.Task | None = None
        """Task that is parked; `None` as soon as it is woken."""
        self.is_given_up = False
        """Whether the client was closed while the task was parked."""

    def wake(self, _: object = None) -> None:
        """Continue the task, if it is parked; the argument lets this be a callback."""
        task = self.task
        if task is not None:
            self.task = None
            trio.lowlevel.reschedule(task)

    def abandon(self, _: object) -> trio.lowlevel.Abort:
        """Let trio cancel the task."""
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED


@final
class BackgroundTasks:
    """Runs tasks until the client is closed."""

    def __init__(self, nursery: trio.Nursery) -> None:
        """Run them in `nursery`; its cancellation closes the client."""
        self._nursery = nursery
        self.is_closed = False
        """Whether the client is closed."""
        self._waiting_counts: dict[trio.Event, int] = {}
        """Number of callers that wait for each event."""
        self._given_up: frozenset[trio.Event] = frozenset()
        """Events that had not happened when the client was closed."""
        self._scopes: set[trio.CancelScope] = set()
        """Scopes of calls that end when the client is closed."""
        self._parked: dict[ParkedTask, float] = {}
        """Parked tasks, each with the time at which it is woken at the latest."""
        self._by_time: dict[float, dict[ParkedTask, None]] = {}
        """Those with a time; a time stays until it has passed, also when nothing waits for it."""
        self._times: list[float] = []
        """A heap of the times in `_by_time`, each once."""
        self._alarm: trio.CancelScope | None = None
        """Scope of the task that keeps the times, while it runs."""
        nursery.start_soon(self._close_when_cancelled)

    def start_soon(
        self, do: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments
    ) -> bool:
        """Start a task, unless the client is closed; return whether it starts."""
        if not self.is_closed:
            self._nursery.start_soon(self._run, do, arguments, name=do)
        return not self.is_closed

    async def wait(self, event: trio.Event) -> None:
        """Wait for an event that a task of the client sets.

        Raises:
            ClosedError: The client is closed before the event.
        """
        self.require_open()
        self._waiting_counts[event] = self._waiting_counts.get(event, 0) + 1
        try:
            await event.wait()
        finally:
            count = self._waiting_counts.pop(event)
            if count > 1:
                self._waiting_counts[event] = count - 1
        if event in self._given_up:
            self.require_open()

    async def park(self, waiter: ParkedTask, until: float = math.inf) -> None:
        """Wait until `waiter` is woken, or until a time of trio's clock.

        One task keeps the times of all, so a wait that ends early costs no timer, and many that end
        together cost one. A wait of a second or more may be 1 % longer.

        Raises:
            ClosedError: The client is closed before that.
        """
        if self.is_closed:
            raise ClosedError(_CLOSED)
        waiter.task = trio.lowlevel.current_task()
        self._parked[waiter] = math.inf
        if until < math.inf:
            self.limit(waiter, until)
        try:
            await trio.lowlevel.wait_task_rescheduled(waiter.abandon)
        finally:
            self._forget_time(waiter, self._parked.pop(waiter))
        if waiter.is_given_up:
            raise ClosedError(_CLOSED)

    def limit(self, waiter: ParkedTask, until: float) -> None:
        """Wake a parked task at a time, instead of the one before; others are ignored."""
        if waiter not in self._parked:
            return
        self._forget_time(waiter, self._parked[waiter])
        now = trio.current_time()
        for long_s, tick_s in _TICKS:
            if until >= now + long_s:
                until = math.ceil(until / tick_s) * tick_s
                break
        self._parked[waiter] = until
        waiting = self._by_time.get(until)
        if waiting is not None:
            waiting[waiter] = None
            return
        self._by_time[until] = {waiter: None}
        heappush(self._times, until)
        if self._alarm is None:
            self._alarm = trio.CancelScope()
            self.start_soon(self._keep_times)
        elif until == self._times[0]:
            self._alarm.deadline = until

    def _forget_time(self, waiter: ParkedTask, at: float) -> None:
        waiting = self._by_time.get(at)
        if waiting is not None:
            waiting.pop(waiter, None)

    async def _keep_times(self) -> None:
        """Wake parked tasks at their times, while there are any with a time."""
        while self._forget_free_times():
            with trio.CancelScope(deadline=self._times[0]) as self._alarm:
                await trio.sleep_forever()
            now = trio.current_time()
            while self._times and self._times[0] <= now:
                for waiter in self._by_time.pop(heappop(self._times)):
                    waiter.wake()
        self._alarm = None

    def _forget_free_times(self) -> bool:
        """Forget the next times that nothing waits for; return whether there are others."""
        while self._times and not self._by_time[self._times[0]]:
            del self._by_time[heappop(self._times)]
        return bool(self._times)

    async def until_closed(self, do: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of a call; cancel the call when the client is closed.

        Raises:
            ClosedError: The client is closed before the call ends.
            Exception: The error of the call.
        """
        self.require_open()
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await do()
            finally:
                self._scopes.discard(scope)
        raise ClosedError(_CLOSED)

    def require_open(self) -> None:
        """Check that the client is not closed.

        Raises:
            ClosedError: The client is closed.
        """
        if self.is_closed:
            raise ClosedError(_CLOSED)

    def close(self) -> None:
        """Cancel all tasks, refuse new tasks, and wake all waiting callers."""
        self.is_closed = True
        self._nursery.cancel_scope.cancel()
        for scope in self._scopes:  # First: waits inside are cancelled and raise nothing.
            scope.cancel()
        self._given_up |= {each for each in self._waiting_counts if not each.is_set()}
        for event in self._given_up:
            event.set()
        for waiter in self._parked:
            waiter.is_given_up |= waiter.task is not None
            waiter.wake()

    async def _close_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.close()

    async def _run(
        self, do: Callable[[*Arguments], Awaitable[object]], arguments: tuple[*Arguments]
    ) -> None:
        try:
            await do(*arguments)
        except* trio.ClosedResourceError:
            if not self.is_closed:  # Otherwise the task ended just before its cancellation.
                raise
