"""Dispatch of requests to handlers, by one table of routes.

The dispatcher carries out a request that need not wait at once, in the task of the connection;
other requests get a task. It serves nodes of the cluster from start to end, when they have proved
their identity. It serves clients once the broker is ready, until the broker is asked to stop.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, final

import trio

from tidelog.broker.audit.event import NULL_AUDIT, AuditSink
from tidelog.broker.metrics.request_counts import RequestCounts
from tidelog.broker.quotas.broker_quotas import BrokerQuotas
from tidelog.broker.requests.request_auditor import RequestAuditor, is_administrative
from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.broker.requests.steps import Steps
from tidelog.wire.errors import (
    BrokerNotReadyError,
    NotANodeError,
    OverloadedError,
    ShuttingDownError,
)
from tidelog.wire.messages.cluster import BrokerHeartbeatRequest, JoinRequest, PeerStatusRequest
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest
from tidelog.wire.messages.replication import (
    ReplicaDurableRequest,
    ReplicaFetchRequest,
    ReplicaReadRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.security.principal import Principal

NODE_APIS: Final = frozenset(
    int(each.key)
    for each in (
        *(api.PEER_STATUS, api.RAFT, api.RAFT_SNAPSHOT, api.FORWARD_COMMAND, api.JOIN),
        *(api.BROKER_HEARTBEAT, api.REPLICA_FETCH, api.REPLICA_DURABLE, api.REPLICA_READ),
        *(api.AWAIT_METADATA, api.AWAIT_APPENDED, api.LIST_OFFSETS),
    )
)
"""APIs of nodes alone; clients use LIST_OFFSETS as well."""


@final
@dataclass(frozen=True, slots=True)
class Immediate:
    """An API that is answered at once."""

    handler: Callable[[Any, memoryview], object]
    """Takes message and attachment, and returns the reply; `None` if no reply is wanted."""


@final
@dataclass(frozen=True, slots=True)
class FromNode:
    """An API of nodes that is answered at once, and depends on the node that asks."""

    handler: Callable[[Any, memoryview, int], object]
    """Takes message, attachment and node id, and returns the reply; `None` if none is wanted."""


@final
@dataclass(frozen=True, slots=True)
class Deferred:
    """An API that is answered at once, or as soon as there is data or a result."""

    handler: Callable[[Any, ResponseHandle], Steps | None]
    """Takes message and response; returns the rest of the work if that is long."""


@final
@dataclass(frozen=True, slots=True)
class Appending:
    """An API that appends the attachment, and is answered at once or later."""

    handler: Callable[[Any, memoryview, ResponseHandle], Steps | None]
    """Takes message, attachment and response; returns the rest of the work if that is long."""


@final
@dataclass(frozen=True, slots=True)
class InTask:
    """An API each of whose requests runs in a task."""

    handler: Callable[[Any], Awaitable[object]]


@final
@dataclass(frozen=True, slots=True)
class InTaskAs:
    """An API each of whose requests runs in a task, and depends on the principal that asks."""

    handler: Callable[[Any, Principal], Awaitable[object]]


class Gate(Protocol):
    """Decides which requests of clients are served."""

    def check(self, request: Request, context: RequestContext) -> None:
        """Return if a request may be carried out; it is called before the handler.

        Raises:
            BrokerError: It may not.
        """
        ...


class AccessDecider(Protocol):
    """Decides what clients may do."""

    def admit(self, request: Request, response: ResponseHandle) -> Request:
        """Return the request to carry out, with a guard of its reply in `response`.

        Raises:
            BrokerError: The request as a whole is denied.
        """
        ...

    def wait(self, request: Request, response: ResponseHandle) -> None:
        """Keep an admitted request under control that is not answered before other tasks run."""
        ...

    def check(self, request: Request, context: RequestContext) -> None:
        """Check again whether a request as a whole may be carried out, after a wait.

        Raises:
            BrokerError: It is denied.
        """
        ...


Route = Immediate | FromNode | Deferred | Appending | InTask | InTaskAs
Routes = Mapping[Api[Any, Any], Route]
_Run = Callable[[Request, ResponseHandle], Steps | None]


@final
class Dispatcher:
    """Finds the handler of a request."""

    def __init__(
        self,
        nursery: trio.Nursery,
        apis: Sequence[Api[Any, Any]],
        quotas: BrokerQuotas | None = None,
    ) -> None:
        """Dispatch requests for `apis`; tasks run in `nursery`. By default, there are no quotas."""
        self._nursery = nursery
        self.apis: list[api.AnyApi] = list(apis)
        self.api_of = {int(served.key): served for served in self.apis}
        """The APIs by key."""
        self.counts = {int(served.key): RequestCounts() for served in self.apis}
        """Answered requests by API key."""
        self._of_all: dict[int, _Run] = {}
        self._of_nodes: dict[int, _Run] = {}
        self._of_clients: dict[int, _Run] = {}
        self._of_clients_alone: dict[int, _Run] = {}
        """Those that no node may send: while clients are served, they need no further look."""
        self.waiting_for = "it has just started"
        """Reason that clients are not served yet, for error texts."""
        self.gate: Gate | None = None
        """Checks every request of a client, `None` to serve all."""
        self.quotas = quotas or BrokerQuotas()
        """Quotas of principals."""
        self.access: AccessDecider | None = None
        """Decides about every request behind the gate; `None` allows all."""
        self.audit: AuditSink = NULL_AUDIT
        """Takes the audit events of all connections."""
        self.auditor: RequestAuditor | None = None
        """Notes administrative requests; `None` while `audit = off`."""
        self.end_turn: Callable[[], None] = do_nothing
        """Called by a connection that has handled the received requests of one turn, before it
        sends the replies. It must not raise."""
        self.is_in_turn = False
        """Whether a connection handles received requests, and calls `end_turn` next."""
        self.is_shutting_down = False
        """Whether new requests of clients are refused."""
        self.is_stopping = False
        """Whether the broker has begun to stop; it may still serve clients."""

    @property
    def unready_reason(self) -> str | None:
        """Reason that clients should use other brokers, `None` while this one serves them."""
        if self.is_stopping:
            return "it is shutting down"
        return None if self._of_clients else self.waiting_for

    def serve_all(self, routes: Routes) -> None:
        """Add routes for every peer, which are served also beyond `max_connections`."""
        assert not self._of_clients, "these come before clients are served"
        self._of_all |= self._runs(routes)

    def serve_nodes(self, routes: Routes) -> None:
        """Add routes for nodes with a proven identity, served also beyond `max_connections`."""
        self._of_nodes |= self._runs(routes)

    def serve_clients(self, routes: Routes) -> None:
        """Serve clients from now on, by these routes."""
        self._of_clients = self._runs(routes)
        others = NODE_APIS | self._of_all.keys()
        self._of_clients_alone = {
            key: run for key, run in self._of_clients.items() if key not in others
        }

    def handle(self, request: Request, context: RequestContext) -> Steps | None:
        """Carry out one request; it is answered now or later, exactly once.

        Return the rest of the work if that is long: the attachment is in use until its end.
        """
        key = request.api_key
        response = ResponseHandle(self.api_of[key], request, context, counts=self.counts[key])
        access = self.access
        # Not `with response`: it would add two calls to each request.
        try:
            is_looked_up = context.is_reserve or self.is_shutting_down
            run = None if is_looked_up else self._of_clients_alone.get(key)
            run = run or self._run_for(request.message, key, context)
            asked = request.message
            if context.node_id is None:
                if self.gate is not None:
                    self.gate.check(request, context)
                if access is not None:
                    request = access.admit(request, response)
                if self.auditor is not None and is_administrative(key):
                    run = partial(self.auditor.run, run, asked=asked, check=self._check_again)
            steps = run(request, response)
            if access is not None and not response.is_answered:
                access.wait(request, response)
        except NotANodeError as error:
            context.note_refused(str(error))
            response.caught(error)
        except Exception as error:  # noqa: BLE001  (the supervisor)
            response.caught(error)
        else:
            return None if steps is None else _supervised(steps, response)
        return None

    def _check_again(self, request: Request, context: RequestContext) -> None:
        if self.gate is not None:
            self.gate.check(request, context)
        if self.access is not None:
            self.access.check(request, context)

    def _run_for(self, message: object, key: int, context: RequestContext) -> _Run:
        """Return what carries out a request of this connection.

        Raises:
            NotANodeError: Only nodes may send it, or only another one.
            RetriableError: It is not served now; the message says why.
        """
        run = self._of_all.get(key)
        if run is None:
            if key in NODE_APIS and not _is_of_client(message):
                _check_sender(message, _proven(context))
                run = self._of_nodes.get(key)
            else:
                self._check_clients_are_served(context)
                run = self._of_clients.get(key)
        if run is None:
            raise BrokerNotReadyError(f"this broker is not ready: {self.waiting_for}")
        return run

    def _check_clients_are_served(self, context: RequestContext) -> None:
        """Raise unless clients are served on this connection.

        Raises:
            RetriableError: Clients are not served now; the message says why.
        """
        if context.is_reserve:
            raise OverloadedError(
                "this broker has reached max_connections; its remaining connections are reserved"
                " for other nodes of its cluster"
            )
        if self.is_shutting_down:
            raise ShuttingDownError("this broker is shutting down")

    def _runs(self, routes: Routes) -> dict[int, _Run]:
        return {int(served.key): self._run_of(route) for served, route in routes.items()}

    def _run_of(self, route: Route) -> _Run:
        match route:
            case Immediate(answer):
                return lambda request, response: response.reply_if_wanted(
                    answer(request.message, request.attachment)
                )
            case FromNode(answer_node):
                return lambda request, response: response.reply_if_wanted(
                    answer_node(request.message, request.attachment, _proven(response.context))
                )
            case Deferred(answer_later):
                return lambda request, response: answer_later(request.message, response)
            case Appending(append):
                return lambda request, response: append(
                    request.message, request.attachment, response
                )
            case InTask(handler):
                start = self._nursery.start_soon
                return lambda request, response: start(
                    run_in_task, handler, request.message, response
                )
            case InTaskAs(handler_as):
                start = self._nursery.start_soon
                return lambda request, response: start(
                    run_in_task, _bound(handler_as, response), request.message, response
                )


def do_nothing() -> None:
    """End a turn without further work."""


def _supervised(steps: Steps, response: ResponseHandle) -> Steps:
    with response:
        yield from steps


async def run_in_task(
    handler: Callable[[Any], Awaitable[object]], message: object, response: ResponseHandle
) -> None:
    """Answer a request with what its handler returns."""
    with response:
        meter, work = response.context.meter, handler(message)
        response.reply(await (work if meter is None else meter.followed(work)))


def _bound(
    handler: Callable[[Any, Principal], Awaitable[object]], response: ResponseHandle
) -> Callable[[Any], Awaitable[object]]:
    """Return a handler for the principal that a connection has now."""
    principal = response.context.principal
    return lambda message: handler(message, principal)


def _is_of_client(message: object) -> bool:
    """Return whether a client, and not a broker, sent a request for an API that both use."""
    return isinstance(message, ListOffsetsRequest) and message.cluster_id is None


def _proven(context: RequestContext) -> int:
    """Return the node at the other end of a connection.

    Raises:
        NotANodeError: It has not proved to be a node.
    """
    if context.node_id is None:
        raise NotANodeError(
            "only nodes of the cluster may send this, and this connection has not proved to be one"
        )
    return context.node_id


def _check_sender(message: object, node_id: int) -> None:
    """Check that a request comes from the node that it names.

    Raises:
        NotANodeError: It comes from another node.
    """
    match message:
        case PeerStatusRequest() | BrokerHeartbeatRequest():
            claimed_id = message.node_id
        case JoinRequest() if not message.is_passed_on:
            claimed_id = message.peer.node_id
        case ReplicaFetchRequest() | ReplicaDurableRequest() | ReplicaReadRequest():
            claimed_id = message.identity.node_id
        case _:
            return
    if claimed_id != node_id:
        raise NotANodeError(f"node {node_id} sent a request as node {claimed_id}")
