"""Scanner of the batches in a segment file.

It tells batches from other bytes, and reads through a `File` in large pieces.
"""

from collections.abc import Callable, Iterator
from typing import final

import msgspec

from tidelog.logstore.config import KiB, MiB
from tidelog.logstore.disk.disk import File
from tidelog.wire.batch.record_batch import (
    HEADER_SIZE,
    SYNC_MARKER,
    BatchHeader,
    has_valid_payload,
    parse_header,
)

_MARKER = SYNC_MARKER.to_bytes(4, "little")


class Predecessor(msgspec.Struct, frozen=True, gc=False):
    """Constraints of a batch on later batches in the same file.

    Offsets grow, and leader epochs and durable positions never fall. Bytes that only look like the
    next batch (an older batch on a recycled block, a batch inside a producer's payload) rarely
    satisfy them.
    """

    next_offset: int
    leader_epoch: int = 0
    durable_position: int = 0

    def may_precede(self, header: BatchHeader) -> bool:
        """Return whether a batch with this header may follow."""
        return (
            header.base_offset >= self.next_offset
            and header.leader_epoch >= self.leader_epoch
            and header.durable_position >= self.durable_position
        )


@final
class FileWindow:
    """A window of a file in memory that moves forward on demand."""

    def __init__(self, file: File, *, end: int, chunk_bytes: int = MiB) -> None:
        """Read the bytes of `file` below position `end`, `chunk_bytes` at a time."""
        self._file = file
        self._end = end
        self._chunk_bytes = chunk_bytes
        self._start = 0
        self._data = b""

    def view(self, position: int, length: int) -> memoryview:
        """Return `length` bytes from `position` on, fewer only at the end."""
        length = min(length, self._end - position)
        if length <= 0:
            return memoryview(b"")
        begin = position - self._start
        if begin < 0 or begin + length > len(self._data):
            wanted = min(max(length, self._chunk_bytes), self._end - position)
            self._data = self._file.read_at(position, wanted)
            self._start, begin = position, 0
        return memoryview(self._data)[begin : begin + length]

    def header(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position` if the batch ends within the file."""
        header = parse_header(self.view(position, HEADER_SIZE))
        if header is None or position + HEADER_SIZE + header.payload_length > self._end:
            return None
        # The durable position of a batch never exceeds its own position.
        return header if header.durable_position <= position else None

    def valid_header(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position` if it is complete with right checksums."""
        header = self.header(position)
        return header if header is not None and self._has_payload(header, position) else None

    def find_valid(
        self, position: int, *, accepts: Callable[[BatchHeader], bool]
    ) -> tuple[int, BatchHeader] | None:
        """Return the first valid batch at or after `position` that `accepts` accepts."""
        while position + HEADER_SIZE <= self._end:
            if len(self.view(position, HEADER_SIZE)) < HEADER_SIZE:
                return None  # The file was truncated meanwhile.
            found = self._data.find(_MARKER, position - self._start)
            if found < 0:
                # The marker may begin in the last bytes of this window.
                position = max(self._start + len(self._data) - len(_MARKER) + 1, position + 1)
                continue
            position = self._start + found
            header = self.header(position)
            if header is not None and accepts(header) and self._has_payload(header, position):
                return position, header
            position += 1
        return None

    def find_behind(
        self, position: int, *, accepts: Callable[[BatchHeader], bool]
    ) -> tuple[int, BatchHeader] | None:
        """Return the first valid batch after the bad bytes at `position` that is accepted."""
        header = self.header(position)
        if header is not None and accepts(header):
            # Only the payload is bad: bytes inside of it that look like a batch are none.
            return self.find_valid(position + header.size, accepts=accepts)
        return self.find_valid(position + 1, accepts=accepts)

    def _has_payload(self, header: BatchHeader, position: int) -> bool:
        batch = self.view(position, header.size)
        return len(batch) == header.size and has_valid_payload(header, batch)


def walk_headers(
    file: File, position: int, *, start_offset: int, end: int, chunk_bytes: int = 8 * KiB
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from `position` on, skipping damaged bytes.

    The batch at `position` begins at `start_offset`: batches with lower offsets are misplaced.
    Payloads are read only to find the next batch after damage.
    """
    window = FileWindow(file, end=end, chunk_bytes=chunk_bytes)
    last = Predecessor(start_offset)
    while position < end:
        header = window.header(position)
        if header is None or not last.may_precede(header):
            found = window.find_valid(position, accepts=last.may_precede)
            if found is None:
                return
            position, header = found
        yield position, header
        position += HEADER_SIZE + header.payload_length
        next_offset = header.base_offset + header.last_offset_delta + 1
        last = Predecessor(next_offset, header.leader_epoch, header.durable_position)
