"""Client of a cluster: choice of brokers, metadata and retries.

Shell: owns the metadata of the cluster. All parts of a client share one connection to each broker;
replies come in any order, so a long poll holds up nothing. A caller without a connection or a
leader requests one without waiting, and listeners are called after every change.
"""

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast, final

import msgspec
import trio

from tidelog.client.cluster.address import Address
from tidelog.client.cluster.background_tasks import BackgroundTasks
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.blocked_loop import BlockedLoop
from tidelog.client.cluster.connection_pool import ConnectionPool
from tidelog.client.cluster.hedging import first_success
from tidelog.client.cluster.metadata import MetadataCache
from tidelog.client.cluster.open_work import OpenWork
from tidelog.client.cluster.reply_shapes import mismatch
from tidelog.client.config import ClientConfig
from tidelog.client.metrics.counters import ClientCounters
from tidelog.wire.env.env import BytesLike, Env, Probe
from tidelog.wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    LeaderNotAvailableError,
    NotControllerError,
    NotLeaderError,
    RequestTimedOutError,
    RetriableError,
    ShuttingDownError,
    TidelogError,
    UnknownPartitionError,
    UnknownTopicIdError,
    UnsupportedVersionError,
    WireFormatError,
)
from tidelog.wire.messages.division import divided
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest, TopicMetadata
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api, ApiKey
from tidelog.wire.transport.rpc import RpcConnection

if TYPE_CHECKING:
    from tidelog.client.tracing.tracing import Tracing

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")
Result = TypeVar("Result")
_Connect = Callable[[], Awaitable[RpcConnection]]

STALE_METADATA_ERRORS = (
    ConnectionLostError,
    LeaderNotAvailableError,
    NotControllerError,
    NotLeaderError,
    RequestTimedOutError,
    ShuttingDownError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
"""Errors after which newer metadata may name a better broker."""

_HEAD_START_S = 0.25
"""Seconds before the next broker is tried too."""
_REPEAT_MAX_S = 0.25
"""Maximum seconds between two equal requests for metadata, while a partition has no leader."""
_PATIENCE_S = 2.0
"""Seconds before another broker is asked too."""


@final
class ClusterClient:
    """Connections to brokers, and the metadata of the cluster."""

    def __init__(
        self, seeds: list[Address], config: ClientConfig, env: Env, *, tasks: BackgroundTasks
    ) -> None:
        """Use `seeds` while the metadata name no brokers."""
        self.config = config
        self.env = env
        self.tasks = tasks
        self.counters = ClientCounters(trio.lowlevel.current_clock().current_time)
        """Counters of this client, for `Client.statistics`."""
        self.blocked_loop = BlockedLoop(env.probe)
        """Gets the times of timers that must not be late."""
        self.metadata = MetadataCache()
        self.open_work = OpenWork()
        """Receives and settlements that the close of the client waits for."""
        self.tracing: Tracing | None = None
        """Makes the spans of this client; `None` without tracing."""
        self.backoff = Backoff(config.retry_backoff, config.retry_backoff_max, env.random)
        self._numbers = count(1)
        """Numbers of requests that may be repeated, for the probe."""
        self._seeds = seeds
        self._connections = ConnectionPool(
            config,
            env,
            tasks,
            counters=self.counters.connections,
            metadata=self.metadata,
            on_change=self._notify,
            on_stale_metadata=self._invalidate,
        )
        self.connection_nowait = self._connections.nowait
        """Returns the connection to a broker; if there is none, starts connecting. Listeners are
        called when that has failed; callers that still want it call again."""
        self._connecting = trio.Lock()
        self._asked_count = 0
        self._asked_at = -math.inf
        """Time of the last request for metadata (seconds of trio's clock)."""
        self._wanted_topics: set[str] | None = None
        self._asked_topics: set[str] = set()
        self._has_news = trio.Event()
        self._is_refreshing = False
        self._refresh_failure: TidelogError | None = None
        self._listeners: list[Callable[[], None]] = []
        self._changed = trio.Event()

    @property
    def addresses(self) -> list[Address]:
        """Addresses of all brokers that are known now, those given at first included."""
        announced = [Address(known.host, known.port) for known in self.metadata.brokers.values()]
        return [*dict.fromkeys([*announced, *self._seeds])]

    async def start(self) -> None:
        """Connect to a broker and fetch the list of the others.

        A broker that is reached and not ready yet is waited for, up to `request_timeout`.

        Raises:
            ConnectError: One line with the failure of each address and what to try.
            TidelogError: The broker that was reached gave an invalid answer.
        """
        ask = partial(self._ask_metadata, ())
        self.metadata.apply(await self.retry(ask, is_repeatable=True, hopeless=ConnectError))

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever connections or metadata changed; it must not wait or raise."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[], None]) -> None:
        """Do not call `listener` any more."""
        self._listeners.remove(listener)

    async def wait_changed(self) -> None:
        """Wait until connections or metadata change.

        Raises:
            ClosedError: The client is closed.
        """
        await self.tasks.wait(self._changed)

    def connect_failure(self, node_id: int) -> TidelogError | None:
        """Return the error of the last attempt to connect to a broker, if it failed."""
        return self._connections.failure(node_id)

    def lasting_wrong_reply(
        self, node_id: int | None, apis: Sequence[ApiKey]
    ) -> WireFormatError | None:
        """Return the error of a broker whose replies were wrong for `request_timeout`.

        Args:
            node_id: Broker that is needed. If it is unknown because no broker gives metadata, the
                error is that of one of those.
            apis: APIs that it is needed for.
        """
        is_known = node_id in self.metadata.brokers
        if not self._connections.has_wrong_replies or not (is_known or self._refresh_failure):
            return None
        return self._connections.lasting_wrong_reply(node_id, apis)

    def live_connection(self, node_id: int) -> RpcConnection | None:
        """Return the connection to a broker, if there is one."""
        return self._connections.live(node_id)

    def live_connection_for_poll(self, node_id: int) -> RpcConnection | None:
        """Return a connection to a broker with room for a long poll; `None` while there is none.

        If only room is missing, a further connection is being made.
        """
        return self._connections.live_for_poll(node_id)

    async def connection_to_poll(self, node_id: int) -> RpcConnection:
        """Return a connection to a broker with room for a long poll; connect if needed.

        Raises:
            ConnectError: The broker cannot be reached.
            RetriableError: The broker, or a broker asked for its address, is not ready.
        """
        await self.connection_to(node_id)
        while (connection := self.live_connection_for_poll(node_id)) is None:
            await self.wait_changed()
            await self.connection_to(node_id)
        return connection

    async def connection_to(self, node_id: int) -> RpcConnection:
        """Return a connection to a broker; connect if needed.

        Raises:
            ConnectError: The broker cannot be reached.
            RetriableError: The broker, or a broker asked for its address, is not ready.
        """
        self._connections.forget_failure(node_id)
        connection = self.connection_nowait(node_id)
        if connection is not None:
            return connection
        with trio.move_on_after(self.config.request_timeout):
            while (connection := self.connection_nowait(node_id)) is None:
                await self.wait_changed()
                self._raise_failure(node_id)
            return connection
        raise ConnectError(f"node {node_id} is not known to the cluster; is that broker running?")

    async def controller_connection(self) -> RpcConnection:
        """Return a connection to the controller, as far as it is known.

        If another node becomes the controller meanwhile, this connects to that one.

        Raises:
            NotControllerError: The controller is unknown; metadata are being fetched.
            ConnectError: The controller cannot be reached.
        """
        node_id = self.metadata.controller_id
        connection = None if node_id is None else self.connection_nowait(node_id)
        if connection is not None:
            return connection
        await trio.lowlevel.checkpoint()
        tried: int | None = None
        with trio.move_on_after(self.config.request_timeout):
            while (node_id := self.metadata.controller_id) is not None:
                if node_id != tried:
                    self._connections.forget_failure(node_id)
                tried = node_id
                connection = self.connection_nowait(node_id)
                if connection is not None:
                    return connection
                await self.wait_changed()
                if self.metadata.controller_id == node_id:
                    self._raise_failure(node_id)
            self.request_refresh(())
        raise NotControllerError(
            "no broker knows which one decides for the cluster now; are most of them running?"
        )

    async def any_connection(self) -> RpcConnection:
        """Return a connection to any broker; connect if needed.

        Raises:
            ConnectError: No broker can be reached; one line.
            RetriableError: A broker was reached and is not ready.
        """
        async with self._connecting:
            for node_id in self._connections.in_order():
                connection = self._connections.live(node_id)
                if connection is not None and not self._connections.is_silent(node_id):
                    return connection
            return await _first(self._ways_to_connect(), head_start=_HEAD_START_S)

    def refresh_if_old(self, now: float) -> None:
        """Refresh the metadata of all cached topics if they are older than `metadata_max_age`.

        `now` is in seconds of trio's clock.
        """
        if now > self._asked_at + self.config.metadata_max_age:
            self._asked_at = now  # Once, also without an answer.
            self.request_refresh(self.metadata.topic_names)

    def request_refresh(self, topics: Iterable[str], *, because: Exception | None = None) -> None:
        """Fetch metadata of the brokers and these topics; then listeners are called.

        `because` is the error after which a request is to be repeated, if there was one.
        """
        if because is not None:
            self.report_blocked(str(because))
        wanted = (self._wanted_topics or set()).union(topics)
        self._wanted_topics = wanted
        if not wanted <= self._asked_topics:
            self._has_news.set()
        if not self._is_refreshing:
            self._is_refreshing = True
            self.tasks.start_soon(self._refresh)

    def report_blocked(self, reason: str) -> None:
        """Tell the probe why a request cannot be sent or answered now; it is tried again."""
        self.env.probe("client.blocked", severity="debug", reason=reason)

    async def topic(self, name: str) -> TopicMetadata:
        """Return the metadata of a topic; fetch them if needed.

        Raises:
            UnknownTopicError: There is no such topic.
            TidelogError: No broker answered within `request_timeout`; the last error.
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

    async def call_any(
        self,
        method: Api[RequestType, ReplyType],
        request: RequestType,
        *,
        is_repeatable: bool,
        min_version: int = 1,
    ) -> ReplyType:
        """Ask any broker, and a second one if the first is slow and that is safe; see `retry`.

        A request with fields that an older broker would skip names the `min_version` of its API,
        and goes to one broker.

        Raises:
            UnsupportedVersionError: The broker does not know that version.
        """

        async def attempt() -> ReplyType:
            if is_repeatable and min_version == 1:
                return await self._ask_several(method, request, head_start=_PATIENCE_S)
            connection = await self.any_connection()
            version = connection.version_of(method)
            if version < min_version:
                raise UnsupportedVersionError(
                    f"the broker supports {method.key.name} up to version {version}, and the"
                    f" request needs version {min_version}; upgrade the broker"
                )
            return await self.call_once(connection, method, request)

        return await self.retry(attempt, is_repeatable=is_repeatable, waits_for=method.key.name)

    async def call_controller(
        self, method: Api[RequestType, ReplyType], request: RequestType, *, is_repeatable: bool
    ) -> ReplyType:
        """Ask the controller; see `retry`."""

        async def attempt() -> ReplyType:
            return await self.call_once(await self.controller_connection(), method, request)

        return await self.retry(attempt, is_repeatable=is_repeatable, waits_for=method.key.name)

    async def retry(
        self,
        attempt: Callable[[], Awaitable[Result]],
        *,
        is_repeatable: bool,
        hopeless: type[TidelogError] | tuple[()] = (),
        waits_for: str = "the request",
    ) -> Result:
        """Return the result of `attempt`; repeat it for up to `request_timeout` if that may help.

        Args:
            attempt: Sends a request once.
            is_repeatable: Whether a second execution does no harm, so that it may be repeated even
                when the first request may have been executed.
            hopeless: Errors that are raised at once.
            waits_for: What is to be answered, for the probe.

        Raises:
            BrokerError: A broker refused, or failed until the end.
            ConnectionLostError: The request may or may not have been executed.
            WireFormatError: The same, and the last reply was wrong.
            ClosedError: The client is closed.
        """
        deadline = trio.current_time() + self.config.request_timeout
        retries = _Retries(self.env.probe, next(self._numbers), waits_for, deadline=deadline)
        try:
            return await self._retry(
                attempt, retries, is_repeatable=is_repeatable, hopeless=hopeless
            )
        finally:
            retries.ended()

    async def _retry(
        self,
        attempt: Callable[[], Awaitable[Result]],
        retries: "_Retries",
        *,
        is_repeatable: bool,
        hopeless: type[TidelogError] | tuple[()],
    ) -> Result:
        while True:
            try:
                return await self.tasks.until_closed(attempt)
            except (RetriableError, ConnectionLostError, WireFormatError) as error:
                retries.failed(error)
                delay = self.backoff.delay(retries.failure_count)
                is_done_perhaps = isinstance(
                    error, (ConnectionLostError, RequestTimedOutError, WireFormatError)
                ) and not isinstance(error, ConnectError)
                is_late = trio.current_time() + delay >= retries.deadline
                is_over = is_late or isinstance(error, hopeless)
                if is_late and retries.failure_count > 1:
                    _add_note(
                        error, f"the request was retried for {self.config.request_timeout:g} s"
                    )
                if is_over or (is_done_perhaps and not is_repeatable):
                    raise
                if isinstance(error, STALE_METADATA_ERRORS):
                    self.request_refresh(self.metadata.topic_names)
            await trio.sleep(delay)

    def call_once(
        self,
        connection: RpcConnection,
        method: Api[RequestType, ReplyType],
        request: RequestType,
        *,
        patience: float | None = None,
        attachment: Sequence[BytesLike] = (),
    ) -> Coroutine[Any, Any, ReplyType]:
        """Send a request over this connection and return the reply; see `call_and_take`."""
        return self.call_and_take(
            connection,
            method,
            request,
            take=_reply_alone,
            patience=patience,
            attachment=attachment,
        )

    def call_and_take(
        self,
        connection: RpcConnection,
        method: Api[RequestType, ReplyType],
        request: RequestType,
        *,
        take: Callable[[ReplyType, memoryview], Result],
        patience: float | None = None,
        attachment: Sequence[BytesLike] = (),
    ) -> Coroutine[Any, Any, Result]:
        """Send a request over this connection; close it when no right reply comes in time.

        Args:
            connection: Connection to the broker.
            method: API.
            request: Message.
            take: Returns the result for a reply and its attachment, which is valid until then.
            patience: Seconds to wait; `request_timeout` by default.
            attachment: Bytes after the message.

        Raises:
            BrokerError: The broker refused, or did not answer.
            ConnectionLostError: The request may or may not have been executed.
            WireFormatError: The same, and the reply was wrong.
        """

        def take_checked(reply: ReplyType, view: memoryview) -> Result:
            problem = mismatch(request, reply)
            if problem is not None:
                raise connection.reject(method, problem)
            return take(reply, view)

        patience = self.config.request_timeout if patience is None else patience
        return connection.call(
            method, request, take=take_checked, attachment=attachment, patience=patience
        )

    def _raise_failure(self, node_id: int) -> None:
        """Raise the error of the last attempt to connect, or to find the address."""
        is_known = node_id in self.metadata.brokers
        failure = self._connections.failure(node_id) or (
            None if is_known else self._refresh_failure
        )
        if failure is not None:
            raise failure

    async def _ask_metadata(self, topics: Iterable[str]) -> MetadataReply:
        is_again = trio.current_time() - self._asked_at <= _PATIENCE_S
        self._asked_at = trio.current_time()
        found: list[TopicMetadata] = []
        reply: MetadataReply | None = None
        for names in divided(sorted(topics)):
            reply = await self._ask_several(
                api.METADATA,
                MetadataRequest(names),
                head_start=_HEAD_START_S,
                in_turn=is_again,
            )
            found += reply.topics
        assert reply is not None, "there is at least one part"
        return msgspec.structs.replace(reply, topics=found)

    async def _ask_several(
        self,
        method: Api[RequestType, ReplyType],
        request: RequestType,
        *,
        head_start: float,
        in_turn: bool = False,
    ) -> ReplyType:
        """Ask brokers until one answers; start with another broker each time.

        A broker that is cut off from the others has stale metadata; one that hangs is silent.

        Raises:
            TidelogError: A broker refused, or none could be asked.
        """

        async def ask(connect: _Connect) -> ReplyType | BrokerError:
            try:
                return await self.call_once(await connect(), method, request)
            except BrokerError as error:
                if error.is_retriable:
                    raise
                return error  # Others would answer the same.

        ways = [partial(ask, connect) for connect in self._ways_to_connect(in_turn=in_turn)]
        answer = await _first(ways, head_start=head_start)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def _ways_to_connect(self, *, in_turn: bool = False) -> list[_Connect]:
        """Return ways to brokers: connected brokers first, silent brokers last.

        With `in_turn` unconnected brokers take their turn as well: a broker that is cut off, or
        whose disk hangs, gives the same answer for long.
        """
        nodes = list(self.metadata.brokers)
        start = self._asked_count % (len(nodes) or 1)
        self._asked_count += 1
        nodes = nodes[start:] + nodes[:start]
        if not in_turn:
            nodes.sort(key=lambda node_id: self._connections.live(node_id) is None)
        nodes.sort(key=self._connections.is_silent)
        announced = {Address(known.host, known.port) for known in self.metadata.brokers.values()}
        seeds = [seed for seed in dict.fromkeys(self._seeds) if seed not in announced]
        return [
            *(partial(self._connections.reach, node_id) for node_id in nodes),
            *(partial(self._connections.connect, seed) for seed in seeds),
        ]

    def _invalidate(self) -> None:
        self.request_refresh(self.metadata.topic_names)

    async def _refresh(self) -> None:
        failure_count = repeat_count = 0
        while self._wanted_topics is not None:
            self._asked_topics = self._wanted_topics
            self._wanted_topics = None
            self._has_news = trio.Event()
            try:
                reply = await self._ask_metadata(self._asked_topics)
            except (BrokerError, ConnectionLostError, WireFormatError) as error:
                self._refresh_failure = error
                self.report_blocked(str(error))
                failure_count += 1
                self._notify()
                await trio.sleep(self.backoff.delay(failure_count))
            else:
                self.metadata.apply(reply)
                self._note_leaderless()
                self._refresh_failure = None
                failure_count = 0
                repeat_count += 1
                self._notify()
                # The same request is not repeated at once: an election takes time.
                pause_s = min(self.backoff.delay(repeat_count), _REPEAT_MAX_S)
                with trio.move_on_after(pause_s) as pause:
                    await self._has_news.wait()
                if not pause.cancelled_caught:
                    repeat_count = 0
        self._is_refreshing = False

    def _note_leaderless(self) -> None:
        place = self.metadata.first_leaderless(self._asked_topics)
        if place is not None:
            topic, number = place
            self.report_blocked(
                f"{topic}/{number} has no leader; see tidelog topic describe {topic}"
            )

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        for listener in list(self._listeners):
            listener()


def _reply_alone(reply: ReplyType, _: memoryview) -> ReplyType:
    return reply


class _Retries:
    """The attempts of one request, of which the probe gets start, failures and end."""

    def __init__(self, probe: Probe, number: int, waits_for: str, *, deadline: float) -> None:
        self._probe = probe
        self._number = number
        self.deadline = deadline
        """Time of the last attempt, in seconds of trio's clock."""
        self.failure_count = 0
        self._tell(f"no answer to {waits_for} yet")

    def failed(self, error: Exception) -> None:
        self.failure_count += 1
        self._tell(str(error))

    def ended(self) -> None:
        self._probe("client.request_ended", severity="debug", request_id=self._number)

    def _tell(self, reason: str) -> None:
        self._probe(
            "client.request_waits",
            severity="debug",
            request_id=self._number,
            reason=reason,
            deadline=self.deadline,
        )


def _add_note(error: Exception, note: str) -> None:
    """Add a note to an error, which several callers may get, once."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


async def _first(ways: Iterable[Callable[[], Awaitable[Result]]], *, head_start: float) -> Result:
    """Return the result of the first way to succeed.

    Raises:
        TidelogError: All failed; errors that a retry may cure take precedence.
    """
    try:
        return await first_success(ways, head_start=head_start)
    except ExceptionGroup as failures:
        raise _reason(failures) from failures


def _reason(failures: ExceptionGroup[Exception]) -> TidelogError:
    """Return one error for all ways that failed."""
    errors = cast("tuple[TidelogError, ...]", failures.exceptions)
    for error in errors:
        if not isinstance(error, ConnectionLostError):
            return error
    if all(isinstance(error, ConnectError) for error in errors):
        return ConnectError("; ".join(str(error) for error in errors))
    return errors[-1]
