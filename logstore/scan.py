"""Walking through the batches of a segment file.

Decides what is a batch and what is not; reads through a `File`, in large pieces.
"""

from collections.abc import Iterator
from typing import final

from logstore.config import KiB, MiB
from logstore.disk import File
from wire.record_batch import (
    HEADER_SIZE,
    SYNC_MARKER,
    BatchHeader,
    has_valid_payload,
    parse_header,
)

_MARKER = SYNC_MARKER.to_bytes(4, "little")


@final
class FileWindow:
    """A part of a file in memory, moved forward as it is asked for."""

    def __init__(self, file: File, *, end: int, chunk_bytes: int = MiB) -> None:
        """Look at the bytes of `file` below position `end`, `chunk_bytes` at a time."""
        self._file = file
        self._end = end
        self._chunk_bytes = chunk_bytes
        self._start = 0
        self._data = b""

    def view(self, position: int, length: int) -> memoryview:
        """Return `length` bytes from `position` on, fewer only at the end."""
        length = max(min(length, self._end - position), 0)
        begin = position - self._start
        if begin < 0 or begin + length > len(self._data):
            wanted = min(max(length, self._chunk_bytes), self._end - position)
            self._data = self._file.read_at(position, wanted)
            self._start, begin = position, 0
        return memoryview(self._data)[begin : begin + length]

    def header(self, position: int) -> BatchHeader | None:
        """Return the header at `position` if a batch is there that ends in the file."""
        header = parse_header(self.view(position, HEADER_SIZE))
        if header is None or position + header.size > self._end:
            return None
        return header

    def valid_header(self, position: int) -> BatchHeader | None:
        """Return the header at `position` if a whole batch with right checksums is there."""
        header = self.header(position)
        if header is None:
            return None
        batch = self.view(position, header.size)
        return header if len(batch) == header.size and has_valid_payload(header, batch) else None

    def find_valid(self, position: int, *, offset_min: int) -> tuple[int, BatchHeader] | None:
        """Return the first valid batch at or behind `position` with at least `offset_min`."""
        while position + HEADER_SIZE <= self._end:
            self.view(position, HEADER_SIZE)
            found = self._data.find(_MARKER, position - self._start)
            if found < 0:
                # The marker may begin in the last bytes of this part.
                behind = self._start + len(self._data) - len(_MARKER) + 1
                position = max(behind, position + 1)
                continue
            position = self._start + found
            header = self.valid_header(position)
            if header is not None and header.base_offset >= offset_min:
                return position, header
            position += 1
        return None


def walk_headers(
    file: File, position: int, *, end: int, chunk_bytes: int = 8 * KiB
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from `position` on, leaving out damaged bytes.

    Payloads are only looked at to find the next batch behind damage.
    """
    window = FileWindow(file, end=end, chunk_bytes=chunk_bytes)
    offset = 0
    while position < end:
        header = window.header(position)
        if header is None:
            found = window.find_valid(position, offset_min=offset)
            if found is None:
                return
            position, header = found
        yield position, header
        position += header.size
        offset = header.next_offset
