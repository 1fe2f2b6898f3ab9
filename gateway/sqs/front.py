"""The SQS front: from an HTTP request to its response.

Shell: it runs actions, in the task of their connection.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from random import Random
from typing import Final, final

import trio

from tidelog.gateway.sqs.actions.registry import ACTIONS
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.callers import Callers
from tidelog.gateway.sqs.failures import error_of
from tidelog.gateway.sqs.http.front_connection import HttpExchange
from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.metrics import NO_ACTION, FrontMetrics
from tidelog.gateway.sqs.protocol.choice import codec_of
from tidelog.gateway.sqs.protocol.codec import SqsCodec
from tidelog.gateway.sqs.protocol.errors import INTERNAL
from tidelog.gateway.sqs.protocol.replies import MessagesReceived, SqsReply
from tidelog.gateway.sqs.protocol.requests import (
    ChangeMessageVisibilityBatchCall,
    ChangeVisibilityEntry,
    ReceiveMessageCall,
)
from tidelog.gateway.sqs.trace_header import TRACE_HEADER, traced

_log = logging.getLogger("tidelog.gateway")

Pages = Callable[[bytes], Awaitable[HttpResponse | None]]
"""Returns the page of a target, `None` if it is none."""

_RECEIVE: Final = "ReceiveMessage"
_RELEASE_S: Final = 5.0
"""Maximum time to make messages visible again after a hang-up, in seconds."""
_NO_MESSAGES: Final = MessagesReceived()


@final
class Front:
    """Answers requests of all connections."""

    def __init__(
        self,
        callers: Callers,
        metrics: FrontMetrics,
        *,
        pages: Pages,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        """Answer for `callers`.

        Args:
            callers: Users and their clients.
            metrics: Counters of requests.
            pages: Pages beside the actions.
            clock: Monotonic clock, in seconds.
            random: Entropy for the ids of requests.
        """
        self.callers = callers
        """Users and their clients."""
        self._metrics = metrics
        self._pages = pages
        self._clock = clock
        digits = f"{random.getrandbits(80):020x}"
        self._id_prefix = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:]}-"
        """Part of the ids of requests that tells fronts apart."""
        self._id_numbers = count()

    async def answer(self, request: HttpRequest, exchange: HttpExchange) -> HttpResponse | None:
        """Return the response to a request; `None` if the client has hung up and needs none."""
        if request.method != b"POST":
            page = await self._pages(request.target)
            if page is not None:
                return page
        began_at, request_id = self._clock(), self._new_id()
        codec = codec_of(request)
        action, error_name = NO_ACTION, ""
        try:
            caller = await self.callers.caller_of(request)
            action, call = codec.decode(request)
            trace = request.headers.get(TRACE_HEADER)
            del request  # A receive that waits needs it no more.
            if trace is not None:
                call = traced(call, trace)
            if isinstance(call, ReceiveMessageCall):
                exchange.on_stop = partial(self._nothing, codec, request_id, began_at=began_at)
                reply = await self._receive(caller, call, exchange)
                if reply is None:
                    return None
            else:
                reply = await ACTIONS[action](caller, call)
            response = codec.encode_reply(action, reply, request_id)
        except Exception as failure:  # noqa: BLE001  (the supervisor)
            error = error_of(failure)
            if error.shape is INTERNAL:
                _log.error("the action %s failed unexpectedly", action, exc_info=failure)
            error_name = error.shape.json_name
            response = codec.encode_error(error, request_id)
        self._metrics.note(action, error_name, self._clock() - began_at)
        return response

    async def _receive(
        self, caller: Caller, call: ReceiveMessageCall, exchange: HttpExchange
    ) -> SqsReply | None:
        """Receive messages; `None` if no client waits for them, and then nothing stays leased."""
        metrics = self._metrics
        metrics.waiting_count += 1
        reply: SqsReply | None = None
        try:
            if not exchange.has_hung_up:
                reply = await ACTIONS[_RECEIVE](caller, call)
        finally:
            exchange.on_stop = None
            metrics.waiting_count -= 1
            metrics.abandoned_count += exchange.has_hung_up
        if not (exchange.has_hung_up or exchange.is_stopped):
            return reply
        if isinstance(reply, MessagesReceived) and reply.messages:
            await _release(caller, call, reply)
        return None

    def _nothing(self, codec: SqsCodec, request_id: str, *, began_at: float) -> HttpResponse:
        """Return the response to a receive that still waits when the front stops."""
        self._metrics.note(_RECEIVE, "", self._clock() - began_at)
        return codec.encode_reply(_RECEIVE, _NO_MESSAGES, request_id)

    def _new_id(self) -> str:
        """Return a new id of a request, in the form of a UUID."""
        return f"{self._id_prefix}{next(self._id_numbers):012x}"


async def _release(caller: Caller, call: ReceiveMessageCall, received: MessagesReceived) -> None:
    """Make messages visible again that arrived together with the end of the wait for them."""
    entries = [
        ChangeVisibilityEntry(str(index), each.receipt_handle, 0)
        for index, each in enumerate(received.messages or ())
    ]
    try:
        with trio.move_on_after(_RELEASE_S, shield=True):
            await ACTIONS["ChangeMessageVisibilityBatch"](
                caller, ChangeMessageVisibilityBatchCall(call.queue_url, entries)
            )
    except Exception as failure:  # noqa: BLE001  (no client waits; the visibility timeout ends them)
        _log.info("messages that no client waits for stay leased: %s", failure)
