"""A resource of trio, kept open for a program of asyncio.

Shell. A call runs as a task of trio, and the task of asyncio waits for it. Cancelling the latter
cancels the former and waits for its end. So what the client promises of cancelled calls is true
here, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from typing import Any, Final, Generic, Protocol, TypeVar, final

import trio

from tidelog.aio.guest_run import GuestRun
from tidelog.client.errors import ClosedError

Resource = TypeVar("Resource")
Result = TypeVar("Result")

_CLOSED: Final = "the client is closed"
_FOREIGN: Final = (
    "this client belongs to another event loop: use it in the thread and the loop that connected"
    " it, and connect again after a fork; for threads there is tidelog.blocking"
)


class WaitingTasks(Protocol):
    """Tasks of asyncio that wait for something."""

    def fail(self, error: BaseException) -> None:
        """End their wait with an error."""
        ...


@final
class _Call(Generic[Result]):
    """Call that runs as a task of trio."""

    __slots__ = ("error", "future", "is_over", "results", "scope", "work")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[Result]]
    ) -> None:
        self.work = work
        self.scope = trio.CancelScope()
        self.future: asyncio.Future[None] = loop.create_future()
        """Done when the call is over, or when the task that waits for it is cancelled."""
        self.is_over = False
        self.results: list[Result] = []
        """The result, if there is one."""
        self.error: BaseException | None = None

    def end(self) -> None:
        """Wake the task that waits."""
        self.is_over = True
        if not self.future.done():
            self.future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        self.error = error
        self.end()

    async def cancel(self) -> None:
        """Cancel the task of trio, and wait until it has ended."""
        if not self.is_over:
            self.scope.cancel()
        while not self.is_over:
            self.future = self.future.get_loop().create_future()
            try:
                await self.future
            except asyncio.CancelledError:
                continue  # The caller raises the first one.

    def result(self) -> Result:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        (result,) = self.results
        return result


@final
class TrioGuest(Generic[Resource]):
    """Keeps one asynchronous resource of trio open on the current event loop.

    Invariant: all methods are called in the thread of that loop.
    """

    def __init__(self, resource: AbstractAsyncContextManager[Resource]) -> None:
        """Keep `resource` open from `open` to `close`."""
        self._opening = resource
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: GuestRun | None = None
        self._resource: Resource | None = None
        self._is_open = False
        self._failure: BaseException | None = None
        self._calls: dict[_Call[Any], None] = {}
        self._waiting: dict[WaitingTasks, None] = {}
        self._stop = trio.Event()
        self._calls_ended = trio.Event()
        self._has_closed = asyncio.Event()

    async def open(self) -> Resource:
        """Open the resource; return it.

        Raises:
            RuntimeError: It was opened before, or a program of trio runs in this thread.
            Exception: The error of the opening.
        """
        if self._loop is not None:
            raise RuntimeError("a client is opened once: connect again")
        self._loop = asyncio.get_running_loop()
        self._run = await GuestRun.join(self._lose)
        opened = _Call(self._loop, trio.lowlevel.checkpoint)
        self._run.nursery.start_soon(self._serve, opened)
        try:
            await opened.future
        except asyncio.CancelledError:
            await opened.cancel()
            await self.close()
            raise
        if opened.error is not None:
            await self.close()
            raise opened.error
        return self.resource

    @property
    def resource(self) -> Resource:
        """The resource; it may be closed.

        Raises:
            RuntimeError: The caller is on another event loop.
            ClosedError: It was never open.
        """
        if self._resource is None:
            raise ClosedError("the client is not connected: use `async with` or `await` first")
        self.require_here()
        return self._resource

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop.

        Raises:
            RuntimeError: The caller is on another event loop.
        """
        self.require_here()
        assert self._loop is not None, "a caller is on an event loop"
        return self._loop

    def require_here(self) -> None:
        """Check that the caller is on the event loop of this client.

        Raises:
            RuntimeError: It is not: another thread, another loop, or a process that was forked.
        """
        # A forked process has no running loop.
        if asyncio._get_running_loop() is not self._loop:  # noqa: SLF001
            raise RuntimeError(_FOREIGN)

    async def call(
        self,
        work: Callable[[], Awaitable[Result]],
        *,
        undo: Callable[[Result], object] | None = None,
    ) -> Result:
        """Run `work` as a task of trio, in the context of the caller, and return its result.

        If the caller is cancelled although there is a result already, `undo` is called with it.

        Raises:
            ClosedError: The resource is closed.
            RuntimeError: The caller is on another event loop.
            Exception: The error that `work` raised.
        """
        loop = self.loop
        if not self._is_open or self._run is None:
            raise ClosedError(_CLOSED) from self._failure
        call = _Call(loop, work)
        self._calls[call] = None
        self._run.nursery.start_soon(self._carry_out, call)
        try:
            await call.future
        except asyncio.CancelledError:
            await call.cancel()
            if undo is not None and call.results:
                undo(call.result())
            raise
        return call.result()

    async def wait(self, waiting: WaitingTasks, future: "asyncio.Future[None]") -> None:
        """Wait for a future; when the resource is closed, `waiting` is to fail it."""
        self._waiting[waiting] = None
        await future

    def stop_waiting(self, waiting: WaitingTasks) -> None:
        """Forget what tasks were waiting for."""
        self._waiting.pop(waiting, None)

    async def call_host(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run `work` as a task of asyncio, in the context of the caller, which is a task of trio.

        If the caller is cancelled, so is the task, and the call ends when the task has ended.

        Raises:
            RuntimeError: The application has cancelled the task.
            Exception: The error that `work` raised.
        """
        assert self._loop is not None, "it is open"
        ended = trio.Event()
        task = self._loop.create_task(_coroutine(work), context=copy_context())
        task.add_done_callback(lambda _: ended.set())
        try:
            await ended.wait()
        except trio.Cancelled:
            task.cancel()
            with trio.CancelScope(shield=True):
                await ended.wait()
            if not task.cancelled():
                task.exception()  # It counts as retrieved.
            raise
        if task.cancelled():
            raise RuntimeError("the application has cancelled a task of tidelog")
        return task.result()

    async def close(self) -> None:
        """Close the resource, also if cancelled. Closing twice is allowed.

        Running calls of other tasks are cancelled, and end first.
        """
        run, self._run = self._run, None
        if run is None:
            return
        self.require_here()
        self._is_open = False
        self._stop.set()
        is_cancelled = await _completed(self._has_closed.wait())
        is_cancelled |= await _completed(run.leave(self._lose))
        if is_cancelled:
            raise asyncio.CancelledError

    async def _serve(self, opened: _Call[None]) -> None:
        """Open the resource, and close it when `close` is called."""
        try:
            with opened.scope:
                async with self._opening as self._resource:
                    self._is_open = True
                    opened.end()
                    await self._stop.wait()
                    for call in self._calls:
                        call.scope.cancel()
                    if self._calls:  # Cancelled calls may still give back messages.
                        await self._calls_ended.wait()
        except trio.Cancelled:
            self._failure = opened.error = ClosedError(_CLOSED)
            raise
        except BaseException as error:  # noqa: BLE001  (raised by `open`, or by the next call)
            self._failure = opened.error = error
        finally:
            self._end_waits(ClosedError(_CLOSED))
            opened.end()
            self._has_closed.set()

    async def _carry_out(self, call: _Call[Result]) -> None:
        try:
            with call.scope:
                call.results.append(await call.work())
            if not call.results:
                call.error = ClosedError("the call was interrupted")
        except trio.Cancelled:
            call.error = ClosedError(_CLOSED)
            raise
        except trio.ClosedResourceError as error:
            call.error = error if isinstance(error, ClosedError) else _closed_error(error)
        except BaseException as error:  # noqa: BLE001  (the caller raises it)
            call.error = error
        finally:
            self._calls.pop(call, None)
            if not self._calls and self._stop.is_set():
                self._calls_ended.set()
            call.end()

    def _lose(self, error: BaseException) -> None:
        """End all that waits: the run of trio breaks off."""
        self._failure = error
        for call in list(self._calls):
            call.fail(ClosedError(_CLOSED))
        self._end_waits(ClosedError(_CLOSED))
        self._has_closed.set()

    def _end_waits(self, error: ClosedError) -> None:
        self._is_open = False
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            each.fail(error)


def _closed_error(error: trio.ClosedResourceError) -> ClosedError:
    closed = ClosedError(*error.args)
    closed.__cause__ = error
    return closed


async def _coroutine(work: Callable[[], Awaitable[Result]]) -> Result:
    return await work()


async def _completed(work: Coroutine[object, object, object]) -> bool:
    """Wait for the end of `work`, also when cancelled; return whether that happened."""
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled
