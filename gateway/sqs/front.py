"""The SQS front: from an HTTP request to its response.

Shell: it runs actions, in the task of their connection.
"""

import logging
from random import Random
from typing import Final, final

import trio

from tidelog.gateway.sqs.actions.registry import ACTIONS, Action
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.callers import Callers
from tidelog.gateway.sqs.failures import error_of
from tidelog.gateway.sqs.http.front_connection import HttpExchange
from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.protocol.choice import codec_of
from tidelog.gateway.sqs.protocol.codec import Codec
from tidelog.gateway.sqs.protocol.errors import INTERNAL, UNKNOWN_OPERATION, SqsError
from tidelog.gateway.sqs.protocol.replies import MessagesReceived, SqsReply
from tidelog.gateway.sqs.protocol.requests import SqsCall

_log = logging.getLogger("tidelog.gateway")

_WAITING_ACTION: Final = "ReceiveMessage"
_NO_MESSAGES: Final = MessagesReceived()


@final
class Front:
    """Answers requests of all connections."""

    def __init__(self, callers: Callers, random: Random) -> None:
        """Answer for `callers`; `random` makes request ids."""
        self._callers = callers
        self._random = random

    async def answer(self, request: HttpRequest, exchange: HttpExchange) -> HttpResponse | None:
        """Return the response to a request; `None` if the client has hung up and needs none."""
        request_id = self._new_id()
        codec = codec_of(request)
        try:
            return await self._answer_with(codec, request, request_id, exchange=exchange)
        except Exception as error:  # noqa: BLE001  (the supervisor)
            known = error_of(error)
            if known is None:
                _log.error("an action failed unexpectedly", exc_info=error)
                known = SqsError(INTERNAL, "The request failed. The log of the front has details.")
            return codec.encode_error(known, request_id)

    async def _answer_with(
        self, codec: Codec, request: HttpRequest, request_id: str, *, exchange: HttpExchange
    ) -> HttpResponse | None:
        action, call = codec.decode(request)
        caller = await self._callers.caller_of(request)
        function = ACTIONS.get(action)
        if function is None:
            raise SqsError(UNKNOWN_OPERATION, f"The action {action} does not exist.")
        if action == _WAITING_ACTION:
            reply = await _wait_for(function, caller, call, exchange=exchange)
            if reply is None:
                return None
        else:
            reply = await function(caller, call)
        return codec.encode_reply(action, reply, request_id)

    def _new_id(self) -> str:
        """Return a new id of a request, a UUID."""
        digits = f"{self._random.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


async def _wait_for(
    function: Action, caller: Caller, call: SqsCall, *, exchange: HttpExchange
) -> SqsReply | None:
    """Return messages; `None` if the client has hung up before any arrived.

    If the front stops while the receive waits, there are no messages.
    """
    if exchange.has_hung_up:
        return None
    reply: SqsReply | None = None
    with trio.CancelScope() as exchange.waiting:
        reply = await function(caller, call)
    exchange.waiting = None
    if reply is None and not exchange.has_hung_up:
        return _NO_MESSAGES
    return reply
