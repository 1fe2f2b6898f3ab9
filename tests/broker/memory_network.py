"""TCP in memory: listeners, connections, full buffers, resets.

An implementation of `wire.env.env.Network`. Deterministic: bytes arrive at once and in order,
nothing is random and nothing takes time. A test sets the faults: a small buffer for a slow reader,
a limit for one call, a reset, a failing accept.
"""

import errno
import os
from collections import deque
from collections.abc import Sequence
from typing import final

import trio

from tidelog.wire.env.env import BytesLike, Certificate, FileRegionSource
from tidelog.wire.errors import ConnectionLostError

_UNLIMITED_BYTES = 1 << 50
_FIRST_FREE_PORT = 40_000

_Address = tuple[str, int]


@final
class _Pipe:
    """One direction of a connection."""

    def __init__(self, capacity_bytes: int) -> None:
        self.data = bytearray()
        self.capacity_bytes = capacity_bytes
        self.defect: Exception | None = None
        self.has_ended = False
        """Whether the sender has closed its end."""
        self.is_unread = False
        """Whether the receiver has closed its end."""
        self.is_reset = False
        self.receive_count = 0
        self._changed = trio.Event()

    @property
    def room_bytes(self) -> int:
        return max(self.capacity_bytes - len(self.data), 0)

    def wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self) -> None:
        await self._changed.wait()


@final
class MemoryStream:
    """One end of a connection; see `wire.env.env.Stream`."""

    def __init__(
        self, local: _Address, remote: _Address, incoming: _Pipe, *, outgoing: _Pipe
    ) -> None:
        """Only `MemoryNetwork.connect` creates streams."""
        self.local = local
        self.peer = f"{remote[0]}:{remote[1]}"
        self.is_encrypted = False
        self.peer_certificate: Certificate | None = None
        self.bytes_at_once = _UNLIMITED_BYTES
        """Maximum bytes that one call sends or receives; may be changed at any time."""
        self.is_closed = False
        self._incoming = incoming
        self._outgoing = outgoing

    @property
    def peer_receive_count(self) -> int:
        """Number of receive calls of the other end."""
        return self._outgoing.receive_count

    async def handshake(self) -> None:
        """See `wire.env.env.Stream`."""

    def fileno(self) -> int | None:
        """See `wire.env.env.Stream`."""
        return None

    def receive_nowait(self, buffer: memoryview) -> int | None:
        """See `wire.env.env.Stream`."""
        pipe = self._incoming
        pipe.receive_count += 1
        self._check(pipe)
        if pipe.defect is not None:
            raise pipe.defect
        count = min(len(buffer), len(pipe.data), self.bytes_at_once)
        if count == 0:
            return 0 if pipe.has_ended else None
        buffer[:count] = pipe.data[:count]
        del pipe.data[:count]
        pipe.wake()
        return count

    def send_nowait(self, pieces: Sequence[BytesLike]) -> int:
        """See `wire.env.env.Stream`."""
        self._check(self._outgoing)
        data = b"".join(pieces)
        assert data, "a stream is asked to send nothing"
        pipe = self._outgoing
        if pipe.is_unread:
            raise self._lost("Broken pipe")
        count = min(len(data), pipe.room_bytes, self.bytes_at_once)
        if count:
            pipe.data += data[:count]
            pipe.wake()
        return count

    def send_file_nowait(self, source: FileRegionSource, position: int, length: int) -> int:
        """See `wire.env.env.Stream`."""
        self._check(self._outgoing)
        wanted = min(length, max(self._outgoing.room_bytes, 1))
        try:
            data = source.read_at(position, wanted)
        except OSError as error:
            raise self._lost(str(error.strerror)) from error
        if not data:
            raise ConnectionLostError("a file ends before the region that was to be sent")
        return self.send_nowait([data])

    async def wait_readable(self) -> None:
        """See `wire.env.env.Stream`."""
        await trio.lowlevel.checkpoint()
        pipe = self._incoming
        self._check(pipe)
        while not pipe.data and not pipe.has_ended and pipe.defect is None:
            await pipe.wait()
            self._check(pipe)

    async def wait_writable(self) -> None:
        """See `wire.env.env.Stream`."""
        await trio.lowlevel.checkpoint()
        pipe = self._outgoing
        self._check(pipe)
        while not pipe.room_bytes and not pipe.is_unread:
            await pipe.wait()
            self._check(pipe)

    def close(self) -> None:
        """See `wire.env.env.Stream`. Bytes sent before still arrive."""
        if not self.is_closed:
            self.is_closed = True
            self._outgoing.has_ended = True
            self._incoming.is_unread = True
            self._wake()

    def reset(self) -> None:
        """Break the connection at both ends: bytes under way are lost."""
        for pipe in (self._incoming, self._outgoing):
            pipe.is_reset = True
            pipe.data.clear()
        self._wake()

    def set_receive_buffer(self, capacity_bytes: int) -> None:
        """Set the size of the receive buffer; 0 is a reader that has stopped for good."""
        self._incoming.capacity_bytes = capacity_bytes
        self._incoming.wake()

    def break_peer(self, defect: Exception) -> None:
        """Make the other end fail to receive with a defect."""
        self._outgoing.defect = defect
        self._outgoing.wake()

    def _wake(self) -> None:
        self._incoming.wake()
        self._outgoing.wake()

    def _check(self, pipe: _Pipe) -> None:
        if self.is_closed:
            raise ConnectionLostError(f"connection to {self.peer} was closed here")
        if pipe.is_reset:
            raise self._lost("Connection reset by peer")

    def _lost(self, reason: str) -> ConnectionLostError:
        return ConnectionLostError(f"connection to {self.peer}: {reason}")


@final
class MemoryListener:
    """A listening address; see `wire.env.env.Listener`."""

    def __init__(self, network: "MemoryNetwork", address: _Address) -> None:
        """Only `MemoryNetwork.listen` creates listeners."""
        self.address = address
        self.backlog: deque[MemoryStream] = deque()
        self._network = network
        self._failures: deque[int] = deque()
        self._changed = trio.Event()

    def fail_accept(self, error_number: int) -> None:
        """Make one call of `accept` fail."""
        self._failures.append(error_number)
        self.wake()

    def wake(self) -> None:
        """Make `accept` check again."""
        self._changed.set()
        self._changed = trio.Event()

    async def accept(self) -> MemoryStream:
        """See `wire.env.env.Listener`."""
        await trio.lowlevel.checkpoint()
        while not self.backlog and not self._failures:
            await self._changed.wait()
        if self._failures:
            number = self._failures.popleft()
            raise OSError(number, os.strerror(number))
        return self.backlog.popleft()

    def close(self) -> None:
        """See `wire.env.env.Listener`. Waiting connections are refused."""
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]
        for stream in self.backlog:
            stream.reset()
        self.backlog.clear()


@final
class MemoryNetwork:
    """All listeners and connections of a test."""

    def __init__(self, *, buffer_bytes: int = 256 << 10) -> None:
        """Limit each direction of a connection to `buffer_bytes` under way."""
        self.listeners: dict[_Address, MemoryListener] = {}
        self.buffer_bytes = buffer_bytes
        """Limit for future connections."""
        self.is_encrypted = False
        """Whether future connections count as unreadable for others."""
        self._next_port = _FIRST_FREE_PORT

    async def listen(self, host: str, port: int) -> MemoryListener:
        """See `wire.env.env.Network`."""
        await trio.lowlevel.checkpoint()
        address = (host, port or self._free_port())
        if address in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self.listeners[address] = MemoryListener(self, address)
        return listener

    async def connect(self, host: str, port: int) -> MemoryStream:
        """See `wire.env.env.Network`."""
        await trio.lowlevel.checkpoint()
        remote = (host, port)
        listener = self.listeners.get(remote)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        local = ("client", self._free_port())
        to_server, to_client = _Pipe(self.buffer_bytes), _Pipe(self.buffer_bytes)
        accepted = MemoryStream(remote, local, to_server, outgoing=to_client)
        connected = MemoryStream(local, remote, to_client, outgoing=to_server)
        accepted.is_encrypted = connected.is_encrypted = self.is_encrypted
        listener.backlog.append(accepted)
        listener.wake()
        return connected

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port - 1
