"""A stream in memory, whose other end is the test."""

from collections.abc import Sequence
from typing import final

import trio

from tidelog.wire.env.env import BytesLike, Certificate, FileRegionSource
from tidelog.wire.errors import ConnectionLostError


@final
class FakeStream:
    """A stream with the test as its peer, which grants how much is sent; see `env.Stream`."""

    peer = "peer:1"
    local = ("local", 2)

    def __init__(self, *, allowance: int = 1 << 40, at_once: int = 1 << 40) -> None:
        """Take `allowance` bytes, at most `at_once` in one call and come in one call."""
        self.sent = bytearray()
        self.is_closed = False
        self.receive_count = 0
        """Number of receive calls."""
        self._allowance = allowance
        self._at_once = at_once
        self._incoming = bytearray()
        self._has_ended = False
        self._failure: str | None = None
        self._changed = trio.Event()

    def allow(self, count: int) -> None:
        """Take `count` bytes more."""
        self._allowance += count
        self._wake()

    def feed(self, data: bytes) -> None:
        """Receive these bytes."""
        self._incoming += data
        self._wake()

    def feed_end(self) -> None:
        """Close the peer's end after the fed bytes."""
        self._has_ended = True
        self._wake()

    def fail(self, why: str) -> None:
        """Break the connection."""
        self._failure = why
        self._wake()

    is_encrypted = False
    peer_certificate: Certificate | None = None

    async def handshake(self) -> None:
        pass

    def fileno(self) -> int | None:
        return None

    def receive_nowait(self, buffer: memoryview) -> int | None:
        self.receive_count += 1
        self._check()
        count = min(len(buffer), len(self._incoming), self._at_once)
        if count == 0:
            return 0 if self._has_ended else None
        buffer[:count] = self._incoming[:count]
        del self._incoming[:count]
        return count

    def send_nowait(self, pieces: Sequence[BytesLike]) -> int:
        self._check()
        data = b"".join(pieces)
        assert data, "a stream must not send nothing"
        count = min(len(data), self._allowance, self._at_once)
        self.sent += data[:count]
        self._allowance -= count
        return count

    def send_file_nowait(self, source: FileRegionSource, position: int, length: int) -> int:
        data = source.read_at(position, length)
        if not data:
            raise ConnectionLostError("a file ends before the region that was to be sent")
        return self.send_nowait([data])

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        self._check()
        while not self._incoming and not self._has_ended:
            await self._changed.wait()
            self._check()

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        self._check()
        while self._allowance == 0:
            await self._changed.wait()
            self._check()

    def close(self) -> None:
        self.is_closed = True
        self._wake()

    def _check(self) -> None:
        if self.is_closed:
            raise ConnectionLostError("connection to peer:1 was closed here")
        if self._failure is not None:
            raise ConnectionLostError(f"connection to peer:1: {self._failure}")

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@final
class FakeFile:
    """A file without a descriptor; see `wire.env.env.FileRegionSource`."""

    def __init__(self, data: bytes) -> None:
        """Hold `data`."""
        self._data = data

    def fileno(self) -> int | None:
        return None

    def read_at(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]
