"""Dispatch of requests to handlers, by one table of routes.

The dispatcher carries out a request that need not wait at once, in the task of the connection;
other requests get a task. It serves brokers from start to end. It serves clients once the broker is
ready, until the broker is asked to stop.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import trio

from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.wire.errors import BrokerNotReadyError, OverloadedError, ShuttingDownError
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.protocol.connection import Request

_HELLO: Final = int(api.HELLO.key)


@final
@dataclass(frozen=True, slots=True)
class Immediate:
    """An API that is answered at once."""

    handler: Callable[[Any, memoryview], object]
    """Takes message and attachment, and returns the reply; `None` if no reply is wanted."""


@final
@dataclass(frozen=True, slots=True)
class Deferred:
    """An API that is answered at once, or as soon as there is data or a result."""

    handler: Callable[[Any, ResponseHandle], None]


@final
@dataclass(frozen=True, slots=True)
class Appending:
    """An API that appends the attachment, and is answered at once or later."""

    handler: Callable[[Any, memoryview, ResponseHandle], None]


@final
@dataclass(frozen=True, slots=True)
class InTask:
    """An API each of whose requests runs in a task."""

    handler: Callable[[Any], Awaitable[object]]


Route = Immediate | Deferred | Appending | InTask
Routes = Mapping[Api[Any, Any], Route]
_Run = Callable[[Request, ResponseHandle], None]


@final
class Dispatcher:
    """Finds the handler of a request."""

    def __init__(self, nursery: trio.Nursery, apis: Sequence[Api[Any, Any]]) -> None:
        """Dispatch requests for `apis`; tasks run in `nursery`."""
        self._nursery = nursery
        self.apis: list[api.AnyApi] = list(apis)
        self._api_of = {int(served.key): served for served in self.apis}
        self._of_brokers: dict[int, _Run] = {}
        self._of_clients: dict[int, _Run] = {}
        self.waiting_for = "it has just started"
        """Reason that clients are not served yet, for error texts."""
        self.is_shutting_down = False
        """Whether new requests of clients are refused."""

    def serve_brokers(self, routes: Routes) -> None:
        """Add routes for brokers, which are also served on connections beyond `max_connections`."""
        self._of_brokers |= self._runs(routes)

    def serve_clients(self, routes: Routes) -> None:
        """Serve clients from now on, by these routes."""
        self._of_clients = self._runs(routes)

    def handle(self, request: Request, context: RequestContext) -> None:
        """Carry out one request; it is answered now or later, exactly once."""
        key = request.api_key
        response = ResponseHandle(self._api_of[key], request, context)
        with response:
            run = self._of_brokers.get(key)
            if run is None or _is_of_client(request.message):
                self._check_clients_are_served(context)
                run = self._of_clients[key]
            elif key != _HELLO:
                context.is_of_node = True
            run(request, response)

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
        if not self._of_clients:
            raise BrokerNotReadyError(f"this broker is not ready: {self.waiting_for}")

    def _runs(self, routes: Routes) -> dict[int, _Run]:
        return {int(served.key): self._run_of(route) for served, route in routes.items()}

    def _run_of(self, route: Route) -> _Run:
        match route:
            case Immediate(answer):
                return lambda request, response: response.reply_if_wanted(
                    answer(request.message, request.attachment)
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


async def run_in_task(
    handler: Callable[[Any], Awaitable[object]], message: object, response: ResponseHandle
) -> None:
    """Answer a request with what its handler returns."""
    with response:
        response.reply(await handler(message))


def _is_of_client(message: object) -> bool:
    """Return whether a client, and not a broker, sent a request for an API that both use."""
    return isinstance(message, ListOffsetsRequest) and message.cluster_id is None
