"""Acceptor: the connections of a broker's clients (Kafka: Acceptor of SocketServer).

Shell: owns the listening socket and a task for each connection.
"""

import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import final

import trio

from tidelog.broker.config.broker_config import BrokerConfig, parse_address
from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.places import ConnectionPlaces
from tidelog.broker.network.refusals import Refusals
from tidelog.broker.requests.memory_budget import MemoryBudget
from tidelog.broker.requests.response import RequestContext
from tidelog.wire.env.env import Certificate, Env, Listener
from tidelog.wire.errors import ConfigError
from tidelog.wire.protocol.frame import PREFIX_SIZE, READ_AHEAD_BYTES
from tidelog.wire.security.principal import Principal

_log = logging.getLogger("tidelog.broker")

_ACCEPT_RETRY_S = 0.1
_RESERVE_MAX = 64
"""Number of connections beyond `max_connections`, for other nodes of the cluster: each has a
few."""


@final
class Acceptor:
    """Accepts connections and serves them."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        listener: Listener,
        *,
        dispatcher: Dispatcher,
        nursery: trio.Nursery,
    ) -> None:
        """Serve connections of `listener` with `dispatcher`; tasks run in `nursery`."""
        self._env = env
        self._config = config
        self._listener = listener
        self._dispatcher = dispatcher
        self._nursery = nursery
        self._accepting = trio.CancelScope()
        self.memory = MemoryBudget(
            config.queued_max_request_bytes,
            largest_bytes=config.socket_request_max_bytes + PREFIX_SIZE + READ_AHEAD_BYTES,
        )
        """Memory lent to connections."""
        self.identify: Callable[[Certificate, RequestContext], Principal] | None = None
        """Returns the principal of a certificate, and sets the identity of a user."""
        self.quotas = dispatcher.quotas
        """Quotas of the principals of the connections."""
        self.refusals = Refusals(env.probe)
        self.connections: dict[Connection, None] = {}
        """Open connections, in the order of their arrival."""
        self._places: ConnectionPlaces[Connection] = ConnectionPlaces(config.max_connections)
        self._reserve: dict[Connection, None] = {}
        """Connections beyond `max_connections`, in the order of their arrival."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which the broker listens."""
        return self._listener.address

    def refuse_more(self) -> None:
        """Accept no more connections."""
        self._accepting.cancel()

    async def run(self) -> None:
        """Accept connections until `refuse_more` or cancelled; then close the socket."""
        try:
            with self._accepting:
                while True:
                    await self._accept_one()
        finally:
            self._listener.close()

    def tidy(self, *, now: float) -> None:
        """Tidy all connections, and report repeated refusals; see `Connection.tidy`."""
        for connection in list(self.connections):
            connection.tidy(now=now)
        self.refusals.tidy(now=now)
        self.quotas.tidy(now=now)
        self._places.drop_nodes()
        self._note_principals()

    async def finish(self) -> None:
        """Wait until all connected clients have their replies."""
        for connection in list(self.connections):
            await connection.finish()

    async def _accept_one(self) -> None:
        try:
            stream = await self._listener.accept()
        except OSError as error:
            # Usually no file descriptors are left; open connections are still served.
            self.refusals.add("accept_failed", peer="", reason=str(error))
            self._close_silent()
            await trio.sleep(_ACCEPT_RETRY_S)
            return
        is_full = len(self.connections) >= self._config.max_connections
        is_reserve = is_full and not (self._close_silent() or self._close_excess(stream.peer))
        if is_reserve and not self._has_reserve():
            self.refusals.add(
                "connection_refused",
                peer=stream.peer,
                reason=f"there are {self._config.max_connections} connections already",
            )
            stream.close()
            return
        connection = Connection(
            self._env,
            self._config,
            stream,
            dispatcher=self._dispatcher,
            memory=self.memory,
            refusals=self.refusals,
            identify=self.identify,
        )
        connection.is_reserve = is_reserve
        if is_reserve:
            self._reserve[connection] = None
        self.connections[connection] = None
        self._places.add(connection)
        connection.on_identity = partial(self._refile, connection)
        self._note_principals()
        self._nursery.start_soon(self._serve, connection)

    def _refile(self, connection: Connection) -> None:
        """Count a connection for the principal that it has now."""
        self._places.refile(connection)
        self._note_principals()

    def _note_principals(self) -> None:
        """Let connections take turns if they are of several principals."""
        self.quotas.turns.is_needed = self._places.principal_count > 1

    def _close_silent(self) -> bool:
        """Close the oldest connection without a hello, or a proof; return whether there was one.

        So strangers that only connect keep out no client.
        """
        connection = self._places.oldest_silent()
        if connection is None:
            return False
        connection.give_up("another connection needs its place, and it has sent no hello or proof")
        return True

    def _close_excess(self, peer: str) -> bool:
        """Close an idle connection of a principal with more than half of the places.

        So one principal keeps out no other; a newcomer from its own address gets no place by this.
        Return whether there was one.
        """
        connection = self._places.excess(newcomer=peer.rpartition(":")[0])
        if connection is None:
            return False
        connection.give_up("other principals need places, and this one has more than half")
        return True

    def _has_reserve(self) -> bool:
        """Return whether one more connection is accepted, which may be of another node.

        If the reserve is full, the oldest of its connections that no node has used is closed:
        otherwise clients would keep out the nodes of their own cluster.
        """
        if not self._config.peers:
            return False
        if len(self._reserve) >= _RESERVE_MAX:
            strangers = [each for each in self._reserve if each.node_id is None]
            if not strangers:
                return False
            strangers[0].give_up(
                "the remaining connections are reserved for other nodes of the cluster"
            )
        return True

    async def _serve(self, connection: Connection) -> None:
        """Serve one connection: one of the three supervisors that catch every exception."""
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001  (the supervisor)
            _log.error("a connection failed unexpectedly", exc_info=error)
        finally:
            del self.connections[connection]
            self._places.discard(connection)
            self._note_principals()
            self._reserve.pop(connection, None)
            if not connection.is_reserve:
                self._move_up()

    def _move_up(self) -> None:
        """Move the oldest connection of the reserve to the place that has become free."""
        for connection in self._reserve:
            connection.is_reserve = False
            del self._reserve[connection]
            return


async def listen(env: Env, config: BrokerConfig) -> Listener:
    """Listen on the configured address.

    Raises:
        ConfigError: The broker cannot listen there; one line says why and what to do.
    """
    host, port = parse_address(config.listen)
    try:
        return await (env.secure_network or env.network).listen(host, port)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        advice = "is another broker running there? " if is_taken else ""
        raise ConfigError(
            f"cannot listen on {config.listen}: {error.strerror or error};"
            f" {advice}choose another address with --listen"
        ) from error
