"""From request to handler.

What need not wait is carried out at once, in the task of the connection; the rest gets a task.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import cast, final

import trio

from broker.handlers.fetch import FetchHandler
from broker.handlers.produce import ProduceHandler
from broker.handlers.session import SessionHandler
from broker.replier import Asking, Replier
from wire import api
from wire.api import ApiKey
from wire.connection import Request
from wire.errors import ShuttingDownError
from wire.fetch import FetchRequest
from wire.produce import ProduceRequest
from wire.session import ApiVersions, HelloRequest, MetadataRequest

SlowHandler = Callable[[object], Awaitable[object]]


@final
class Dispatcher:
    """Finds the handler of a request."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        session: SessionHandler,
        produce: ProduceHandler,
        fetch: FetchHandler,
        slow: Mapping[ApiKey, tuple[api.AnyApi, SlowHandler]],
    ) -> None:
        """Run `slow` handlers as tasks in `nursery`, all others at once."""
        self._nursery = nursery
        self._session = session
        self._produce = produce
        self._fetch = fetch
        self._slow = {int(key): handler for key, (_, handler) in slow.items()}
        fast = [api.HELLO, api.METADATA, api.PRODUCE, api.FETCH]
        self.apis = [*(cast("api.AnyApi", served) for served in fast)]
        self.apis += [served for served, _ in slow.values()]
        self._api_of = {int(served.key): served for served in self.apis}
        self._versions = [
            ApiVersions(int(served.key), served.min_version, served.max_version)
            for served in self.apis
        ]
        self.is_shutting_down = False
        """Whether new requests are refused."""

    def handle(self, request: Request, asking: Asking) -> None:
        """Carry out one request; it is answered now or later, exactly once."""
        replier = Replier(self._api_of[request.api_key], request, asking)
        with replier:
            if self.is_shutting_down:
                raise ShuttingDownError("this broker is shutting down")
            message = request.message
            if isinstance(message, ProduceRequest):
                self._produce.handle(message, request.attachment, replier)
            elif isinstance(message, FetchRequest):
                self._fetch.handle(message, replier)
            elif isinstance(message, MetadataRequest):
                replier.reply(self._session.describe(message, local=asking.local))
            elif isinstance(message, HelloRequest):
                replier.reply(self._session.hello(message, self._versions))
            else:
                self._nursery.start_soon(
                    self._run_slow, self._slow[request.api_key], message, replier
                )

    @staticmethod
    async def _run_slow(handler: SlowHandler, message: object, replier: Replier) -> None:
        with replier:
            replier.reply(await handler(message))
