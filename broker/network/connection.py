"""Connection of one client.

Shell: owns one stream. This task parses, handles and answers requests as far as they need not wait;
the bytes of records are not copied between the socket and the log.
"""

from typing import final

import trio

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.requests.memory_budget import MemoryBudget
from tidelog.broker.requests.response import DelayedRequest
from tidelog.wire.env.env import Env, Stream
from tidelog.wire.errors import ConnectionLostError, WireFormatError
from tidelog.wire.protocol.connection import RefusedRequest, Request, ServerConnection
from tidelog.wire.transport.write_buffer import WriteBuffer

_READ_AHEAD_BYTES = 128 << 10
"""Bytes read beyond the frame under way, so that many small frames arrive at once. It is also the
most that a connection holds beyond the memory that the budget counts."""

_FREE_AFTER_S = 5.0
"""Time in seconds after which an unused buffer is returned to the operating system."""

_FEW_BYTES = 7
"""Fewer bytes than any part of a frame has."""


@final
class Connection:
    """A client's stream, its received bytes, and its unsent replies.

    Invariant: `_open_count` requests were handed out and not yet answered, never more than
    `max_in_flight_requests_per_connection`.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        stream: Stream,
        *,
        dispatcher: Dispatcher,
        memory: MemoryBudget,
        is_reserve: bool = False,
    ) -> None:
        """Create a connection on `stream`; `run` serves it."""
        self._env = env
        self._config = config
        self._stream = stream
        self._dispatcher = dispatcher
        self._memory = memory
        self._core = ServerConnection(
            dispatcher.apis, max_frame_bytes=config.socket_request_max_bytes
        )
        self.write_buffer = WriteBuffer(stream)
        self.delayed: dict[DelayedRequest, None] = {}
        """See `broker.requests.response.RequestContext`."""
        self.is_reserve = is_reserve
        """See `broker.requests.response.RequestContext`."""
        self.is_of_node = False
        """See `broker.requests.response.RequestContext`."""
        self._borrowed_bytes = 0
        self._open_count = 0
        self._is_handling = False
        self._has_ended = False
        self._changed: trio.Event | None = None
        """Created by a task that waits for a change."""
        self._is_reading = False
        self._is_new_frame = False
        self._quiet_since = trio.current_time()
        """Time at which the receive buffer was last empty, in seconds of trio's clock."""
        self._frame_since = trio.current_time()
        """Time at which the frame under way began to hold memory, or soon after."""

    @property
    def local(self) -> tuple[str, int]:
        """Address at which the client reached this broker."""
        return self._stream.local

    async def run(self) -> None:
        """Serve until the client disconnects or breaks the protocol, or until cancelled."""
        reason = "the client closed the connection"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.write_buffer.run)
            try:
                await self._receive()
            except ConnectionLostError as error:
                reason = str(error)
            except WireFormatError as error:
                reason = str(error)
                self._report_refused(reason)
            finally:
                self._end()
                nursery.cancel_scope.cancel()
        self._env.probe(
            "connection_closed", severity="debug", peer=self._stream.peer, reason=reason
        )

    async def finish(self) -> None:
        """Wait until every request is answered and every reply is sent, or the connection ends."""
        while self._open_count and not self._has_ended:
            await self._wait_changed()
        await self.write_buffer.wait_below(0)

    def tidy(self, *, now: float) -> None:
        """Return memory that is not needed; end a connection that keeps it too long.

        `now` is in seconds of trio's clock.
        """
        limit_s = self._config.stalled_request_timeout_ms / 1000
        if self._core.decoder.buffered_bytes == 0:
            is_quiet = now - self._quiet_since >= _FREE_AFTER_S
            if is_quiet or self._env.buggify("buffer given back early"):
                self._memory.note_busy(self)
                self._memory.release(self.give_back())
        elif self._is_reading and now - self._quiet_since >= limit_s:
            self.give_up("received half a frame, and then nothing")
        elif self._borrowed_bytes and self._memory.is_short and now - self._frame_since >= limit_s:
            # The client may send too slowly, or not read its replies.
            self.give_up("a frame took too long while others waited for memory")

    def give_back(self) -> int:
        """See `broker.requests.memory_budget.Holder`."""
        self._core.decoder.shrink()
        count, self._borrowed_bytes = self._borrowed_bytes, 0
        return count

    def answered(self) -> None:
        """See `broker.requests.response.RequestContext`."""
        self._open_count -= 1
        if not self._is_handling:
            self.write_buffer.flush()
        self._tell_changed()

    async def _receive(self) -> None:
        decoder = self._core.decoder
        while True:
            wanted = decoder.capacity_wanted
            if wanted > decoder.capacity:
                await self._borrow(wanted + _READ_AHEAD_BYTES)
            missing = wanted - decoder.buffered_bytes
            buffer = decoder.get_buffer()[: missing + _READ_AHEAD_BYTES]
            if self._env.buggify("few bytes received"):
                buffer = buffer[:_FEW_BYTES]
            received = self._stream.receive_nowait(buffer)
            if received is None:
                await self._wait_for_bytes()
                continue
            if received == 0:
                return
            decoder.bytes_received(received)
            while self._handle_received():
                await self._wait_for_room()
            if self._is_new_frame:
                self._begin_frame()
            if received < len(buffer) and decoder.buffered_bytes == 0:
                # No more bytes are available; a further call to learn that would cost a turn of the
                # loop.
                await self._wait_for_bytes()
            else:
                await trio.lowlevel.checkpoint()

    def _begin_frame(self) -> None:
        self._is_new_frame = False
        self._frame_since = trio.current_time()
        if self._borrowed_bytes and self._memory.is_short:
            # Queue behind the waiting connections: a client that never pauses must not starve them.
            self._memory.release(self.give_back())

    def _handle_received(self) -> bool:
        """Handle complete requests; return whether more may follow once there is room."""
        self._is_handling = True
        try:
            while self._has_room():
                request = self._core.next_request()
                if request is None:
                    return False
                self._is_new_frame = True
                self._open_count += 1
                if isinstance(request, Request):
                    self._dispatcher.handle(request, self)
                else:
                    self._refuse(request)
            return True
        finally:
            self._is_handling = False
            self.write_buffer.flush()

    def _refuse(self, refused: RefusedRequest) -> None:
        self._env.probe(
            "request_refused",
            severity="warning",
            peer=self._stream.peer,
            reason=str(refused.error),
        )
        self.write_buffer.put(refused.reply)
        self.answered()

    def _has_room(self) -> bool:
        """Return whether the unanswered requests and unread replies of this client allow more."""
        return (
            self._open_count < self._config.max_in_flight_requests_per_connection
            and self.write_buffer.pending_bytes <= self._config.max_queued_response_bytes
        )

    async def _wait_for_room(self) -> None:
        while (
            self._open_count >= self._config.max_in_flight_requests_per_connection
            and not self._has_ended
        ):
            await self._wait_changed()
        await self.write_buffer.wait_below(self._config.max_queued_response_bytes)
        if self._has_ended:
            raise ConnectionLostError("the broker closed the connection")

    async def _wait_for_bytes(self) -> None:
        is_idle = self._core.decoder.buffered_bytes == 0
        if is_idle and self._borrowed_bytes:
            self._memory.note_idle(self)
        self._is_reading = True
        self._quiet_since = trio.current_time()
        try:
            await self._stream.wait_readable()
        finally:
            self._is_reading = False
            self._memory.note_busy(self)
        if is_idle:
            self._frame_since = trio.current_time()

    async def _borrow(self, count: int) -> None:
        # A waiting connection holds nothing: two that hold memory and want more would deadlock.
        self._memory.release(self.give_back())
        await self._memory.acquire(count)
        self._borrowed_bytes = count
        self._frame_since = trio.current_time()

    def give_up(self, reason: str) -> None:
        """End the connection, and log the reason for the operator."""
        self._report_refused(reason)
        self._end()

    def _end(self) -> None:
        """Close the stream and release all resources; later replies are dropped."""
        self._has_ended = True
        self.write_buffer.close()
        for request in list(self.delayed):
            request.drop()
        self._memory.note_busy(self)
        self._memory.release(self.give_back())
        self._tell_changed()

    def _report_refused(self, reason: str) -> None:
        self._env.probe(
            "connection_refused", severity="warning", peer=self._stream.peer, reason=reason
        )

    async def _wait_changed(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _tell_changed(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None
