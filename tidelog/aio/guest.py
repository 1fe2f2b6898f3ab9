"""A resource of trio, kept open for a program of asyncio.

Shell. A call runs as a task of trio, and the task of asyncio waits for it. Cancelling the latter
cancels the former and waits for its end. So what the client promises of cancelled calls is true
here, too.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar, final

import trio

from tidelog.aio.guest_run import GuestRun, errors_in, interrupt_in, reached
from tidelog.client.errors import ClosedError

Resource = TypeVar("Resource")
Result = TypeVar("Result")

_CLOSED: Final = "the client is closed"
_FOREIGN: Final = (
    "this client belongs to another event loop: use it in the thread and the loop that connected"
    " it, and connect again after a fork; for threads there is tidelog.blocking"
)


@final
class _Call(Generic[Result]):
    """Call that runs as a task of trio, and a task of asyncio that waits for its end."""

    __slots__ = ("_future", "_is_over", "error", "results", "scope")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.scope = trio.CancelScope()
        """Scope of the task of trio."""
        self.results: list[Result] = []
        """The result, if there is one."""
        self.error: BaseException | None = None
        self._future: asyncio.Future[None] = loop.create_future()
        """Done when the call is over, or when the task that waits for it is cancelled."""
        self._is_over = False

    def end(self, error: BaseException | None = None) -> None:
        """Wake the task that waits; the first end counts."""
        if self._is_over:
            return
        self._is_over = True
        self.error = error
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> Result:
        """Wait for the end; return the result, or raise the error.

        If cancelled, the task of trio is cancelled, and the wait goes on until it has ended.
        """
        try:
            await self._future
        except asyncio.CancelledError:
            self.scope.cancel()
            await self.wait_uncancelled()
            raise
        if self.error is not None:
            raise self.error
        return self.results[0]

    async def wait_uncancelled(self) -> None:
        """Wait for the end, also when cancelled."""
        while not self._is_over:
            self._future = self._future.get_loop().create_future()
            try:
                await self._future
            except asyncio.CancelledError:
                continue


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
        self._opened: _Call[Resource] | None = None
        self.is_open = False
        """Whether calls are possible."""
        self._failure: BaseException | None = None
        self._calls: dict[_Call[Any], None] = {}
        self.iterators: set[AsyncGenerator[Any, None]] = set()
        """Generators of trio that are closed with the resource."""
        self._entered: set[AbstractAsyncContextManager[object]] = set()
        """Blocks that are to be left."""
        self._waiting: dict[asyncio.Future[None], None] = {}
        """Futures of tasks that wait without a call."""
        self._host_tasks: set[asyncio.Task[Any]] = set()
        self._stop = trio.Event()
        self._calls_ended = trio.Event()
        self._has_closed = asyncio.Event()
        self._is_closing = False
        self._has_left = asyncio.Event()

    async def open(self) -> Resource:
        """Open the resource; return it.

        Raises:
            RuntimeError: It was opened before, or a program of trio runs in this thread.
            ClosedError: It was closed meanwhile.
            Exception: The error of the opening.
        """
        if self._loop is not None:
            raise RuntimeError("a client is opened once: connect again")
        self._loop = asyncio.get_running_loop()
        self._run = await GuestRun.join(self._lose)
        self._opened = _Call(self._loop)
        try:
            self._run.start_soon(self._serve, self._opened)
            return await self._opened.wait()
        except BaseException:
            await self.close()
            raise

    @property
    def resource(self) -> Resource:
        """The resource; it may be closed.

        Raises:
            RuntimeError: The caller is on another event loop.
            ClosedError: It was never open.
        """
        resource = self.resource_for_any_thread
        self.require_here()
        return resource

    @property
    def resource_for_any_thread(self) -> Resource:
        """The resource, for what any thread may do.

        Raises:
            ClosedError: It was never open.
        """
        if self._opened is None or not self._opened.results:
            raise ClosedError("the client is not connected: use `async with` or `await` first")
        return self._opened.results[0]

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, for a caller that uses the open resource.

        Raises:
            RuntimeError: The caller is on another event loop.
            ClosedError: The resource is closed.
        """
        self.require_open()
        assert self._loop is not None, "it is open"
        return self._loop

    def require_here(self) -> None:
        """Check that the caller is on the event loop of this client.

        Raises:
            RuntimeError: It is not: another thread, another loop, or a process that was forked.
        """
        # A forked process has no running loop.
        if asyncio._get_running_loop() is not self._loop:  # noqa: SLF001
            raise RuntimeError(_FOREIGN)

    def require_open(self) -> None:
        """Check that the caller is on the event loop of this client, and that it is open.

        Raises:
            RuntimeError: The caller is on another event loop.
            ClosedError: The resource is closed.
        """
        # As one condition: `send_nowait` checks it for every record.
        if not self.is_open or asyncio._get_running_loop() is not self._loop:  # noqa: SLF001
            self.require_here()
            raise ClosedError(_CLOSED) from self._failure

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
        call = self._started(work)
        try:
            return await call.wait()
        except asyncio.CancelledError:
            if undo is not None and call.results:
                undo(call.results[0])
            raise

    async def enter(self, block: AbstractAsyncContextManager[object]) -> None:
        """Enter a block of the resource. If cancelled, it is not entered, or left again.

        Raises:
            ClosedError: The resource is closed.
            RuntimeError: The caller is on another event loop.
            Exception: The error of the block.
        """
        call = self._started(block.__aenter__)
        try:
            await call.wait()
        except asyncio.CancelledError as error:
            if call.results and self.is_open:
                leave = _leaving(block, error)
                await self._started(leave).wait_uncancelled()
            raise
        self._entered.add(block)

    async def leave(
        self, block: AbstractAsyncContextManager[object], error: BaseException | None
    ) -> None:
        """Leave a block, because of `error` if there is one; nothing happens if it was left before.

        If its task is cancelled, it is left like a block of trio that is cancelled.

        Raises:
            ClosedError: The resource is closed, and the block was left without an error.
            RuntimeError: The caller is on another event loop.
            Exception: The error of the block.
        """
        self.require_here()
        if block not in self._entered:
            return
        self._entered.discard(block)
        try:
            await self.call(_leaving(block, error))
        except ClosedError:
            if error is None:
                raise

    async def wait(self, future: "asyncio.Future[None]") -> None:
        """Wait for a future.

        Raises:
            ClosedError: The resource is closed meanwhile.
        """
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)

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
        self._host_tasks.add(task)
        task.add_done_callback(lambda _: ended.set())
        try:
            await ended.wait()
            # The end of a program cancels all tasks: then the caller is cancelled as well.
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            task.cancel()
            with trio.CancelScope(shield=True):
                await ended.wait()
            if not task.cancelled():
                task.exception()  # It counts as retrieved.
            raise
        finally:
            self._host_tasks.discard(task)
        if task.cancelled():
            raise RuntimeError("the application has cancelled the task of a handler or callback")
        return task.result()

    async def close(self) -> None:
        """Close the resource, also if cancelled. Closing twice is allowed.

        Running calls of other tasks are cancelled, and end first.

        Raises:
            RuntimeError: The caller is on another event loop, or is a handler, which would wait for
                itself.
        """
        if self._run is None or self._run.is_discarded:
            return
        self.require_here()
        if asyncio.current_task() in self._host_tasks:
            raise RuntimeError(
                "a handler or callback cannot close its client, which waits for handlers:"
                " stop the worker, and close the client where it was opened"
            )
        if self._is_closing:
            await self._has_left.wait()
            return
        self._is_closing = True
        self.is_open = False
        self._stop.set()
        if self._opened is not None and not self._opened.results:
            self._opened.scope.cancel()
        is_cancelled = await reached(self._has_closed)
        is_cancelled |= await self._run.leave(self._lose)
        self._has_left.set()
        if is_cancelled:
            raise asyncio.CancelledError

    def _started(self, work: Callable[[], Awaitable[Result]]) -> _Call[Result]:
        call = _Call[Result](self.loop)
        assert self._run is not None, "it is open"
        self._calls[call] = None
        self._run.start_soon(self._carry_out, call, work)
        return call

    async def _serve(self, opened: _Call[Resource]) -> None:
        """Open the resource, and close it when `close` is called."""
        try:
            with opened.scope:
                async with self._opening as resource:
                    opened.results.append(resource)
                    opened.end()
                    self.is_open = True
                    await self._stop.wait()
                    for call in self._calls:
                        call.scope.cancel()
                    if self._calls:  # Cancelled calls may still give back messages.
                        await self._calls_ended.wait()
                    for iterator in self.iterators:
                        await iterator.aclose()
        except BaseException as error:
            self._failure = _as_raised(error)
            if not isinstance(self._failure, Exception):
                raise
        finally:
            self._end_waits()
            opened.end(self._failure or ClosedError(_CLOSED))
            self._has_closed.set()

    async def _carry_out(self, call: _Call[Result], work: Callable[[], Awaitable[Result]]) -> None:
        failure: BaseException | None = None
        try:
            with call.scope:
                call.results.append(await work())
            if not call.results:
                failure = ClosedError(_CLOSED)
        except BaseException as error:  # noqa: BLE001  (the caller raises it)
            failure = _as_raised(error)
        finally:
            self._calls.pop(call, None)
            if not self._calls and self._stop.is_set():
                self._calls_ended.set()
            call.end(failure)

    def _lose(self, error: BaseException) -> None:
        """End all that waits: the run of trio breaks off."""
        self._failure = error
        for call in list(self._calls):
            call.end(ClosedError(_CLOSED))
        self._end_waits()
        self._has_closed.set()

    def _end_waits(self) -> None:
        self.is_open = False
        for future in self._waiting:
            if not future.done():
                future.set_exception(ClosedError(_CLOSED))


async def _coroutine(work: Callable[[], Awaitable[Result]]) -> Result:
    return await work()


def _leaving(
    block: AbstractAsyncContextManager[object], error: BaseException | None
) -> Callable[[], Awaitable[None]]:
    """Return what leaves a block; it is cancelled if the task of the block is."""

    async def leave() -> None:
        with trio.CancelScope() as scope:
            if isinstance(error, asyncio.CancelledError):
                scope.cancel()
            if error is None:
                await block.__aexit__(None, None, None)
            else:
                await block.__aexit__(type(error), error, error.__traceback__)

    return leave


def _as_raised(error: BaseException) -> BaseException:
    """Return an error as programs of asyncio know it: nothing of trio, and no group of one."""
    while len(inner := errors_in(error)) == 1:
        (error,) = inner
    if isinstance(error, trio.Cancelled):
        return ClosedError(_CLOSED)
    if isinstance(error, trio.ClosedResourceError) and not isinstance(error, ClosedError):
        closed = ClosedError(*error.args)
        closed.__cause__ = error
        return closed
    return interrupt_in(error) or error
