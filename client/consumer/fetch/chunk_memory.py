"""Memory for the batches of fetches, used again once no batch refers to it.

Pure: no clock, no I/O. Fresh memory of a megabyte comes from the system page by page, which takes
longer than the copy into it.
"""

from collections import deque
from typing import Final, final

REUSED_BYTES_MIN: Final = 64 * 1024
"""Smaller copies get memory of their own, which Python keeps by itself."""
_STEP_BYTES: Final = 256 * 1024
_TRIES: Final = 4
"""Buffers that are looked at, from the oldest on: applications use batches in their order."""


@final
class ChunkMemory:
    """Buffers of one consumer.

    Invariant: a buffer is written only while no view of it exists. Python tells: a `bytearray` with
    views cannot be resized.
    """

    def __init__(self, *, kept_bytes_max: int) -> None:
        """Keep at most `kept_bytes_max` bytes for later copies."""
        self.kept_bytes = 0
        """Bytes of all buffers that may be used again."""
        self._kept_bytes_max = kept_bytes_max
        self._buffers: deque[bytearray] = deque()

    def copy(self, content: memoryview) -> memoryview | bytes:
        """Return a copy of `content`, which nothing changes for as long as it is referred to."""
        length = len(content)
        if length < REUSED_BYTES_MIN:
            return bytes(content)
        buffer = self._take(length)
        view = memoryview(buffer)
        view[:length] = content
        self._buffers.append(buffer)
        self.kept_bytes += len(buffer)
        while self.kept_bytes > self._kept_bytes_max:
            self.kept_bytes -= len(self._buffers.popleft())
        return view[:length].toreadonly()

    def clear(self) -> None:
        """Keep no memory; copies stay valid."""
        self._buffers.clear()
        self.kept_bytes = 0

    def _take(self, length: int) -> bytearray:
        """Return a buffer of at least `length` bytes without views."""
        for _ in range(min(_TRIES, len(self._buffers))):
            buffer = self._buffers.popleft()
            if len(buffer) >= length and _is_free(buffer):
                self.kept_bytes -= len(buffer)
                return buffer
            self._buffers.append(buffer)
        return bytearray(-(-length // _STEP_BYTES) * _STEP_BYTES)


def _is_free(buffer: bytearray) -> bool:
    """Return whether no view of a buffer exists."""
    try:
        last = buffer.pop()  # Not a resize of its memory, but refused like one.
    except BufferError:
        return False
    buffer.append(last)
    return True
