"""Connection of one client of the SQS front.

Shell: owns one stream. Its task receives, answers and sends; no other task serves a request.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Final, Protocol, final

import trio

from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.http.rendering import CONTINUE, render, text_response
from tidelog.gateway.sqs.http.request_parser import RequestParser, RequestRefusal
from tidelog.gateway.sqs.http.socket_events import HANG_UP, SocketEvents
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
_UNCOUNTED_BYTES: Final = 64 << 10
"""Part of a body that no limit counts: usual requests are smaller."""
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

    on_stop: Callable[[], HttpResponse] | None
    """Set while the answer waits: returns the response if the front stops. If the client hangs up,
    or the front stops, the wait is cancelled."""

    @property
    def has_hung_up(self) -> bool:
        """Whether the client has closed its side of the connection."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the front stops, and the client has the response of `on_stop`."""
        ...


class FrontServices(Protocol):
    """What connections need of their server."""

    events: SocketEvents
    buffer: memoryview
    """Space for received bytes: its content is parsed before another task runs."""
    date: str
    """Value of the header `Date`."""
    clock: Callable[[], float]
    """Monotonic time in seconds."""
    is_draining: bool

    @property
    def answer(self) -> Callable[[HttpRequest, HttpExchange], Awaitable[HttpResponse | None]]:
        """Returns the response to a request; `None` if the client has hung up and needs none."""
        ...

    def lend(self, count: int) -> bool:
        """Lend so many bytes for a body; return whether they are free. Negative: take back."""
        ...


@final
class FrontConnection:
    """Requests of one client, answered one after the other."""

    __slots__ = (
        "_descriptor",
        "_has_input",
        "_is_closed",
        "_lent_bytes",
        "_parser",
        "_reader",
        "_scope",
        "_services",
        "_stream",
        "has_hung_up",
        "is_stopped",
        "on_stop",
        "phase",
        "received_bytes",
        "since",
    )

    def __init__(self, stream: Stream, services: FrontServices) -> None:
        """Serve `stream` with `run`."""
        self._stream = stream
        self._services = services
        self._parser = RequestParser()
        self._descriptor = stream.fileno()
        self._is_closed = False
        self._lent_bytes = 0
        self._has_input = False
        """Whether bytes may have arrived since the last call that found none."""
        self._reader: trio.lowlevel.Task | None = None
        """The task of this connection, while it waits for input."""
        self._scope = trio.CancelScope()
        self.on_stop: Callable[[], HttpResponse] | None = None
        """See `HttpExchange`."""
        self.has_hung_up = False
        """See `HttpExchange`."""
        self.is_stopped = False
        """See `HttpExchange`."""
        self.phase = Phase.IDLE
        self.since = services.clock()
        """Time at which the phase began, in seconds; of `SENDING`, that of the last progress."""
        self.received_bytes = 0
        """Bytes of the request under way."""
        if self._descriptor is not None:
            services.events.watch(self._descriptor, self._note)

    @property
    def peer(self) -> str:
        """Address of the client."""
        return self._stream.peer

    async def run(self) -> None:
        """Answer requests until either side closes the connection."""
        try:
            # One scope for all requests: its cancellation ends the connection anyway.
            with self._scope:
                while await self._receive() and await self._reply_to_all():
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
            if self._descriptor is not None:
                self._services.events.forget(self._descriptor)
            self._stream.close()
            self._services.lend(-self._lent_bytes)
            self._lent_bytes = 0
            self._wake()
            if self.on_stop is not None:
                self.has_hung_up = True
                self._scope.cancel()

    def drain(self) -> None:
        """Take no further request: end an idle connection, and answer a request that waits."""
        if self.phase is Phase.IDLE:
            if not self._has_input:
                self.close()
        elif self.on_stop is not None:
            self._send_now(self.on_stop())
            self.is_stopped = True
            self._scope.cancel()

    @property
    def may_be_late(self) -> bool:
        """Whether this connection waits for its client."""
        return self.phase is not Phase.ANSWERING

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

    def _note(self, flags: int) -> None:
        """Take an event of the socket (`SocketEvents`)."""
        self._has_input = True
        if flags & HANG_UP:
            self.has_hung_up = True
            if self.on_stop is not None:
                self._scope.cancel()
        self._wake()

    def _wake(self) -> None:
        reader = self._reader
        if reader is not None:
            self._reader = None
            trio.lowlevel.reschedule(reader)

    async def _wait_for_input(self) -> None:
        """Wait until bytes may have arrived, or the stream has ended.

        Raises:
            ConnectionLostError: The connection was closed here.
        """
        if self._has_input:
            await trio.lowlevel.checkpoint()
        else:
            self._reader = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
        if self._is_closed:
            raise ConnectionLostError(f"connection to {self._stream.peer} was closed here")

    def _stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _receive_some(self) -> memoryview:
        """Wait for bytes; return them in the shared buffer, none at the end of the stream.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        buffer = self._services.buffer
        while True:
            await self._wait_for_input()
            count = self._stream.receive_nowait(buffer)
            # A part of the buffer is all that there is: the next byte makes an event.
            self._has_input = count is not None and (count == len(buffer) or self.has_hung_up)
            if count is not None:
                return buffer[:count]

    async def _reply_to_all(self) -> bool:
        """Answer the requests that have arrived; return whether further ones may follow.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        services, parser = self._services, self._parser
        while parser.requests:
            parsed = parser.requests.popleft()
            request, keeps_alive = parsed.request, parsed.keeps_alive
            has_body = request.method != b"HEAD"
            self.phase = Phase.ANSWERING
            answering = services.answer(request, self)
            del parsed, request  # A receive that waits needs its request no more.
            response = await answering
            if response is None or self.is_stopped:
                return False
            keeps_alive = keeps_alive and not services.is_draining
            await self._send(
                render(response, date=services.date, keeps_alive=keeps_alive, has_body=has_body)
            )
            if not keeps_alive:
                return False
            if self._lent_bytes:
                services.lend(-self._lent_bytes)
                self._lent_bytes = 0
            if parser.requests:  # pipelined: other connections take their turn
                await trio.lowlevel.checkpoint()
        if parser.refusal is not None:
            await self._end_with(text_response(parser.refusal.status, parser.refusal.reason))
            return False
        if parser.wants_continue:
            parser.wants_continue = False
            await self._send(CONTINUE)
        return True

    async def _receive(self) -> bool:
        """Receive and parse bytes; return `False` at the end of the stream.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        services, parser = self._services, self._parser
        if parser.is_between:
            if services.is_draining and not self._has_input:
                return False
            self.phase, self.since, self.received_bytes = Phase.IDLE, services.clock(), 0
        else:
            self.phase = Phase.RECEIVING
        data = await self._receive_some()
        if self.phase is Phase.IDLE:
            self.since = services.clock()
        self.received_bytes += len(data)
        parser.feed(data)
        if parser.held_bytes - self._lent_bytes > _UNCOUNTED_BYTES:
            self._borrow(parser.held_bytes - self._lent_bytes)
        return len(data) > 0

    def _borrow(self, count: int) -> None:
        """Count a large body; refuse the request if bodies take too much memory already."""
        if self._services.lend(count):
            self._lent_bytes += count
        else:
            self._parser.refusal = RequestRefusal(503, "too many large requests: send it again")

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
                count = len(await self._receive_some())
                if not count:
                    return
                left -= count
