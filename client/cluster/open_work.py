"""Receives of a client that have not ended, and returns of messages; its close waits for them.

Shell. A message of a reply that arrives after the close would stay in flight until its visibility
timeout. So the close ends the receives at the brokers, and then waits until the messages of all
replies are returned.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Protocol, final

import trio

from tidelog.wire.messages.queues import EndReceivesRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import Outcome, RpcConnection

_ENDING_S: Final = 1.0
"""Seconds for which the close waits."""


class OpenReceive(Protocol):
    """A receive that waits for its reply."""

    @property
    def connection(self) -> RpcConnection:
        """Connection on which it was sent."""
        ...

    @property
    def queue_id(self) -> bytes:
        """Id of its queue."""
        ...


@final
class OpenWork:
    """Receives that wait for a reply, and the number of returns that have not ended."""

    def __init__(self) -> None:
        """Start without work."""
        self.is_ending = False
        """Whether the client is being closed: it receives no more."""
        self.receives: dict[OpenReceive, None] = {}
        self.count = 0
        """Number of returns, and of tasks of the client that receive or settle."""
        self._scopes: set[trio.CancelScope] = set()
        """Scopes of receives of tasks of the client."""
        self._changed = trio.Event()

    def ended(self) -> None:
        """Note the end of a return or task."""
        self.count -= 1
        self.look()

    def look(self) -> None:
        """Let the close look at what is open; of use while `is_ending`."""
        self._changed.set()

    @contextmanager
    def receiving(self) -> Generator[trio.CancelScope, None, None]:
        """Give a scope to a receive of a task of the client: the close cancels it.

        It may wait to try again while brokers are away. It returns what it has.
        """
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    async def end(self) -> None:
        """End the receives at their brokers, and wait for all work, up to a second."""
        self.is_ending = True
        for scope in self._scopes:
            scope.cancel()
        places = dict.fromkeys((each.connection, each.queue_id) for each in self.receives)
        for connection, queue_id in places:
            connection.submit(api.END_RECEIVES, EndReceivesRequest(queue_id), _ignore)
        with trio.move_on_after(_ENDING_S):
            while self.receives or self.count:
                self._changed = trio.Event()
                await self._changed.wait()


def _ignore(_: Outcome) -> None:
    """Wait for the replies of the receives instead."""
