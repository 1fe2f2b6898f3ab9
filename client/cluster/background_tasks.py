"""The tasks of a client, and those who wait for them.

Shell: owns the background tasks. They end when the client is closed; a caller who relies on them,
in whatever task, is told so then.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, TypeVarTuple, final

import trio

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


_CLOSED: Final = "the client is closed"


@final
class BackgroundTasks:
    """Runs tasks until the client is closed."""

    def __init__(self, nursery: trio.Nursery) -> None:
        """Run them in `nursery`; if that is cancelled, the client is closed."""
        self._nursery = nursery
        self._is_closed = False
        self._waiting_counts: dict[trio.Event, int] = {}
        """How many callers wait for each event."""
        self._given_up: frozenset[trio.Event] = frozenset()
        """What had not happened when the client was closed."""
        self._scopes: set[trio.CancelScope] = set()
        """Of calls that end when the client is closed."""
        nursery.start_soon(self._close_when_cancelled)

    def start_soon(
        self, do: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments
    ) -> bool:
        """Begin a task, unless the client is closed; return whether it begins."""
        if not self._is_closed:
            self._nursery.start_soon(self._run, do, arguments, name=do)
        return not self._is_closed

    async def wait(self, event: trio.Event) -> None:
        """Wait for something that tasks of the client bring about.

        Raises:
            trio.ClosedResourceError: The client is closed before.
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

    async def until_closed(self, do: Callable[[], Awaitable[Result]]) -> Result:
        """Return what a call returns, which is cancelled when the client is closed.

        Raises:
            trio.ClosedResourceError: It is closed before.
            Exception: What the call raised.
        """
        self.require_open()
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await do()
            finally:
                self._scopes.discard(scope)
        raise trio.ClosedResourceError(_CLOSED)

    def require_open(self) -> None:
        """Check that the client is not closed.

        Raises:
            trio.ClosedResourceError: It is.
        """
        if self._is_closed:
            raise trio.ClosedResourceError(_CLOSED)

    def close(self) -> None:
        """End all tasks, begin none any more, and have nobody wait for them."""
        self._is_closed = True
        self._nursery.cancel_scope.cancel()
        for scope in self._scopes:  # First: what waits within is cancelled, and raises nothing.
            scope.cancel()
        self._given_up |= {each for each in self._waiting_counts if not each.is_set()}
        for event in self._given_up:
            event.set()

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
            if not self._is_closed:  # Else it has come to its end a little before it is cancelled.
                raise
