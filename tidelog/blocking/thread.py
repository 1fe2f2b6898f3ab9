"""The thread that runs trio for programs without trio.

Shell: owns the thread. A call from another thread waits for its result; Ctrl-C interrupts the
wait and cancels the call.
"""

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar, final

import trio

from tidelog.client.errors import ClosedError

Resource = TypeVar("Resource")
Result = TypeVar("Result")

_CLOSED: Final = "the client is closed"


@final
@dataclass(frozen=True, slots=True)
class _Opened(Generic[Resource]):
    """The open resource and the handles of the thread."""

    resource: Resource
    token: trio.lowlevel.TrioToken
    stop: trio.Event
    nursery: trio.Nursery


@final
class TrioThread(Generic[Resource]):
    """Keeps one asynchronous resource open in a thread of its own."""

    def __init__(
        self,
        resource: AbstractAsyncContextManager[Resource],
        *,
        name: str = "tidelog-client",
        clock: trio.abc.Clock | None = None,
    ) -> None:
        """Open `resource` in a new thread.

        Args:
            resource: What the thread keeps open.
            name: Name of the thread.
            clock: Monotonic clock of the thread's trio; that of the system by default.

        Raises:
            Exception: The error of the opening.
        """
        self._opening = resource
        self._clock = clock
        self._opened: Future[_Opened[Resource]] = Future()
        self._failure: BaseException | None = None
        self._calls: dict[trio.CancelScope, trio.Event] = {}
        """Running calls and the events of their ends; only the thread uses it."""
        # A daemon: a program that does not close the client must still be able to exit.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        try:
            opened = self._opened.result()
        except Exception:
            self._thread.join()
            raise
        self.resource = opened.resource
        self._token = opened.token
        self._stop = opened.stop
        self._nursery = opened.nursery

    def call(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run `work` in the thread and return its result.

        Raises:
            ClosedError: The resource is closed.
            Exception: The error that `work` raised.
        """
        scope = trio.CancelScope()

        async def cancellable() -> Result:
            self.require_open()
            ended = self._calls[scope] = trio.Event()
            try:
                with scope:
                    return await work()
            finally:
                del self._calls[scope]
                ended.set()
            self.require_open()
            raise ClosedError("the call was interrupted")

        try:
            return trio.from_thread.run(cancellable, trio_token=self._token)
        except trio.RunFinishedError:
            raise ClosedError(_CLOSED) from self._failure
        except (KeyboardInterrupt, SystemExit):
            self.call_soon(scope.cancel)
            raise

    def call_sync(self, work: Callable[[], Result]) -> Result:
        """Run `work`, which must not wait, in the thread and return its result.

        Raises:
            ClosedError: The resource is closed.
            Exception: The error that `work` raised.
        """
        try:
            return trio.from_thread.run_sync(work, trio_token=self._token)
        except trio.RunFinishedError:
            raise ClosedError(_CLOSED) from self._failure

    def call_soon(self, work: Callable[[], object]) -> None:
        """Schedule `work`, which must neither wait nor raise, in the thread.

        A closed resource ignores it.
        """
        try:
            self._token.run_sync_soon(work)
        except trio.RunFinishedError:
            return

    def start_soon(self, work: Callable[[], Awaitable[object]]) -> None:
        """Start `work` as a task of the thread, which ends when the resource is closed."""
        self.call_soon(partial(self._nursery.start_soon, work))

    def require_open(self) -> None:
        """Raise if the resource is closed.

        Raises:
            ClosedError: The resource is closed.
        """
        if self._stop.is_set() or not self._thread.is_alive():
            raise ClosedError(_CLOSED) from self._failure

    def close(self) -> None:
        """Close the resource and wait for the thread to end. Closing twice is allowed.

        Running calls of other threads are cancelled, and end first.
        """
        self.call_soon(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            trio.run(self._serve, clock=self._clock)
        except BaseException as error:  # noqa: BLE001  (raised by the next call)
            self._failure = error
            if not self._opened.done():
                self._opened.set_exception(error)

    async def _serve(self) -> None:
        stop = trio.Event()
        token = trio.lowlevel.current_trio_token()
        async with self._opening as resource, trio.open_nursery() as nursery:
            self._opened.set_result(_Opened(resource, token, stop, nursery))
            await stop.wait()
            for scope in self._calls:
                scope.cancel()
            while self._calls:  # Cancelled calls may still release messages.
                await next(iter(self._calls.values())).wait()
            nursery.cancel_scope.cancel()
