"""Adapter from a simulated connection to trio's stream interface, for trio's own tests."""

from typing import final

import trio

from tests.simulation.machine.tcp import SimulatedStream
from tidelog.wire.errors import ConnectionLostError

_CHUNK_BYTES = 4096


@final
class TrioStream(trio.abc.HalfCloseableStream):
    """A `SimulatedStream` with trio's interface."""

    def __init__(self, stream: SimulatedStream) -> None:
        """Wrap `stream`."""
        self._stream = stream
        self._has_sent_end = False
        self._is_sending = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `trio.abc.SendStream`."""
        self._begin_sending()
        try:
            await trio.lowlevel.checkpoint()
            rest = memoryview(data)
            self._check_open()
            while rest := rest[self._stream.send_nowait([rest]) :]:
                await self._stream.wait_writable()
        except ConnectionLostError as error:
            raise self._translated(error) from error
        finally:
            self._is_sending = False

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream`."""
        self._begin_sending()
        try:
            self._check_open()
            await self._stream.wait_writable()
        except ConnectionLostError as error:
            raise self._translated(error) from error
        finally:
            self._is_sending = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See `trio.abc.ReceiveStream`."""
        if max_bytes is not None and max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        buffer = bytearray(max_bytes or _CHUNK_BYTES)
        try:
            await self._stream.wait_readable()
            count = self._stream.receive_nowait(memoryview(buffer))
        except ConnectionLostError as error:
            raise self._translated(error) from error
        assert count is not None, "the stream is readable"
        return bytes(buffer[:count])

    async def send_eof(self) -> None:
        """See `trio.abc.HalfCloseableStream`."""
        self._begin_sending()
        try:
            await trio.lowlevel.checkpoint()
            if not self._has_sent_end:
                self._stream.send_end()
                self._has_sent_end = True
        except ConnectionLostError as error:
            raise self._translated(error) from error
        finally:
            self._is_sending = False

    async def aclose(self) -> None:
        """See `trio.abc.AsyncResource`."""
        self._stream.close()
        await trio.lowlevel.checkpoint()

    def _begin_sending(self) -> None:
        if self._is_sending:
            raise trio.BusyResourceError("another task is sending")
        self._is_sending = True

    def _check_open(self) -> None:
        if self._has_sent_end:
            raise trio.ClosedResourceError("the end was sent")

    def _translated(self, error: ConnectionLostError) -> Exception:
        if not self._stream.is_open:
            return trio.ClosedResourceError(str(error))
        return trio.BrokenResourceError(str(error))
