"""From request to handler.

What need not wait is carried out at once, in the task of the connection; the rest gets a task.
Brokers are served from the start to the end, clients from when there is something to serve until
this broker is asked to stop.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import trio

from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.groups import CommitHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.session import SessionHandler
from tidelog.broker.queues.handler_table import QueueHandlers
from tidelog.broker.requests.response import Asking, Replier
from tidelog.broker.transactions.handler_table import TransactionHandlers
from tidelog.wire.errors import BrokerNotReadyError, OverloadedError, ShuttingDownError
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.groups import CommitOffsetsRequest
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.messages.session import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.protocol.connection import Request

PlainHandler = Callable[[Any, memoryview], object]
"""Takes message and attachment, and returns the reply at once; `None` if nobody wants one."""
ParkingHandler = Callable[[Any, Replier], None]
"""Takes a message, and replies at once or when there is something to say."""
AppendingHandler = Callable[[Any, memoryview, Replier], None]
"""Takes message and attachment, and replies at once or later."""
SlowHandler = Callable[[Any], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class ClientHandlers:
    """What clients are served with."""

    session: SessionHandler
    produce: ProduceHandler
    fetch: FetchHandler
    commits: CommitHandler
    queues: QueueHandlers
    staging: TransactionHandlers
    slow: Mapping[Api[Any, Any], SlowHandler]
    """All other APIs; each request runs in a task."""


@final
class Dispatcher:
    """Finds the handler of a request."""

    def __init__(self, nursery: trio.Nursery, apis: Sequence[Api[Any, Any]]) -> None:
        """Know `apis`; tasks run in `nursery`."""
        self._nursery = nursery
        self.apis: list[api.AnyApi] = list(apis)
        self._api_of = {int(served.key): served for served in self.apis}
        self._plain: dict[int, PlainHandler] = {}
        self._parking: dict[int, ParkingHandler] = {}
        self._slow: dict[int, SlowHandler] = {}
        self._clients: ClientHandlers | None = None
        self._slow_of_clients: dict[int, SlowHandler] = {}
        self._parking_of_clients: dict[int, ParkingHandler] = {}
        self._appending: dict[int, AppendingHandler] = {}
        self.waiting_for = "it has just started"
        """Why clients are not served yet, for people."""
        self.is_shutting_down = False
        """Whether new requests of clients are refused."""

    def serve_brokers(
        self,
        plain: Mapping[Api[Any, Any], PlainHandler],
        slow: Mapping[Api[Any, Any], SlowHandler],
    ) -> None:
        """Serve these, too, from now on."""
        self._plain |= {int(served.key): handler for served, handler in plain.items()}
        self._slow |= {int(served.key): handler for served, handler in slow.items()}

    def serve_followers(self, parking: Mapping[Api[Any, Any], ParkingHandler]) -> None:
        """Serve these, too, from now on."""
        self._parking = {int(served.key): handler for served, handler in parking.items()}

    def serve_clients(self, handlers: ClientHandlers) -> None:
        """Serve clients from now on."""
        self._clients = handlers
        self._appending = {
            int(api.STAGE.key): handlers.staging.stages.handle,
            int(api.SEND.key): handlers.queues.sends.handle,
        }
        self._parking_of_clients = {
            int(served.key): handler for served, handler in handlers.queues.parking.items()
        }
        self._slow_of_clients = {
            int(served.key): handler
            for slow in (handlers.slow, handlers.queues.slow, handlers.staging.slow)
            for served, handler in slow.items()
        }

    def handle(self, request: Request, asking: Asking) -> None:
        """Carry out one request; it is answered now or later, exactly once."""
        key = request.api_key
        replier = Replier(self._api_of[key], request, asking)
        with replier:
            is_of_node = key in self._plain or key in self._parking or key in self._slow
            asking.is_of_node |= is_of_node and key != int(api.HELLO.key)
            plain = self._plain.get(key)
            if plain is not None:
                replier.reply_if_wanted(plain(request.message, request.attachment))
                return
            parking = self._parking.get(key)
            if parking is not None:
                parking(request.message, replier)
                return
            slow = self._slow.get(key)
            if slow is not None:
                self._nursery.start_soon(self._run_slow, slow, request.message, replier)
                return
            self._serve_client(request, replier)

    def _serve_client(self, request: Request, replier: Replier) -> None:
        clients = self._clients_at(replier.asking)
        message = request.message
        if isinstance(message, ProduceRequest):
            clients.produce.handle(message, request.attachment, replier)
        elif request.api_key in self._appending:
            self._appending[request.api_key](message, request.attachment, replier)
        elif request.api_key in self._parking_of_clients:  # One of them shares FETCH's message.
            self._parking_of_clients[request.api_key](message, replier)
        elif isinstance(message, FetchRequest):
            clients.fetch.handle(message, replier)
        elif isinstance(message, CommitOffsetsRequest):
            clients.commits.handle(message, replier)
        elif isinstance(message, MetadataRequest):
            session, local = clients.session, replier.asking.local
            if session.may_be_behind(message):
                ask = partial(session.describe_after_asking, local=local)
                self._nursery.start_soon(self._run_slow, ask, message, replier)
            else:
                replier.reply(session.describe(message, local=local))
        else:
            self._nursery.start_soon(
                self._run_slow, self._slow_of_clients[request.api_key], message, replier
            )

    def _clients_at(self, asking: Asking) -> ClientHandlers:
        """Return what clients are served with on this connection.

        Raises:
            RetriableError: Nothing now; the message says why.
        """
        if asking.is_reserve:
            raise OverloadedError(
                "this broker has as many connections as it may (max_connections); what is left is"
                " for other nodes of its cluster"
            )
        if self.is_shutting_down:
            raise ShuttingDownError("this broker is shutting down")
        if self._clients is None:
            raise BrokerNotReadyError(f"this broker is not ready: {self.waiting_for}")
        return self._clients

    @staticmethod
    async def _run_slow(handler: SlowHandler, message: object, replier: Replier) -> None:
        with replier:
            replier.reply(await handler(message))
