"""The HTTP server of a broker, for probes and scrapes (etcd: the listener for metrics).

Shell: owns the listening socket and a task for each connection.
"""

import errno
import logging
from collections.abc import Mapping
from typing import Final, final

import trio

from tidelog.broker.config.broker_config import BrokerConfig, format_address, parse_address
from tidelog.broker.http.http_connection import HttpConnection
from tidelog.broker.http.page import Handler
from tidelog.broker.network.refusals import Refusals
from tidelog.wire.env.env import Env, Listener
from tidelog.wire.errors import ConfigError

_log = logging.getLogger("tidelog.broker")

CONNECTIONS_MAX: Final = 32
"""Maximum number of connections; a further one takes the place of an idle one."""
_REFUSALS_MAX: Final = 8
"""Connections that get a refusal at a time; the server closes further ones at once."""
_ACCEPT_RETRY_S: Final = 0.1


@final
class HttpServer:
    """Serves pages until it is cancelled."""

    def __init__(
        self, env: Env, listener: Listener, *, pages: Mapping[str, Handler], refusals: Refusals
    ) -> None:
        """Serve `pages`, by path, on `listener`; report what fails to `refusals`."""
        self._env = env
        self._listener = listener
        self._pages = pages
        self._refusals = refusals
        self._connections: dict[HttpConnection, None] = {}
        """Open connections, in the order of their arrival."""
        self._refusal_count = 0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which the server listens."""
        return self._listener.address

    async def run(self) -> None:
        """Serve until cancelled."""
        self._env.probe("http_listening", address=format_address(*self.address))
        async with trio.open_nursery() as nursery:
            while True:
                await self._accept_one(nursery)

    async def _accept_one(self, nursery: trio.Nursery) -> None:
        try:
            stream = await self._listener.accept()
        except OSError as error:
            # Usually no file descriptors are left; a later call may succeed.
            self._refusals.add("accept_failed", peer="", reason=str(error))
            await trio.sleep(_ACCEPT_RETRY_S)
            return
        self._start(HttpConnection(stream, self._pages), nursery, peer=stream.peer)

    def _start(self, connection: HttpConnection, nursery: trio.Nursery, *, peer: str) -> None:
        if len(self._connections) < CONNECTIONS_MAX or self._close_idle():
            self._connections[connection] = None
            nursery.start_soon(self._serve, connection)
            return
        reason = f"there are {CONNECTIONS_MAX} HTTP connections already"
        self._refusals.add("connection_refused", peer=peer, reason=reason)
        if self._refusal_count < _REFUSALS_MAX:
            self._refusal_count += 1
            nursery.start_soon(self._refuse, connection, reason)
        else:
            connection.close()

    def _close_idle(self) -> bool:
        """Close the oldest idle connection; return whether there was one.

        So clients that only keep connections open keep out no probe.
        """
        for connection in self._connections:
            if connection.is_idle:
                del self._connections[connection]
                connection.close()
                return True
        return False

    async def _serve(self, connection: HttpConnection) -> None:
        """Serve one connection, and survive its defects."""
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001  (the supervisor)
            _log.error("an HTTP connection failed unexpectedly", exc_info=error)
        finally:
            self._connections.pop(connection, None)

    async def _refuse(self, connection: HttpConnection, reason: str) -> None:
        try:
            await connection.refuse(reason)
        finally:
            self._refusal_count -= 1


async def listen_http(env: Env, config: BrokerConfig, *, is_optional: bool) -> Listener | None:
    """Listen on `http_listen`; return `None` if that is empty, or taken and optional.

    Raises:
        ConfigError: The broker cannot listen there; one line says why and what to do.
    """
    if not config.http_listen:
        return None
    host, port = parse_address(config.http_listen)
    try:
        return await env.network.listen(host, port)
    except OSError as error:
        problem = (
            f"cannot listen on {config.http_listen} for HTTP: {error.strerror or error}; set"
            " http_listen (TIDELOG_HTTP_LISTEN=HOST:PORT) to another address, or to an empty one"
            " to turn it off"
        )
        if not is_optional or error.errno != errno.EADDRINUSE:
            raise ConfigError(problem) from error
        env.probe("http_not_listening", severity="warning", reason=problem)
        return None
