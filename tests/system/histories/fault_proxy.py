"""TCP proxy between clients and a broker, with network faults.

Each direction can be delayed, or stalled while its connections stay open: then bytes are held
back, as if every packet and its retransmissions were lost. Connections can be closed or reset.
An end or a reset of one side is passed on to the other.
"""

import socket
import struct
from dataclasses import dataclass, field
from typing import final

import trio

_CHUNK_BYTES = 65536
_CHUNKS_MAX = 64
_RESET = struct.pack("ii", 1, 0)
"""Linger time of zero, with which a close sends RST."""


@dataclass(slots=True)
class Direction:
    """State of one direction."""

    delay_s: float = 0.0
    is_stalled: bool = False
    went_on: trio.Event = field(default_factory=trio.Event)

    def stall(self) -> None:
        """Hold all bytes back."""
        self.is_stalled, self.went_on = True, trio.Event()

    def go_on(self) -> None:
        """Pass bytes at once, including those that were held back."""
        self.delay_s, self.is_stalled = 0.0, False
        self.went_on.set()


@final
class FaultProxy:
    """Listens on a port of its own, and forwards to a target that may change."""

    def __init__(self) -> None:
        """Start without a target; connections are refused until there is one."""
        self.port = 0
        self.target_port: int | None = None
        self.to_broker = Direction()
        self.to_client = Direction()
        self._pairs: dict[tuple[trio.SocketStream, trio.SocketStream], None] = {}

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"127.0.0.1:{self.port}"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Forward bytes until cancelled."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._handle, [listener])

    def heal(self) -> None:
        """Remove all faults; connections resume."""
        self.to_broker.go_on()
        self.to_client.go_on()

    def end_connections(self, *, with_reset: bool) -> int:
        """End all connections in both directions; return their number."""
        pairs = list(self._pairs)
        for pair in pairs:
            for stream in pair:
                _close(stream, with_reset=with_reset)
        return len(pairs)

    async def _handle(self, client: trio.SocketStream) -> None:
        try:
            assert self.target_port is not None
            broker = await trio.open_tcp_stream("127.0.0.1", self.target_port)
        except OSError:
            _close(client, with_reset=True)
            return
        pair = (client, broker)
        self._pairs[pair] = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, client, broker, self.to_broker)
                nursery.start_soon(self._pass_on, broker, client, self.to_client)
        finally:
            del self._pairs[pair]
            for stream in pair:
                _close(stream, with_reset=True)

    async def _pass_on(
        self, source: trio.SocketStream, target: trio.SocketStream, direction: Direction
    ) -> None:
        put, take = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS_MAX)
        async with trio.open_nursery() as nursery, put:
            nursery.start_soon(self._deliver, take, (source, target), direction)
            try:
                while data := await source.receive_some(_CHUNK_BYTES):
                    await put.send((trio.current_time() + direction.delay_s, bytes(data)))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                _close(target, with_reset=True)

    async def _deliver(
        self,
        chunks: trio.MemoryReceiveChannel[tuple[float, bytes]],
        ends: tuple[trio.SocketStream, trio.SocketStream],
        direction: Direction,
    ) -> None:
        source, target = ends
        async with chunks:
            try:
                async for due_at, data in chunks:
                    await trio.sleep_until(due_at)
                    while direction.is_stalled:
                        await direction.went_on.wait()
                    await target.send_all(data)
                await target.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                _close(source, with_reset=True)


def _close(stream: trio.SocketStream, *, with_reset: bool) -> None:
    if stream.socket.fileno() == -1:
        return
    if with_reset:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.socket.close()
