"""One client's connection.

Shell: owns one stream. Requests are parsed, carried out and answered in this task as far as
they need not wait; nothing is copied between the socket and the log.
"""

from typing import final

import trio

from broker.config import BrokerConfig
from broker.dispatch import Dispatcher
from broker.memory import MemoryBudget
from wire.connection import RefusedRequest, Request, ServerConnection
from wire.env import Env, Stream
from wire.errors import ConnectionLostError, WireFormatError
from wire.outbox import Outbox

_READ_AHEAD_BYTES = 256 << 10


@final
class Connection:
    """A client's stream, what was received of it, and what is to be sent.

    Invariant: `_open_count` requests were handed out and not yet answered.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        stream: Stream,
        dispatcher: Dispatcher,
        memory: MemoryBudget,
    ) -> None:
        """Serve `stream`; `run` does it."""
        self._env = env
        self._config = config
        self._stream = stream
        self._dispatcher = dispatcher
        self._memory = memory
        self._core = ServerConnection(dispatcher.apis, frame_bytes_max=config.frame_bytes_max)
        self.outbox = Outbox(stream)
        self._borrowed_bytes = 0
        self._open_count = 0
        self._is_handling = False
        self._answered = trio.Event()
        self._received_count = 0
        self._seen_count = 0
        self._seen_at_ms = 0

    @property
    def local(self) -> tuple[str, int]:
        """Where the client reached this broker."""
        return self._stream.local

    async def run(self) -> None:
        """Serve until the client goes, breaks the protocol, or this is cancelled."""
        reason = "the client closed the connection"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.outbox.run)
            try:
                await self._receive()
            except ConnectionLostError as error:
                reason = str(error)
            except WireFormatError as error:
                reason = str(error)
                self._env.probe(
                    "connection_refused",
                    severity="warning",
                    peer=self._stream.peer,
                    reason=reason,
                )
            finally:
                self._stream.close()
                self._memory.release(self._borrowed_bytes)
                self._borrowed_bytes = 0
                nursery.cancel_scope.cancel()
        self._env.probe(
            "connection_closed", severity="debug", peer=self._stream.peer, reason=reason
        )

    async def finish(self) -> None:
        """Wait until every request has its answer, and every answer is sent."""
        while self._open_count:
            await self._answered.wait()
        await self.outbox.wait_below(0)

    def tidy(self, *, now_ms: int) -> None:
        """Give back memory that an idle connection holds; end one that stalls in a frame."""
        decoder = self._core.decoder
        if self._received_count != self._seen_count:
            self._seen_count = self._received_count
            self._seen_at_ms = now_ms
        elif decoder.buffered_bytes == 0:
            self._shrink()
        elif now_ms - self._seen_at_ms >= self._config.stalled_frame_ms:
            self._env.probe(
                "connection_refused",
                severity="warning",
                peer=self._stream.peer,
                reason="half a frame came, and then nothing",
            )
            self._stream.close()

    async def _receive(self) -> None:
        decoder = self._core.decoder
        stream = self._stream
        while True:
            if decoder.capacity_wanted > decoder.capacity:
                await self._borrow(decoder.capacity_wanted)
            received = stream.receive_nowait(decoder.get_buffer())
            if received is None:
                await stream.wait_readable()
                continue
            if received == 0:
                return
            self._received_count += 1
            decoder.bytes_received(received)
            self._handle_received()
            if self._memory.is_short and decoder.buffered_bytes == 0:
                self._shrink()
            await self._wait_for_room()

    def _handle_received(self) -> None:
        self._is_handling = True
        try:
            while (request := self._core.next_request()) is not None:
                self._open_count += 1
                if isinstance(request, Request):
                    self._dispatcher.handle(request, self)
                else:
                    self._refuse(request)
        finally:
            self._is_handling = False
            self.outbox.flush()

    def _refuse(self, refused: RefusedRequest) -> None:
        self._env.probe(
            "request_refused",
            severity="warning",
            peer=self._stream.peer,
            reason=str(refused.error),
        )
        self.outbox.put(refused.reply)
        self.answered()

    def answered(self) -> None:
        """Take note that one request has its answer in the outbox."""
        self._open_count -= 1
        if not self._is_handling:
            self.outbox.flush()
        if self._answered.statistics().tasks_waiting:
            self._answered.set()
            self._answered = trio.Event()

    async def _wait_for_room(self) -> None:
        """Read no further while this client has too much unanswered or unread; else yield."""
        await trio.lowlevel.checkpoint()
        while self._open_count >= self._config.in_flight_requests_max:
            await self._answered.wait()
        if self.outbox.pending_bytes > self._config.reply_bytes_max:
            await self.outbox.wait_below(self._config.reply_bytes_max)

    async def _borrow(self, capacity: int) -> None:
        wanted = capacity + _READ_AHEAD_BYTES
        if wanted > self._borrowed_bytes:
            # Whoever waits holds nothing: two that both hold and want more would wait for ever.
            self._memory.release(self._borrowed_bytes)
            self._borrowed_bytes = 0
            await self._memory.acquire(wanted)
            self._borrowed_bytes = wanted

    def _shrink(self) -> None:
        self._core.decoder.shrink()
        self._memory.release(self._borrowed_bytes)
        self._borrowed_bytes = 0
