"""Connection pool of a client: one connection to each broker, made on demand.

A broker reads no further on a connection with many unanswered requests, and a long poll is one for
its whole wait. So polls of very many queues are divided over further connections, which end with
the first one, or when they have been idle for a while.

Shell: owns connections. A silent broker may have been replaced by others. The pool closes its
connection when the metadata confirm that, and asks it last until then.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, final

import trio

from tidelog.client.cluster.address import Address
from tidelog.client.cluster.background_tasks import BackgroundTasks
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.metadata import MetadataCache
from tidelog.client.cluster.wrong_replies import WrongReplies
from tidelog.client.config import ClientConfig
from tidelog.client.metrics.counters import ConnectionCounters
from tidelog.wire.config.quota_rates import quota_of
from tidelog.wire.env.connect_errors import another_service, diagnose
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    AuthenticationFailedError,
    BrokerError,
    ConnectError,
    ConnectionLostError,
    HandshakeFailedError,
    RetriableError,
    TidelogError,
    WireFormatError,
)
from tidelog.wire.protocol.api import ApiKey
from tidelog.wire.transport.rpc import RpcConnection, connect_stream

if TYPE_CHECKING:
    from tidelog.client.security.login import ConnectionLogin, Logins

CLIENT_VERSION = "1"
"""Version of the client in the handshake, for the logs of brokers."""
_ADVICE = "; is this a tidelog broker?"
_LOOK_AGAIN_S = 1.0
"""Seconds between refreshes of the metadata while a broker cannot be reached."""
_REPORT_S = 60.0
"""Seconds between two lines about throttling."""
_SILENCE_S = 2.0
"""Seconds without a reply after which a broker may have been replaced by others."""
_SILENT_AGAIN_S = 0.5
"""Seconds between two looks at a silent broker, each with a refresh of the metadata."""


_POLLS_PART = 0.5
"""Part of the unanswered requests of a connection from which on another one is made for polls."""
_POLLS_PART_MAX = 0.75
"""Part that polls may take up meanwhile: the rest is for short requests."""
_FURTHER_IDLE_S = 30.0
"""Seconds without a request after which a further connection is closed."""


def _logins(config: ClientConfig, env: Env) -> "Logins | None":
    """Return the logins of a client with credentials; `None` for an anonymous one."""
    if config.user is None and config.token is None and config.impersonate is None:
        return None
    # Not at the top: most commands are anonymous, and start more quickly without.
    from tidelog.client.security.login import Logins  # noqa: PLC0415

    return Logins(config, env)


@final
class ConnectionPool:
    """All connections of one client, by node."""

    def __init__(
        self,
        config: ClientConfig,
        env: Env,
        tasks: BackgroundTasks,
        *,
        counters: ConnectionCounters,
        metadata: MetadataCache,
        on_change: Callable[[], None],
        on_stale_metadata: Callable[[], None],
    ) -> None:
        """Start without connections.

        `on_change` is called when a connection was made, was lost or could not be made, and
        `on_stale_metadata` when newer metadata may say that a broker is not needed any more.
        """
        self._config = config
        self._env = env
        self._tasks = tasks
        self._counters = counters
        self._metadata = metadata
        self._on_change = on_change
        self._on_stale_metadata = on_stale_metadata
        self._logins = _logins(config, env)
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max, env.random)
        self._connections: dict[int, RpcConnection] = {}
        self._further: dict[int, list[RpcConnection]] = {}
        """Further connections to each broker, for long polls."""
        self._adding: set[int] = set()
        """Nodes to which a task makes a further connection."""
        self._met: set[int] = set()
        """Nodes with a connection now or earlier."""
        self._silent: set[int] = set()
        self._dialled: dict[int, bool] = {}
        """Nodes to which a task tries to connect; whether a caller still wants the connection."""
        self._failures: dict[int, TidelogError] = {}
        self._wrong_replies = WrongReplies(self._backoff)
        self._turns: dict[Address, trio.Lock] = {}
        """One attempt at a time for each address with wrong replies."""
        self._reached: dict[Address, int] = {}
        """Node of the last connection to each address."""
        self._reported_s: dict[int, float] = {}
        """Throttled seconds by rate, as of the last line about them."""
        self._is_reporting = False
        counters.on_throttled = self._begin_reports

    def _begin_reports(self) -> None:
        if not self._is_reporting:
            self._is_reporting = self._tasks.start_soon(self._report_throttling)

    async def _report_throttling(self) -> None:
        """Log once a minute how long brokers throttled this client, until they do so no more."""
        while True:
            await trio.sleep(_REPORT_S)
            known, total = self._reported_s, self._counters.throttled_s.copy()
            added = {rate: total[rate] - known.get(rate, 0.0) for rate in total}
            self._reported_s = total
            if not any(added.values()):
                self._is_reporting = False
                return
            principal = self._counters.principal
            self._env.probe(
                "client.throttled",
                severity="warning",
                **({"principal": principal} if principal else {}),
                percent=min(100, max(1, round(100 * sum(added.values()) / _REPORT_S))),
                quota=quota_of(max(added, key=added.__getitem__)),
            )

    def live(self, node_id: int) -> RpcConnection | None:
        """Return the connection to a broker, if there is one."""
        connection = self._connections.get(node_id)
        return None if connection is None or connection.is_lost else connection

    def live_for_poll(self, node_id: int) -> RpcConnection | None:
        """Return a connection for a long poll, which leaves others room for short requests.

        If each is half full, start connecting, and fill the first one up to three quarters. `None`
        beyond that; `on_change` is called when there is another connection, or cannot be one.
        """
        first = self.live(node_id)
        if first is None or _is_below(first, _POLLS_PART):
            return first
        for connection in self._further.get(node_id, ()):
            if not connection.is_lost and _is_below(connection, _POLLS_PART):
                return connection
        if node_id not in self._adding and self._tasks.start_soon(self._add, node_id, first):
            self._adding.add(node_id)
        return first if _is_below(first, _POLLS_PART_MAX) else None

    def in_order(self) -> list[int]:
        """Return the connected nodes, silent nodes last."""
        found = [node_id for node_id in self._connections if self.live(node_id) is not None]
        return sorted(found, key=self._silent.__contains__)

    def is_silent(self, node_id: int) -> bool:
        """Return whether a broker owes replies and sends none."""
        return node_id in self._silent

    def failure(self, node_id: int) -> TidelogError | None:
        """Return the error of the last attempt to connect to a broker, if it failed."""
        return self._failures.get(node_id)

    def forget_failure(self, node_id: int) -> None:
        """Drop the error of the last attempt, before a new one."""
        self._failures.pop(node_id, None)

    def nowait(self, node_id: int) -> RpcConnection | None:
        """Return the connection to a broker; if there is none, start connecting.

        `on_change` is called when that has failed; callers that still want it call again.
        """
        connection = self._connections.get(node_id)
        if connection is not None and not connection.is_lost:
            return connection
        if node_id not in self._metadata.brokers:
            self._on_stale_metadata()
        elif node_id in self._dialled:
            self._dialled[node_id] = True
        else:
            self._dialled[node_id] = True
            self._tasks.start_soon(self._dial, node_id)
        return None

    async def reach(self, node_id: int) -> RpcConnection:
        """Return the connection to a broker; connect if needed.

        Raises:
            ConnectError: The broker cannot be reached.
            RetriableError: The broker is not ready.
            AuthenticationFailedError: The broker refuses the credentials.
        """
        connection = self.live(node_id)
        if connection is not None:
            return connection
        known = self._metadata.brokers.get(node_id)
        if known is None:
            raise ConnectError(f"node {node_id} is not announced any more")
        return await self.connect(Address(known.host, known.port))

    @property
    def has_wrong_replies(self) -> bool:
        """Whether any broker has sent wrong replies lately."""
        return bool(self._wrong_replies.addresses)

    def lasting_wrong_reply(
        self, node_id: int | None, apis: Sequence[ApiKey]
    ) -> WireFormatError | None:
        """Return the error of a broker whose replies were wrong for `request_timeout`.

        For an unknown node it is the error of a broker that gives no metadata.
        """
        patience_s = self._config.request_timeout
        address = None if node_id is None else self._announced(node_id)
        if address is not None:
            return self._wrong_replies.lasting(address, patience_s, [ApiKey.HELLO, *apis])
        for known in self._wrong_replies.addresses:
            error = self._wrong_replies.lasting(known, patience_s, [ApiKey.HELLO, ApiKey.METADATA])
            if error is not None:
                return error
        return None

    async def connect(self, address: Address) -> RpcConnection:
        """Return a connection to the broker at an address, perhaps an existing one.

        After wrong replies of the broker, wait until its backoff is over.

        Raises:
            ConnectError: No broker answers at the address in time.
            RetriableError: The broker is not ready.
            AuthenticationFailedError: The broker refuses the credentials.
        """
        if not self._wrong_replies.knows(address, trio.current_time()):
            self._turns.pop(address, None)
            return await self._connect(address)
        async with self._turns.setdefault(address, trio.Lock()):
            node_id = self._reached.get(address)
            known = None if node_id is None else self.live(node_id)
            if known is not None:
                return known
            retry_at = self._wrong_replies.retry_at(address)
            if retry_at > trio.current_time():
                await trio.sleep_until(retry_at)
            return await self._connect(address)

    async def _connect(
        self, address: Address, *, beside: RpcConnection | None = None
    ) -> RpcConnection:
        """Return a connection to an address; a further one if there is one to be `beside` of."""
        connection: RpcConnection | None = None
        self._counters.attempts += 1
        with trio.move_on_after(self._config.connect_timeout):
            stream = await connect_stream(self._env.network, address.host, address.port)
            connection = RpcConnection(stream, self._counters)
            login = None if self._logins is None else self._logins.login_of(connection)
            if not self._tasks.start_soon(self._run, connection, address, login):
                connection.close()
            try:
                hello = await connection.introduce(self._config.client_id, CLIENT_VERSION)
                if login is not None:
                    await login.begin()
                    self._counters.principal = login.principal
            except (RetriableError, AuthenticationFailedError):
                connection.close()
                raise
            except WireFormatError as error:
                connection.close()
                line = another_service(str(address), connection.first_bytes, str(error))
                raise ConnectError(line) from error
            except (BrokerError, ConnectionLostError) as error:
                connection.close()
                advice = "" if isinstance(error, HandshakeFailedError) else _ADVICE
                line = f"cannot connect to {address}: {error}{advice}"
                if connection.first_bytes and isinstance(error, ConnectionLostError):
                    line = another_service(str(address), connection.first_bytes, str(error))
                raise ConnectError(line) from error
            except trio.Cancelled:
                connection.close()
                raise
            return self._chosen(connection, address, hello.node_id, beside=beside)
        if connection is None:
            raise ConnectError(diagnose(address.host, address.port, TimeoutError("no answer")))
        why = f"it has not answered within {self._config.connect_timeout:g} s"
        raise ConnectError(another_service(str(address), connection.first_bytes, why))

    def _chosen(
        self,
        connection: RpcConnection,
        address: Address,
        node_id: int,
        *,
        beside: RpcConnection | None,
    ) -> RpcConnection:
        """Return the connection to a broker that is used from now on: the new one, or another."""
        known = self.live(node_id)
        if known is None:
            self._keep(connection, address, node_id)
            return connection
        if known is beside:
            self._further.setdefault(node_id, []).append(connection)
            self._counters.opened += 1
            return connection
        connection.close()
        return known

    def _keep(self, connection: RpcConnection, address: Address, node_id: int) -> None:
        """Use a new connection from now on."""
        self._connections[node_id] = connection
        self._counters.opened += 1
        self._counters.reconnects += node_id in self._met
        self._met.add(node_id)
        self._reached[address] = node_id
        if self._wrong_replies.knows(address, trio.current_time()):
            self._wrong_replies.understood(address, ApiKey.HELLO)
            connection.on_understood = partial(self._wrong_replies.understood, address)
        self._silent.discard(node_id)
        self._failures.pop(node_id, None)
        self._env.probe("client.connected", address=str(address), node_id=node_id)
        self._on_change()

    async def _run(
        self, connection: RpcConnection, address: Address, login: "ConnectionLogin | None"
    ) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, connection)
                nursery.start_soon(self._close_when_idle, connection)
                if login is not None:
                    nursery.start_soon(login.keep)
                await connection.run()
                nursery.cancel_scope.cancel()
        finally:
            is_further = self._is_further(connection)
            if is_further:
                self._further[_node_of(connection)].remove(connection)
            self._counters.closed += is_further or connection in self._connections.values()
        if not is_further:
            self._reached.pop(address, None)
        if connection.wrong_reply is not None:
            self._note_wrong_reply(connection, address, connection.wrong_reply)
        for node_id, known in list(self._connections.items()):
            if known is connection:
                del self._connections[node_id]
                self._silent.discard(node_id)
                for further in list(self._further.get(node_id, ())):
                    further.close()
                self._env.probe("client.connection_lost", address=str(address), node_id=node_id)
                self._on_change()

    def _note_wrong_reply(
        self, connection: RpcConnection, address: Address, error: WireFormatError
    ) -> None:
        now = trio.current_time()
        announced = None if connection.hello is None else self._announced(connection.hello.node_id)
        if announced is not None and announced != address:
            self._wrong_replies.add(announced, connection.suspects, error, now=now)
        count = self._wrong_replies.add(address, connection.suspects, error, now=now)
        if count:
            self._env.probe(
                "client.wrong_reply",
                severity="warning",
                address=str(address),
                reason=str(error),
                count=count,
            )

    def _announced(self, node_id: int) -> Address | None:
        known = self._metadata.brokers.get(node_id)
        return None if known is None else Address(known.host, known.port)

    async def _watch(self, connection: RpcConnection) -> None:
        """Close the connection to a silent broker when other brokers lead in its place.

        Its process may hang, or its machine may be gone: the connection does not tell.
        """
        has_led = False
        while True:
            reply_count, hello = connection.reply_count, connection.hello
            is_silent = hello is not None and self.is_silent(hello.node_id)
            await trio.sleep(_SILENT_AGAIN_S if is_silent else _SILENCE_S)
            if connection.hello is None or self._is_further(connection):
                continue
            node_id = connection.hello.node_id
            is_owed = connection.is_owed_a_reply(trio.current_time())
            if not is_owed or connection.reply_count != reply_count:
                self._silent.discard(node_id)
                has_led = self._metadata.is_leader(node_id)
                continue
            self._silent.add(node_id)
            reason = f"node {node_id} does not answer"
            self._env.probe("client.blocked", severity="debug", reason=reason)
            is_leader = self._metadata.is_leader(node_id)
            if has_led and not is_leader:
                connection.close()
            else:
                has_led = has_led or is_leader
                self._on_stale_metadata()

    async def _add(self, node_id: int, first: RpcConnection) -> None:
        """Make a further connection beside the first one to a broker."""
        try:
            known = self._metadata.brokers.get(node_id)
            if known is not None:
                await self._connect(Address(known.host, known.port), beside=first)
        except (ConnectionLostError, BrokerError) as error:
            self._env.probe("client.blocked", severity="debug", reason=str(error))
            await trio.sleep(self._backoff.delay(1))
        finally:
            self._adding.discard(node_id)
        self._on_change()

    def _is_further(self, connection: RpcConnection) -> bool:
        if connection.hello is None:
            return False
        return connection in self._further.get(connection.hello.node_id, ())

    async def _close_when_idle(self, connection: RpcConnection) -> None:
        """Close a further connection that has had no request for a while."""
        while True:
            reply_count = connection.reply_count
            await trio.sleep(_FURTHER_IDLE_S)
            is_used = connection.in_flight_count or connection.reply_count != reply_count
            if not is_used and self._is_further(connection):
                connection.close()

    async def _dial(self, node_id: int) -> None:
        """Try to connect while a caller wants it; look for new leaders meanwhile."""
        while self._dialled[node_id] and self.live(node_id) is None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_for_others)
                await self._connect_while_wanted(node_id)
                nursery.cancel_scope.cancel()
        del self._dialled[node_id]

    async def _look_for_others(self) -> None:
        while True:
            await trio.sleep(_LOOK_AGAIN_S)
            self._on_stale_metadata()

    async def _connect_while_wanted(self, node_id: int) -> None:
        failure_count = 0
        while self._dialled[node_id]:
            self._dialled[node_id] = False
            known = self._metadata.brokers.get(node_id)
            if known is None:
                break
            try:
                await self.connect(Address(known.host, known.port))
                if node_id in self._connections:
                    break
                self._failures[node_id] = ConnectError(
                    f"{Address(known.host, known.port)} is announced as node {node_id} and is"
                    f" another one"
                )
            except (ConnectionLostError, BrokerError) as error:
                self._failures[node_id] = error
            reason = str(self._failures[node_id])
            self._env.probe("client.blocked", severity="debug", reason=reason)
            failure_count += 1
            self._on_stale_metadata()
            self._on_change()
            await trio.sleep(self._backoff.delay(failure_count))


def _is_below(connection: RpcConnection, part: float) -> bool:
    """Return whether less than a part of the unanswered requests of a connection are under way."""
    hello = connection.hello
    assert hello is not None, "a connection of the pool is introduced"
    limit = hello.max_in_flight_requests_per_connection
    return connection.in_flight_count < max(1, round(limit * part))


def _node_of(connection: RpcConnection) -> int:
    assert connection.hello is not None, "a connection of the pool is introduced"
    return connection.hello.node_id
