"""The brokers that a client talks to: connections, metadata, and trying again.

Shell: owns connections. One connection to each broker is shared by all parts of a client;
replies come in any order, so a long poll holds up nothing. Whoever cannot go on for want of a
connection or a leader asks for one without waiting, and is told when anything changed.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, final

import trio

from client.address import Address
from client.backoff import Backoff
from client.config import ClientConfig
from client.metadata import MetadataCache
from wire import api
from wire.api import Api
from wire.env import Env
from wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    NotLeaderError,
    RequestTimedOutError,
    RetriableError,
    TidelogError,
    UnknownTopicIdError,
    WireFormatError,
)
from wire.rpc import RpcConnection, connect_stream, diagnose
from wire.session import MetadataRequest, TopicMetadata

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")
Result = TypeVar("Result")

CLIENT_VERSION = "1"
"""Told to brokers, for their logs."""


@final
class Cluster:
    """Connections to brokers, and what they say about the cluster."""

    def __init__(
        self, seeds: list[Address], config: ClientConfig, env: Env, nursery: trio.Nursery
    ) -> None:
        """Connect to `seeds` when nothing better is known; tasks run in `nursery`."""
        self.config = config
        self.env = env
        self.nursery = nursery
        self.metadata = MetadataCache()
        self.backoff = Backoff(config.retry_backoff, config.retry_backoff_max, env.random)
        self._seeds = seeds
        self._connections: dict[int, RpcConnection] = {}
        self._connecting = trio.Lock()
        self._dialled: dict[int, bool] = {}
        """Nodes to which a task tries to connect; whether somebody still wants it to."""
        self._dial_failures: dict[int, ConnectionLostError] = {}
        self._wanted_topics: set[str] | None = None
        self._asked_topics: set[str] = set()
        self._has_news = trio.Event()
        self._is_refreshing = False
        self._refresh_failure: TidelogError | None = None
        self._listeners: list[Callable[[], None]] = []
        self._changed = trio.Event()

    async def start(self) -> None:
        """Connect to a broker and learn of the others.

        Raises:
            ConnectError: One line that says for each address what failed and what to try.
            TidelogError: The broker that was reached did not answer as it should.
        """
        connection = await self.any_connection()
        self.metadata.apply(await self.ask_once(connection, api.METADATA, MetadataRequest([])))

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever connections or metadata changed; it must not wait or raise."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[], None]) -> None:
        """Do not call `listener` any more."""
        self._listeners.remove(listener)

    async def wait_changed(self) -> None:
        """Wait until connections or metadata change."""
        await self._changed.wait()

    def connection_nowait(self, node_id: int) -> RpcConnection | None:
        """Return the connection to a broker; if there is none, have one made.

        When that has failed, listeners are called; who still wants the connection asks again.
        """
        connection = self._connections.get(node_id)
        if connection is not None and not connection.is_lost:
            return connection
        if node_id not in self.metadata.brokers:
            self.request_refresh(())
        elif node_id in self._dialled:
            self._dialled[node_id] = True
        else:
            self._dialled[node_id] = True
            self.nursery.start_soon(self._dial, node_id)
        return None

    async def connection_to(self, node_id: int) -> RpcConnection:
        """Return a connection to a broker, made if need be.

        Raises:
            ConnectError: It cannot be reached.
        """
        self._dial_failures.pop(node_id, None)
        while (connection := self.connection_nowait(node_id)) is None:
            await self.wait_changed()
            failure = self._dial_failures.get(node_id) or (
                None if node_id in self.metadata.brokers else self._refresh_failure
            )
            if failure is not None:
                raise failure
        return connection

    async def any_connection(self) -> RpcConnection:
        """Return a connection to any broker, made if need be.

        Raises:
            ConnectError: No broker can be reached; one line.
        """
        async with self._connecting:
            for connection in self._connections.values():
                if not connection.is_lost:
                    return connection
            failures: list[str] = []
            for address in self._known_addresses():
                try:
                    return await self._connect(address)
                except ConnectionLostError as error:
                    failures.append(str(error))
        raise ConnectError("; ".join(failures))

    def request_refresh(self, topics: Iterable[str]) -> None:
        """Have metadata fetched, of the brokers and of these topics; listeners will be called."""
        wanted = (self._wanted_topics or set()).union(topics)
        self._wanted_topics = wanted
        if not wanted <= self._asked_topics:
            self._has_news.set()
        if not self._is_refreshing:
            self._is_refreshing = True
            self.nursery.start_soon(self._refresh)

    async def topic(self, name: str) -> TopicMetadata:
        """Return what is known of a topic, after asking if it is not known.

        Raises:
            UnknownTopicError: There is no such topic.
            TidelogError: Nobody could be asked for `request_timeout`; what went wrong last.
        """
        self.metadata.forget([name])
        with trio.move_on_after(self.config.request_timeout):
            while (known := self.metadata.topic(name)) is None:
                self.request_refresh([name])
                await self.wait_changed()
                error = self.metadata.error(name)
                if error is not None:
                    raise error
            return known
        raise self._refresh_failure or RequestTimedOutError(f"no broker knows of topic {name!r}")

    async def ask_any(
        self, asked: Api[RequestType, ReplyType], request: RequestType, *, is_repeatable: bool
    ) -> ReplyType:
        """Ask any broker; see `retry`."""

        async def attempt() -> ReplyType:
            return await self.ask_once(await self.any_connection(), asked, request)

        return await self.retry(attempt, is_repeatable=is_repeatable)

    async def retry(
        self, attempt: Callable[[], Awaitable[Result]], *, is_repeatable: bool
    ) -> Result:
        """Return what `attempt` returns; repeat it for up to `request_timeout` if that may help.

        Args:
            attempt: Asks a broker once.
            is_repeatable: Whether asking twice does no harm, so that it may be repeated even
                when the first request may have been executed.

        Raises:
            BrokerError: A broker refused, or went on failing.
            ConnectionLostError: The request may or may not have been executed.
        """
        gives_up_at = trio.current_time() + self.config.request_timeout
        failure_count = 0
        while True:
            try:
                return await attempt()
            except (RetriableError, ConnectionLostError) as error:
                failure_count += 1
                delay = self.backoff.delay(failure_count)
                is_done_perhaps = isinstance(
                    error, (ConnectionLostError, RequestTimedOutError)
                ) and not isinstance(error, ConnectError)
                is_late = trio.current_time() + delay >= gives_up_at
                if is_late or (is_done_perhaps and not is_repeatable):
                    raise
                if isinstance(error, (NotLeaderError, UnknownTopicIdError)):
                    self.request_refresh(self.metadata.topic_names)
            await trio.sleep(delay)

    async def ask_once(
        self, connection: RpcConnection, asked: Api[RequestType, ReplyType], request: RequestType
    ) -> ReplyType:
        """Ask over this connection; close it when no answer comes for `request_timeout`.

        Raises:
            BrokerError: The broker refused, or did not answer.
            ConnectionLostError: The request may or may not have been executed.
        """
        with trio.move_on_after(self.config.request_timeout):
            return await connection.ask(asked, request)
        connection.close()
        raise RequestTimedOutError(
            f"the broker did not answer {asked.key.name} in {self.config.request_timeout} s"
        )

    def _known_addresses(self) -> list[Address]:
        announced = [Address(known.host, known.port) for known in self.metadata.brokers.values()]
        return list(dict.fromkeys((*announced, *self._seeds)))

    async def _connect(self, address: Address) -> RpcConnection:
        with trio.move_on_after(self.config.connect_timeout):
            stream = await connect_stream(self.env.network, address.host, address.port)
            connection = RpcConnection(stream)
            self.nursery.start_soon(self._run, connection, address)
            try:
                hello = await connection.introduce(self.config.client_name, CLIENT_VERSION)
            except (BrokerError, ConnectionLostError, WireFormatError) as error:
                connection.close()
                raise ConnectError(
                    f"cannot connect to {address}: {error}; is this a tidelog broker?"
                ) from error
            except trio.Cancelled:
                connection.close()
                raise
            known = self._connections.get(hello.node_id)
            if known is not None and not known.is_lost:
                connection.close()
                return known
            self._connections[hello.node_id] = connection
            self._dial_failures.pop(hello.node_id, None)
            self.env.probe("client.connected", address=str(address), node_id=hello.node_id)
            self._notify()
            return connection
        raise ConnectError(diagnose(address.host, address.port, TimeoutError("no answer")))

    async def _run(self, connection: RpcConnection, address: Address) -> None:
        await connection.run()
        for node_id, known in list(self._connections.items()):
            if known is connection:
                del self._connections[node_id]
                self.env.probe("client.connection_lost", address=str(address), node_id=node_id)
                self._notify()

    async def _dial(self, node_id: int) -> None:
        failure_count = 0
        while self._dialled[node_id]:
            self._dialled[node_id] = False
            known = self.metadata.brokers.get(node_id)
            if known is None:
                break
            try:
                await self._connect(Address(known.host, known.port))
                if node_id in self._connections:
                    break
                self._dial_failures[node_id] = ConnectError(
                    f"{known.host}:{known.port} is announced as node {node_id} and is another one"
                )
            except ConnectionLostError as error:
                self._dial_failures[node_id] = error
            failure_count += 1
            self.request_refresh(())
            self._notify()
            await trio.sleep(self.backoff.delay(failure_count))
        del self._dialled[node_id]

    async def _refresh(self) -> None:
        failure_count = 0
        while self._wanted_topics is not None:
            self._asked_topics = self._wanted_topics
            self._wanted_topics = None
            self._has_news = trio.Event()
            try:
                connection = await self.any_connection()
                request = MetadataRequest(sorted(self._asked_topics))
                reply = await self.ask_once(connection, api.METADATA, request)
            except (BrokerError, ConnectionLostError, WireFormatError) as error:
                self._refresh_failure = error
                failure_count += 1
                self._notify()
                await trio.sleep(self.backoff.delay(failure_count))
            else:
                self.metadata.apply(reply)
                self._refresh_failure = None
                failure_count = 0
                self._notify()
                # The same question is not asked again at once: leaders take time to change.
                with trio.move_on_after(self.backoff.delay(1)):
                    await self._has_news.wait()
        self._is_refreshing = False

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        for listener in list(self._listeners):
            listener()
