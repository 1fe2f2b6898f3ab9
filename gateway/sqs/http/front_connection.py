"""Connection of one client of the SQS front.

Shell: owns one stream. Its task receives, answers and sends; no other task serves a request.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Final, Protocol, final

import trio

from tidelog.gateway.sqs.http.hang_ups import HangUps
from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.http.rendering import CONTINUE, render, text_response
from tidelog.gateway.sqs.http.request_parser import RequestParser
from tidelog.wire.env.env import Stream
from tidelog.wire.errors import ConnectionLostError

_log = logging.getLogger("tidelog.gateway")

IDLE_S: Final = 120.0
"""Time in seconds after which a connection without a request ends: longer than SDKs keep one."""
REQUEST_S: Final = 30.0
"""Maximum time to receive a request in seconds, and a second more for each `_SLOW_BYTES_PER_S`."""
SEND_S: Final = 30.0
"""Time in seconds without progress after which a client counts as one that reads no replies."""
_SLOW_BYTES_PER_S: Final = 16 << 10
_LINGER_S: Final = 2.0
_LINGER_MAX_BYTES: Final = 16 << 20


class Phase(Enum):
    """What a connection does."""

    IDLE = 0
    """It waits for the first byte of a request."""
    RECEIVING = 1
    ANSWERING = 2
    SENDING = 3
    CLOSING = 4
    """It drops input, so that the client can read the last reply."""


class HttpExchange(Protocol):
    """What the answer to a request may know of its connection."""

    waiting: trio.CancelScope | None
    """Scope of an answer that ends if the client hangs up, or the front stops."""

    @property
    def has_hung_up(self) -> bool:
        """Whether the client has closed its side of the connection."""
        ...


class FrontServices(Protocol):
    """What connections need of their server."""

    hang_ups: HangUps
    buffer: memoryview
    """Space for received bytes: its content is parsed before another task runs."""
    date: str
    """Value of the header `Date`."""
    clock: Callable[[], float]
    """Monotonic time in seconds."""
    is_draining: bool

    def answer(
        self, request: HttpRequest, exchange: HttpExchange
    ) -> Awaitable[HttpResponse | None]:
        """Return the response to a request; `None` if the client has hung up and needs none."""
        ...


@final
class FrontConnection:
    """Requests of one client, answered one after the other."""

    __slots__ = (
        "_is_closed",
        "_parser",
        "_services",
        "_stream",
        "has_hung_up",
        "phase",
        "received_bytes",
        "since",
        "waiting",
    )

    def __init__(self, stream: Stream, services: FrontServices) -> None:
        """Serve `stream` with `run`."""
        self._stream = stream
        self._services = services
        self._parser = RequestParser()
        self._is_closed = False
        self.waiting: trio.CancelScope | None = None
        """See `HttpExchange`."""
        self.has_hung_up = False
        """See `HttpExchange`."""
        self.phase = Phase.IDLE
        self.since = services.clock()
        """Time at which the phase began, in seconds; of `SENDING`, that of the last progress."""
        self.received_bytes = 0
        """Bytes of the request under way."""
        services.hang_ups.watch(stream, self._hang_up)

    @property
    def peer(self) -> str:
        """Address of the client."""
        return self._stream.peer

    async def run(self) -> None:
        """Answer requests until either side closes the connection."""
        try:
            while await self._serve_next():
                pass
        except ConnectionLostError:
            pass
        finally:
            self.close()

    async def refuse(self, reason: str) -> None:
        """Answer 503 without reading a request, and close the connection."""
        try:
            await self._end_with(text_response(503, reason))
        except ConnectionLostError:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Close the stream at once; `run` ends. Closing twice is allowed."""
        if not self._is_closed:
            self._is_closed = True
            self._services.hang_ups.forget(self._stream)
            self._stream.close()
            if self.waiting is not None:
                self.has_hung_up = True
                self.waiting.cancel()

    def drain(self) -> None:
        """Take no further request: end an idle connection, and an answer that waits."""
        if self.phase is Phase.IDLE:
            self.close()
        elif self.waiting is not None:
            self.waiting.cancel()

    def tidy(self, now: float) -> None:
        """Close a connection whose client is too slow; `now` is in seconds of the clock."""
        elapsed = now - self.since
        match self.phase:
            case Phase.IDLE:
                is_late = elapsed > IDLE_S
            case Phase.RECEIVING:
                is_late = elapsed > REQUEST_S + self.received_bytes / _SLOW_BYTES_PER_S
            case Phase.SENDING:
                is_late = elapsed > SEND_S
            case _:
                is_late = False
        if not is_late:
            return
        if self.phase is Phase.RECEIVING:
            self._send_now(text_response(408, "the request did not arrive in time"))
        self.close()

    def _hang_up(self) -> None:
        self.has_hung_up = True
        if self.waiting is not None:
            self.waiting.cancel()

    async def _serve_next(self) -> bool:
        """Answer requests that have arrived, or receive more; return whether the client may go on.

        Raises:
            ConnectionLostError: The connection is broken, or the client has hung up.
        """
        parser = self._parser
        while parser.requests:
            request, keeps_alive = parser.requests.popleft()
            self.phase = Phase.ANSWERING
            response = await self._services.answer(request, self)
            if response is None:
                return False
            keeps_alive = keeps_alive and not self._services.is_draining
            data = render(
                response,
                date=self._services.date,
                keeps_alive=keeps_alive,
                has_body=request.method != b"HEAD",
            )
            await self._send(data)
            if not keeps_alive:
                return False
            if parser.requests:  # pipelined: other connections take their turn
                await trio.lowlevel.checkpoint()
        if parser.refusal is not None:
            await self._end_with(text_response(parser.refusal.status, parser.refusal.reason))
            return False
        if parser.wants_continue:
            parser.wants_continue = False
            await self._send(CONTINUE)
        return await self._receive()

    async def _receive(self) -> bool:
        """Receive and parse bytes; return `False` at the end of the stream.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        services, parser = self._services, self._parser
        if parser.is_between:
            if services.is_draining:
                return False
            self.phase, self.since, self.received_bytes = Phase.IDLE, services.clock(), 0
        else:
            self.phase = Phase.RECEIVING
        await self._stream.wait_readable()
        count = self._stream.receive_nowait(services.buffer)
        if count is None:
            return True
        if self.phase is Phase.IDLE:
            self.since = services.clock()
        self.received_bytes += count
        parser.feed(services.buffer[:count])
        return count > 0

    async def _send(self, data: bytes) -> None:
        """Send bytes as fast as the client takes them.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        sent = self._stream.send_nowait((data,))
        if sent == len(data):
            return
        rest = memoryview(data)[sent:]
        before = self.phase
        self.phase, self.since = Phase.SENDING, self._services.clock()
        while rest:
            await self._stream.wait_writable()
            sent = self._stream.send_nowait((rest,))
            rest = rest[sent:]
            self.since = self._services.clock()
        self.phase = before

    def _send_now(self, response: HttpResponse) -> None:
        """Send a reply as far as the stream takes it at once."""
        with suppress(ConnectionLostError):
            self._stream.send_nowait(
                (render(response, date=self._services.date, keeps_alive=False),)
            )

    async def _end_with(self, response: HttpResponse) -> None:
        """Send the last reply of the connection.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        await self._send(render(response, date=self._services.date, keeps_alive=False))
        await self._linger()

    async def _linger(self) -> None:
        """Drop input for a short time, unless the client has hung up.

        Closing a connection with unread input resets it, and the client would lose the reply.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        self.phase = Phase.CLOSING
        left = _LINGER_MAX_BYTES
        with trio.move_on_after(_LINGER_S):
            while left > 0:
                await self._stream.wait_readable()
                count = self._stream.receive_nowait(self._services.buffer)
                if count == 0:
                    return
                left -= count or 0
