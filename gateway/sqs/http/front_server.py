"""Server of HTTP connections of the SQS front.

Shell: owns the listening socket and a task for each connection.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Final, NamedTuple, final

import trio

from tidelog.gateway.sqs.http.front_connection import FrontConnection, HttpExchange, Phase
from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.http.socket_events import SocketEvents
from tidelog.wire.env.env import Env, Listener
from tidelog.wire.env.loop_clock import loop_clock

_log = logging.getLogger("tidelog.gateway")

Answer = Callable[[HttpRequest, HttpExchange], Awaitable[HttpResponse | None]]
"""Returns the response to a request; `None` if the client has hung up and needs none."""

_BUFFER_BYTES: Final = 64 << 10
_ACCEPT_RETRY_S: Final = 0.1
_DATE_S: Final = 1.0
_TIDY_EACH: Final = 5
"""Number of dates between two looks at all connections."""
_REPORT_S: Final = 60.0
_REFUSALS_MAX: Final = 64
"""Connections that get a refusal at a time; the server closes further ones at once."""


class FrontLimits(NamedTuple):
    """What a front uses at most."""

    connections: int = 20_000
    """Number of connections; a further one takes the place of an idle one."""
    body_bytes: int = 256 << 20
    """Size of all large bodies that arrive or are being answered."""
    drain_s: float = 25.0
    """Time for the requests under way at a stop, in seconds: below the 30 s of Kubernetes."""


@final
class FrontServer:
    """Accepts connections and serves them until it is stopped."""

    def __init__(
        self, env: Env, listener: Listener, *, answer: Answer, limits: FrontLimits
    ) -> None:
        """Answer requests of `listener` with `answer`."""
        self._env = env
        self._listener = listener
        self._limits = limits
        self._accepting = trio.CancelScope()
        self.connections: dict[FrontConnection, None] = {}
        """Open connections, in the order of their arrival."""
        self._refusing_count = 0
        self._reported_at: dict[str, float] = {}
        """Time of the last line of each kind in the log."""
        self._free_body_bytes = limits.body_bytes
        self._all_closed = trio.Event()
        """Set when the last connection has ended in a drain."""
        self.answer = answer
        """See `FrontServices`."""
        self.events = SocketEvents()
        """See `FrontServices`."""
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        """See `FrontServices`."""
        self.clock = loop_clock()
        """See `FrontServices`."""
        self.date = ""
        """See `FrontServices`."""
        self.is_draining = False
        """See `FrontServices`."""
        self.accepted_count = 0
        """Connections since the start, without refused ones."""
        self.refused_count = 0
        """Connections that were refused since the start."""
        self._set_date()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which the server listens."""
        return self._listener.address

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self.connections)

    def lend(self, count: int) -> bool:
        """Lend memory for a body, or take it back if negative (`FrontServices`)."""
        if count > self._free_body_bytes:
            return False
        self._free_body_bytes -= count
        return True

    async def run(self) -> None:
        """Serve until cancelled; after `drain`, serve only open connections."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.events.run)
            nursery.start_soon(self._tidy)
            try:
                with self._accepting:
                    while True:
                        await self._accept_one(nursery)
            finally:
                self._listener.close()

    async def drain(self) -> None:
        """Take no more requests, and wait until those under way have their replies.

        Receives that wait are answered without messages at once. The wait ends after
        `FrontLimits.drain_s`.
        """
        self.is_draining = True
        self._accepting.cancel()
        for connection in list(self.connections):
            connection.drain()
        with trio.move_on_after(self._limits.drain_s):
            if self.connections:
                await self._all_closed.wait()

    async def _accept_one(self, nursery: trio.Nursery) -> None:
        try:
            stream = await self._listener.accept()
        except OSError as error:
            # Usually no file descriptors are left; open connections are still served.
            if self._is_news("accept"):
                self._env.probe("sqs_accept_failed", severity="warning", reason=str(error))
            self._close_idle()
            await trio.sleep(_ACCEPT_RETRY_S)
            return
        connection = FrontConnection(stream, self)
        if len(self.connections) < self._limits.connections or self._close_idle():
            self.accepted_count += 1
            self.connections[connection] = None
            nursery.start_soon(self._serve, connection)
            return
        self.refused_count += 1
        if self._is_news("refuse"):
            count = self._limits.connections
            self._env.probe("sqs_connection_refused", severity="warning", connections=count)
        if self._refusing_count < _REFUSALS_MAX:
            self._refusing_count += 1
            nursery.start_soon(self._refuse, connection)
        else:
            connection.close()

    def _is_news(self, kind: str) -> bool:
        """Return whether the log has had no line of a kind for `_REPORT_S`."""
        now = self.clock()
        if now - self._reported_at.get(kind, -math.inf) < _REPORT_S:
            return False
        self._reported_at[kind] = now
        return True

    def _close_idle(self) -> bool:
        """Close the oldest idle connection; return whether there was one."""
        for connection in self.connections:
            if connection.phase is Phase.IDLE:
                del self.connections[connection]
                connection.close()
                return True
        return False

    async def _serve(self, connection: FrontConnection) -> None:
        """Serve one connection, and survive its defects."""
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001  (the supervisor)
            _log.error("an HTTP connection failed unexpectedly", exc_info=error)
        finally:
            self.connections.pop(connection, None)
            if self.is_draining and not self.connections:
                self._all_closed.set()

    async def _refuse(self, connection: FrontConnection) -> None:
        try:
            await connection.refuse(f"there are {self._limits.connections} connections already")
        finally:
            self._refusing_count -= 1

    async def _tidy(self) -> None:
        while True:
            for _ in range(_TIDY_EACH):
                await trio.sleep(_DATE_S)
                self._set_date()
            now = self.clock()
            for connection in [each for each in self.connections if each.may_be_late]:
                connection.tidy(now)

    def _set_date(self) -> None:
        self.date = formatdate(self._env.clock.now_ms() / 1000, usegmt=True)
