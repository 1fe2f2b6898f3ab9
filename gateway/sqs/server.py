"""The server of the SQS front: it listens, and owns the connections and the client.

Shell.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Final, NamedTuple, final

import trio

from tidelog.client.client import Client
from tidelog.gateway.sqs.callers import Callers
from tidelog.gateway.sqs.front import Front
from tidelog.gateway.sqs.http.front_connection import FrontConnection, HttpExchange, Phase
from tidelog.gateway.sqs.http.hang_ups import HangUps
from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.wire.env.env import Env, Listener
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.env.real.real_env import real_env

_log = logging.getLogger("tidelog.gateway")

_BUFFER_BYTES: Final = 64 << 10
_ACCEPT_RETRY_S: Final = 0.1
_TIDY_S: Final = 1.0


class FrontConfig(NamedTuple):
    """Settings of a front."""

    host: str = "127.0.0.1"
    port: int = 9324
    """0 takes a free port."""
    settings: FrontSettings = FrontSettings()
    connections_max: int = 20_000
    """Maximum number of connections; a further one takes the place of an idle one."""
    drain_s: float = 25.0
    """Maximum time for requests under way at a stop, in seconds."""


@final
class FrontServer:
    """Accepts connections and serves them until it is stopped."""

    def __init__(self, env: Env, config: FrontConfig, listener: Listener, *, front: Front) -> None:
        """Answer requests of `listener` with `front`."""
        self._env = env
        self._config = config
        self._listener = listener
        self._front = front
        self._accepting = trio.CancelScope()
        self._connections: dict[FrontConnection, None] = {}
        """Open connections, in the order of their arrival."""
        self.hang_ups = HangUps()
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.clock = loop_clock()
        self.date = ""
        self.is_draining = False
        self._all_closed = trio.Event()
        """Set when the last connection has ended in a drain."""
        self._set_date()

    @property
    def address(self) -> str:
        """Host and port at which the front listens."""
        host, port = self._listener.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def answer(self, request: HttpRequest, exchange: HttpExchange) -> HttpResponse | None:
        """Return the response to a request (`FrontServices`)."""
        return await self._front.answer(request, exchange)

    async def run(self, nursery: trio.Nursery) -> None:
        """Accept connections until `drain` or cancelled; serve them in `nursery`."""
        nursery.start_soon(self.hang_ups.run)
        nursery.start_soon(self._tidy)
        try:
            with self._accepting:
                while True:
                    await self._accept_one(nursery)
        finally:
            self._listener.close()

    async def drain(self) -> None:
        """Take no more requests, and wait until those under way have their replies.

        Receives that wait are answered without messages at once. The wait ends after `drain_s`.
        """
        self.is_draining = True
        self._accepting.cancel()
        for connection in list(self._connections):
            connection.drain()
        with trio.move_on_after(self._config.drain_s):
            if self._connections:
                await self._all_closed.wait()

    async def _accept_one(self, nursery: trio.Nursery) -> None:
        try:
            stream = await self._listener.accept()
        except OSError as error:
            # Usually no file descriptors are left; open connections are still served.
            self._env.probe("sqs_accept_failed", severity="warning", reason=str(error))
            await trio.sleep(_ACCEPT_RETRY_S)
            return
        connection = FrontConnection(stream, self)
        if len(self._connections) < self._config.connections_max or self._close_idle():
            self._connections[connection] = None
            nursery.start_soon(self._serve, connection)
        else:
            reason = f"there are {self._config.connections_max} connections already"
            nursery.start_soon(connection.refuse, reason)

    def _close_idle(self) -> bool:
        """Close the oldest idle connection; return whether there was one."""
        for connection in self._connections:
            if connection.phase is Phase.IDLE:
                del self._connections[connection]
                connection.close()
                return True
        return False

    async def _serve(self, connection: FrontConnection) -> None:
        """Serve one connection, and survive its defects."""
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001  (the supervisor)
            _log.error("a connection failed unexpectedly", exc_info=error)
        finally:
            self._connections.pop(connection, None)
            if self.is_draining and not self._connections:
                self._all_closed.set()

    async def _tidy(self) -> None:
        while True:
            await trio.sleep(_TIDY_S)
            self._set_date()
            now = self.clock()
            for connection in list(self._connections):
                connection.tidy(now)

    def _set_date(self) -> None:
        self.date = formatdate(self._env.clock.now_ms() / 1000, usegmt=True)


@asynccontextmanager
async def open_front(
    client: Client, config: FrontConfig | None = None, *, env: Env | None = None
) -> AsyncGenerator[FrontServer, None]:
    """Serve SQS over `client` while the block runs; then stop in order.

    Raises:
        OSError: The front cannot listen on the address.
    """
    config, env = config or FrontConfig(), env or real_env()
    listener = await env.network.listen(config.host, config.port)
    host, port = listener.address
    callers = Callers(client, config.settings, address=f"{host}:{port}")
    server = FrontServer(env, config, listener, front=Front(callers, env.random))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, nursery)
        yield server
        await server.drain()
        nursery.cancel_scope.cancel()
