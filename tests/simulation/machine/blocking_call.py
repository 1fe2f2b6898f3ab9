"""Blocking work, executed piece by piece under control of the simulation.

The work runs in a thread of its own, because it is plain code that blocks deep inside of calls.
The thread runs only while the simulation waits for it. So at most one thread runs, and nothing
depends on the operating system's scheduler.
"""

from collections.abc import Callable
from threading import Lock, Thread
from threading import local as ThreadLocal  # noqa: N812  (it is a class)
from typing import Any, final

import outcome

_here = ThreadLocal()


@final
class BlockingCall:
    """One piece of work, started by `go_on`.

    Invariant: its thread waits whenever `go_on` does not.
    """

    def __init__(self, threads: "Threads", work: Callable[[], Any]) -> None:
        """Execute `work` in one of `threads`."""
        self._threads = threads
        self._thread: _Thread | None = None
        self._work = work
        self._delay: float | None = None
        self._error: BaseException | None = None
        self.outcome: outcome.Outcome[Any] | None = None
        """Outcome of the work; `None` before its end."""

    def go_on(self) -> float | None:
        """Run the work until it blocks or ends; return the seconds that it blocks, or `None`."""
        assert current_blocking_call() is None, "a thread cannot wait for itself: ask the clock"
        if self._thread is None:
            self._thread = self._threads.take()
            self._thread.begin(self._run)
        else:
            self._thread.go_on()
        if self.outcome is not None:
            self._threads.give_back(self._thread)
            return None
        return self._delay

    def end(self, error: BaseException) -> None:
        """Raise `error` wherever the work blocks, until it ends."""
        self._error = error
        if self._thread is None:
            self.outcome = outcome.Error(error)
        while self.outcome is None:
            self.go_on()

    def _run(self) -> None:
        _here.call = self
        self.outcome = outcome.capture(self._work)
        _here.call = None

    def block(self, delay: float) -> None:
        """Wait for `delay` seconds of virtual time; called in the thread."""
        assert self._thread is not None
        self._delay = delay
        if self._error is None:
            self._thread.pause()
        if self._error is not None:
            raise self._error


def current_blocking_call() -> BlockingCall | None:
    """Return the work that this thread executes, `None` in the main thread."""
    call: BlockingCall | None = getattr(_here, "call", None)
    return call


@final
class _Thread:
    """A thread that runs while `begin` or `go_on` wait for it to pause or to end its work."""

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None
        self._may_run = Lock()
        self._has_paused = Lock()
        self._may_run.acquire()
        self._has_paused.acquire()
        self._thread = Thread(target=self._main, daemon=True, name="simulated blocking call")
        self._thread.start()

    def begin(self, work: Callable[[], None]) -> None:
        self._work = work
        self.go_on()

    def go_on(self) -> None:
        self._may_run.release()
        self._has_paused.acquire()

    def pause(self) -> None:
        self._has_paused.release()
        self._may_run.acquire()

    def end(self) -> None:
        self._work = None
        self._may_run.release()
        self._thread.join()

    def _main(self) -> None:
        self._may_run.acquire()
        while (work := self._work) is not None:
            work()
            self.pause()


@final
class Threads:
    """Threads that wait for work; `close` ends them."""

    def __init__(self) -> None:
        """Start without threads; they are started on demand."""
        self._idle: list[_Thread] = []

    def take(self) -> _Thread:
        """Return an idle thread."""
        return self._idle.pop() if self._idle else _Thread()

    def give_back(self, thread: _Thread) -> None:
        """Keep a thread whose work is done."""
        self._idle.append(thread)

    def close(self) -> None:
        """End all threads; all must be idle."""
        for thread in self._idle:
            thread.end()
        self._idle.clear()
