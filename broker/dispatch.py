"""From request to handler, and from a defect to an honest answer.

What need not wait is carried out at once, in the task of the connection; the rest gets a task.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, cast, final

import trio

from broker.handlers.fetch import FetchHandler
from broker.handlers.produce import ProduceHandler
from broker.handlers.session import SessionHandler
from broker.replier import Replier
from wire import api
from wire.api import ApiKey
from wire.connection import Request
from wire.errors import BrokerError, ShuttingDownError, UnexpectedServerError
from wire.fetch import FetchRequest
from wire.outbox import Outbox
from wire.produce import ProduceRequest
from wire.session import ApiVersions, HelloRequest, MetadataRequest

_log = logging.getLogger("tidelog.broker")

SlowHandler = Callable[[object], Awaitable[object]]


class Asking(Protocol):
    """The connection that a request came on."""

    outbox: Outbox

    @property
    def local(self) -> tuple[str, int]:
        """Where the client reached this broker."""
        ...

    def answered(self) -> None:
        """One request has its answer in the outbox."""
        ...


@final
class Dispatcher:
    """Finds the handler of a request.

    One of the two supervisors that catch every exception: a defect in one request is logged and
    answered, and harms nobody else.
    """

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
        replier = Replier(self._api_of[request.api_key], request, asking.outbox, asking.answered)
        try:
            if self.is_shutting_down:
                replier.fail(ShuttingDownError("this broker is shutting down"))
                return
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
        except BrokerError as error:
            replier.fail(error)
        except Exception as error:  # noqa: BLE001  (the supervisor)
            replier.fail(_defect(error))

    @staticmethod
    async def _run_slow(handler: SlowHandler, message: object, replier: Replier) -> None:
        try:
            reply = await handler(message)
        except BrokerError as error:
            replier.fail(error)
        except Exception as error:  # noqa: BLE001  (the supervisor)
            replier.fail(_defect(error))
        else:
            replier.reply(reply)


def _defect(error: Exception) -> UnexpectedServerError:
    _log.exception("a request failed unexpectedly", exc_info=error)
    return UnexpectedServerError(
        f"the broker failed unexpectedly ({type(error).__name__}); its log has the details"
    )
