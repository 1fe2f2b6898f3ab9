"""The run of trio on an event loop of asyncio, which all clients of that loop share.

Shell: trio's guest mode runs the tasks of the client in the thread of the event loop, between the
tasks of the application. The first client starts the run, the last one ends it.
"""

import asyncio
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

import trio

from tidelog.client.errors import ClosedError

if TYPE_CHECKING:
    from outcome import Outcome

WhenLost = Callable[[BaseException], None]
"""Called with the error of a run that breaks off."""

_RUNS: Final[dict[asyncio.AbstractEventLoop, "GuestRun"]] = {}
"""The run of each event loop that has one."""


@final
class GuestRun:
    """Runs trio on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use `join`."""
        self.nursery: trio.Nursery
        self._loop = loop
        self._user_count = 0
        self._is_ready = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._is_ending = False
        self._end = trio.Event()
        self._when_lost: dict[WhenLost, None] = {}
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    async def join(cls, when_lost: WhenLost) -> "GuestRun":
        """Return the run of the current event loop, started if there is none; then `leave` it.

        Args:
            when_lost: Called with the error when the run breaks off.

        Raises:
            RuntimeError: A program of trio runs in this thread.
        """
        loop = asyncio.get_running_loop()
        while (run := _RUNS.get(loop)) is not None and run._is_ending:  # noqa: SLF001
            await run._has_ended.wait()  # noqa: SLF001
        if run is None:
            if trio.lowlevel.in_trio_run():
                raise RuntimeError(
                    "tidelog.aio cannot connect: trio runs in this thread already;"
                    " use tidelog in programs of trio, and connect after a fork"
                )
            run = _RUNS[loop] = cls(loop)
            run._start()
        run._user_count += 1
        run._when_lost[when_lost] = None
        try:
            await run._is_ready.wait()
        except BaseException:
            await run.leave(when_lost)
            raise
        return run

    async def leave(self, when_lost: WhenLost) -> None:
        """Leave the run; the last one ends it, and waits for the end."""
        self._when_lost.pop(when_lost, None)
        self._user_count -= 1
        if self._user_count == 0:
            self._is_ending = True
            self._end.set()
            await self._has_ended.wait()

    def _start(self) -> None:
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self._loop.call_soon,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
        )
        self._keeper = self._loop.create_task(self._keep(), name="tidelog.aio")

    def _call_soon_threadsafe(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            if not self._loop.is_closed():  # A closed loop has abandoned its clients.
                raise

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            self._is_ready.set()
            await self._end.wait()
            nursery.cancel_scope.cancel()

    def _done(self, outcome: "Outcome[None]") -> None:
        del _RUNS[self._loop]
        self._is_ending = True
        self._has_ended.set()
        self._is_ready.set()
        try:
            outcome.unwrap()
        except BaseException as error:
            self._lose_all(error)
            if not isinstance(error, Exception):
                raise  # Ctrl-C: the event loop passes it on.

    def _lose_all(self, error: BaseException) -> None:
        for lost in list(self._when_lost):
            lost(error)

    async def _keep(self) -> None:
        """Close the clients that the program has left open when the event loop ends.

        `asyncio.run` cancels all tasks at its end. The others may close their clients first.
        """
        try:
            await self._has_ended.wait()
        except asyncio.CancelledError:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others)
            if not self._has_ended.is_set():
                warnings.warn(
                    "the event loop ends while a client of tidelog.aio is open: close the client,"
                    " or use it with `async with`",
                    ResourceWarning,
                    stacklevel=1,
                )
                self._lose_all(ClosedError("the event loop has ended"))
                self._is_ending = True
                self._end.set()
                await self._has_ended.wait()
