"""The run of trio on an event loop of asyncio, which all clients of that loop share.

Shell: trio's guest mode runs the tasks of the client in the thread of the event loop, between the
tasks of the application. The first client starts the run, the last one ends it.
"""

import asyncio
import atexit
import os
import signal
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import AsyncGeneratorType, FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple, cast, final

import trio

from tidelog.client.errors import ClosedError

if TYPE_CHECKING:
    from outcome import Outcome

Arguments = TypeVarTuple("Arguments")
WhenLost = Callable[[BaseException], None]
"""Called with the error of a run that breaks off."""

_RUNS: Final[dict[asyncio.AbstractEventLoop, "GuestRun"]] = {}
"""The run of each event loop that has one."""

_DISCARDED: Final[list["GuestRun"]] = []
"""Runs that ended before their tasks, whose frames must not be closed."""


@final
class GuestRun:
    """Runs trio on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use `join`."""
        self._nursery: trio.Nursery | None = None
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._user_count = 0
        self._is_ready = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._is_ending = False
        self.is_discarded = False
        """Whether the run ended before its tasks."""
        self._end = trio.Event()
        self._when_lost: dict[WhenLost, None] = {}
        self._keeper = cast("AsyncGeneratorType[None, None]", self._keep())
        self._ticks: Generator[object, object, object] | None = None
        """The scheduler of trio, once it runs."""

    @classmethod
    async def join(cls, when_lost: WhenLost) -> "GuestRun":
        """Return the run of the current event loop, started if there is none; then `leave` it.

        Args:
            when_lost: Called with the error when the run breaks off.

        Raises:
            RuntimeError: Trio runs in this thread already.
        """
        loop = asyncio.get_running_loop()
        while (run := _RUNS.get(loop)) is not None and run._is_ending:  # noqa: SLF001
            await run._has_ended.wait()  # noqa: SLF001
        if run is None:
            _discard_closed()
            if trio.lowlevel.in_trio_run():
                raise RuntimeError(
                    "tidelog.aio cannot connect: trio runs in this thread already; close the client"
                    " of the other event loop first, or use tidelog if this is a program of trio"
                )
            run = cls(loop)
            run._start()
            _RUNS[loop] = run
            await anext(run._keeper)
        run._user_count += 1
        run._when_lost[when_lost] = None
        try:
            await run._is_ready.wait()
        except asyncio.CancelledError:
            await run.leave(when_lost)
            raise
        return run

    def start_soon(
        self, work: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments
    ) -> None:
        """Start a task of trio in the context of the caller.

        Raises:
            ClosedError: The run has broken off.
        """
        if self._nursery is None or self._is_ending:
            raise ClosedError("the client is closed")
        self._nursery.start_soon(work, *arguments)

    async def leave(self, when_lost: WhenLost) -> bool:
        """Leave the run; the last one ends it, and waits for the end, also when cancelled.

        Returns:
            Whether the caller was cancelled meanwhile.
        """
        del self._when_lost[when_lost]
        self._user_count -= 1
        if self._user_count:
            return False
        self._begin_end()
        is_cancelled = await reached(self._has_ended)
        if not self._keeper.ag_running:
            await self._keeper.aclose()
        return is_cancelled

    def discard(self) -> None:
        """Forget a run that its event loop does not continue: it is closed, or another process's.

        Trio's state in this thread is cleared. So another event loop can run trio here.
        """
        del _RUNS[self._loop]
        self._restore_interrupt()
        self._keep_frames()
        if not self._loop.is_closed():  # A forked process may run its tasks to their ends.
            self._lose_all(ClosedError("the process was forked: connect again"))
        if self._thread_id == threading.get_ident() and self._ticks is not None:
            hooks = sys.get_asyncgen_hooks()  # Trio restores those of its start.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # Trio tells that it was abandoned.
                self._ticks.close()
            sys.set_asyncgen_hooks(*hooks)

    def _start(self) -> None:
        on_interrupt = signal.getsignal(signal.SIGINT)
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self._call_soon,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
        )
        # Trio would delay Ctrl-C in code of the application.
        if _is_main_thread() and on_interrupt is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, but in the event loop if a step of trio's scheduler runs.

        A step that breaks off leaves a task that never goes on.
        """
        if self._loop.is_running() and _is_in_trio(frame):
            self._call_soon_threadsafe(_raise_interrupt)
        else:
            signal.default_int_handler(number, frame)

    def _restore_interrupt(self) -> None:
        if _is_main_thread() and signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _call_soon(self, tick: Callable[[], object]) -> None:
        if self._ticks is None:
            self._ticks = _ticks_of(tick)
        self._loop.call_soon(tick)

    def _call_soon_threadsafe(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            if not self._loop.is_closed():  # A closed loop has abandoned its clients.
                raise

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._is_ready.set()
            await self._end.wait()
            nursery.cancel_scope.cancel()

    def _keep_frames(self) -> None:
        """Keep the tasks of a run that does not end them: their blocks must not run without it."""
        self.is_discarded = True
        _DISCARDED.append(self)

    def _begin_end(self) -> None:
        self._is_ending = True
        self._end.set()

    def _done(self, outcome: "Outcome[None]") -> None:
        del _RUNS[self._loop]
        self._restore_interrupt()
        self._is_ending = True
        self._has_ended.set()
        self._is_ready.set()
        try:
            outcome.unwrap()
        except BaseException as error:  # noqa: BLE001  (clients raise it as their cause)
            if isinstance(error, trio.TrioInternalError):  # Ctrl-C within the scheduler of trio.
                self._keep_frames()
            self._lose_all(error)
            interrupt = interrupt_in(error)
            if interrupt is not None:
                raise interrupt from None  # The event loop passes it on.

    def _lose_all(self, error: BaseException) -> None:
        for lost in list(self._when_lost):
            lost(error)

    async def _keep(self) -> AsyncGenerator[None, None]:
        """Close the clients that the program has left open when the event loop ends.

        Event loops close asynchronous generators at their end, after all tasks.
        """
        try:
            yield
        finally:
            if not self._has_ended.is_set():
                self._lose_all(ClosedError("the event loop has ended"))
                self._begin_end()
                await self._has_ended.wait()
                _warn_of_unclosed()


async def reached(event: asyncio.Event) -> bool:
    """Wait for an event, also when cancelled; return whether that happened."""
    is_cancelled = False
    while not event.is_set():
        try:
            await event.wait()
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled


def interrupt_in(error: BaseException) -> BaseException | None:
    """Return the Ctrl-C, or the end of the process, that an error is or contains."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return error
    inner = errors_in(error)
    if isinstance(error, trio.TrioInternalError) and error.__cause__ is not None:
        inner = (error.__cause__,)
    return next((each for each in map(interrupt_in, inner) if each is not None), None)


def errors_in(error: BaseException) -> tuple[BaseException, ...]:
    """Return the errors of a group; none of an error that is no group."""
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast("BaseExceptionGroup[BaseException]", error).exceptions


def _is_main_thread() -> bool:
    """Return whether Python lets this thread set handlers of signals."""
    return threading.current_thread() is threading.main_thread()


def _is_in_trio(frame: FrameType | None) -> bool:
    """Return whether a frame belongs to a step of trio's scheduler."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("trio."):
            return True
        frame = frame.f_back
    return False


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


def _ticks_of(tick: Callable[[], object]) -> Generator[object, object, object]:
    """Return the scheduler of trio, whose steps `tick` runs; its `close` clears all of its state.

    Trio closes it when a run is garbage; it has no other way to end a run that nothing continues.
    """
    state: Any = getattr(tick, "__self__")  # noqa: B009  (a method, although its type has no owner)
    scheduler: Generator[object, object, object] = state.unrolled_run_gen
    return scheduler


def _warn_of_unclosed() -> None:
    warnings.warn(
        "unclosed client of tidelog.aio: its event loop has ended; close the client, or use it with"
        " `async with`",
        ResourceWarning,
        stacklevel=1,
    )


def _discard_closed() -> None:
    """Discard the runs of event loops that were closed in spite of them."""
    closed = [run for loop, run in _RUNS.items() if loop.is_closed()]
    for run in closed:
        run.discard()
    if closed:
        _warn_of_unclosed()


def _discard_all() -> None:
    for run in list(_RUNS.values()):
        run.discard()


def _discard_at_exit() -> None:
    if _RUNS:
        _discard_all()
        _warn_of_unclosed()


atexit.register(_discard_at_exit)
os.register_at_fork(after_in_child=_discard_all)  # Only the parent continues them.
