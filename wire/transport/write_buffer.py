"""Write buffer of one stream.

Shell: owns the sending side of a stream. Any task puts pieces here and flushes without waiting;
`run` sends the bytes that the stream does not accept at once.
"""

from collections import deque
from collections.abc import Sequence
from typing import final

import trio

from tidelog.wire.env.env import BytesLike, FileRegionSource, Stream
from tidelog.wire.errors import ConnectionLostError

_GATHER_MAX = 64


@final
class FileRegion:
    """Bytes of a file, to be sent without a copy through this process."""

    __slots__ = ("length", "position", "source")

    def __init__(self, source: FileRegionSource, position: int, length: int) -> None:
        """Refer to `length` bytes from `position` on, which must be in the file already."""
        self.source = source
        self.position = position
        self.length = length


Piece = memoryview | FileRegion


@final
class WriteBuffer:
    """A queue of pieces in front of a stream.

    Invariant: while `_is_blocked` is false, the queue is empty after every `flush`.
    """

    def __init__(self, stream: Stream) -> None:
        """Send on `stream`, and close it when sending fails, which wakes its reader."""
        self._stream = stream
        self._queue: deque[Piece] = deque()
        self.pending_bytes = 0
        """Bytes that were put and not yet accepted by the stream."""
        self._is_blocked = False
        self._is_broken = False
        self._blocked = trio.Event()
        self._progress: trio.Event | None = None
        """Created by the first task that waits for progress."""

    def put(self, piece: BytesLike | FileRegion) -> None:
        """Queue a piece; nothing is sent before `flush`. Buffers must not change until sent."""
        length = piece.length if isinstance(piece, FileRegion) else len(piece)
        # An empty piece is skipped: sending it would look like a blocked stream.
        if self._is_broken or length == 0:
            return
        self.pending_bytes += length
        self._queue.append(piece if isinstance(piece, FileRegion) else memoryview(piece))

    def send(self, pieces: Sequence[BytesLike], length: int, *, is_followed: bool = False) -> None:
        """Send pieces of `length` bytes in all behind those that wait; never raises.

        The same as `put` for each and `flush`, with one call of the stream in the usual case. If
        `is_followed`, the pieces wait for the next `send` or `flush`.
        """
        sent = 0
        if is_followed:
            for piece in pieces:
                self.put(piece)
            return
        if not self._queue and not self._is_broken and len(pieces) <= _GATHER_MAX:
            try:
                sent = self._stream.send_nowait(pieces)
            except ConnectionLostError:
                self.close()
            if sent == length:
                return
        for piece in pieces:
            self.put(piece)
        if not self._is_broken:
            self.pending_bytes -= sent
            self._drop(sent)
        self.flush()

    def flush(self) -> None:
        """Send the bytes that the stream accepts now; `run` sends the rest. Never raises."""
        queue = self._queue
        if not queue or self._is_blocked:
            return
        try:
            while queue:
                piece = queue[0]
                if isinstance(piece, FileRegion):
                    sent = self._stream.send_file_nowait(piece.source, piece.position, piece.length)
                else:
                    pieces = (piece,) if len(queue) == 1 else self._leading_buffers()
                    sent = self._stream.send_nowait(pieces)
                if sent == 0:
                    self._is_blocked = True
                    self._blocked.set()
                    break
                self.pending_bytes -= sent
                if self.pending_bytes:
                    self._drop(sent)
                else:
                    queue.clear()
        except ConnectionLostError:
            self.close()
        if self._progress is not None:
            self._tell_progress()

    async def run(self) -> None:
        """Send the remaining bytes of `flush` until cancelled or the connection is lost."""
        await self._blocked.wait()
        while not self._is_broken:
            try:
                await self._stream.wait_writable()
            except ConnectionLostError:
                self.close()
            else:
                self._is_blocked = False
                self._blocked = trio.Event()
                self.flush()
            await self._blocked.wait()

    async def wait_below(self, limit_bytes: int) -> None:
        """Wait until at most `limit_bytes` are pending, or the connection is lost."""
        while self.pending_bytes > limit_bytes and not self._is_broken:
            if self._progress is None:
                self._progress = trio.Event()
            await self._progress.wait()

    def close(self) -> None:
        """Drop queued pieces, end all waits and close the stream. Closing twice is allowed."""
        self._is_broken = True
        self._queue.clear()
        self.pending_bytes = 0
        self._tell_progress()
        self._blocked.set()  # `run` ends.
        self._stream.close()

    def _tell_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    def _leading_buffers(self) -> list[memoryview]:
        buffers: list[memoryview] = []
        for piece in self._queue:
            if isinstance(piece, FileRegion) or len(buffers) == _GATHER_MAX:
                break
            buffers.append(piece)
        return buffers

    def _drop(self, sent: int) -> None:
        queue = self._queue
        while sent:
            piece = queue[0]
            length = piece.length if isinstance(piece, FileRegion) else len(piece)
            if sent >= length:
                queue.popleft()
                sent -= length
            elif isinstance(piece, FileRegion):
                piece.position += sent
                piece.length -= sent
                return
            else:
                queue[0] = piece[sent:]
                return
