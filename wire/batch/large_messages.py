"""Large messages: chunks, and the message that names them (SQS: Extended Client Library).

Pure: no clock, no I/O. `docs/formats/large_message.md` describes the format. The chunks are
records of the same partition, each with a `CHUNK_HEADER`. The message follows them: its value is
empty, and its `CHUNKS_HEADER` holds the offsets of the chunks.
"""

from collections.abc import Iterable
from typing import Final, final

import msgspec

from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.queues import CHUNK_HEADER, CHUNKS_HEADER, Run

LARGE_MESSAGE_BYTES_MAX: Final = 1 << 30
"""Maximum bytes of all chunks of a message together."""
_ID_DIGITS: Final = 16
_OFFSET_DIGITS_MAX: Final = 19


@final
class ChunkMap(msgspec.Struct, frozen=True):
    """The offsets of a large message's chunks in its partition."""

    body_id: str
    """The id in the headers of all chunks: 16 hexadecimal digits."""
    length: int
    """Bytes of all chunks together; above 0."""
    runs: tuple[Run, ...]
    """Offsets of the chunks in order, as runs of consecutive offsets; empty if they are lost."""

    @property
    def is_lost(self) -> bool:
        """Whether the message was moved after its chunks had been deleted."""
        return not self.runs

    @property
    def chunk_count(self) -> int:
        """The number of chunks."""
        return sum(count for _, count in self.runs)


def chunk_header(body_id: str, index: int) -> tuple[str, bytes]:
    """Return the header of a chunk; the first chunk has index 0."""
    return CHUNK_HEADER, f"{body_id} {index}".encode()


def chunks_header(chunks: ChunkMap) -> tuple[str, bytes]:
    """Return the header of a message whose body is in chunks."""
    runs = ",".join(f"{first}+{count}" for first, count in chunks.runs) or "-"
    return CHUNKS_HEADER, f"{chunks.length} {chunks.body_id} {runs}".encode()


def is_chunk(headers: Iterable[tuple[str, bytes]]) -> bool:
    """Return whether a record is a chunk of a message and no message itself."""
    return any(name == CHUNK_HEADER for name, _ in headers)


def is_chunk_of(
    chunks: ChunkMap, headers: Iterable[tuple[str, bytes]], *, index: int, end: int
) -> bool:
    """Return whether a record is the chunk of this index, and ends within the message.

    Args:
        chunks: The chunk map of the message.
        headers: The headers of the record.
        index: The number of chunks before it.
        end: Bytes of the chunks up to and including this chunk.
    """
    return end <= chunks.length and chunk_header(chunks.body_id, index) in headers


def is_large(headers: Iterable[tuple[str, bytes]]) -> bool:
    """Return whether a message has its body in chunks, readable or not."""
    return any(name == CHUNKS_HEADER for name, _ in headers)


def chunks_of(headers: Iterable[tuple[str, bytes]]) -> ChunkMap | None:
    """Return the chunk map of a message, `None` if its body is its value.

    Raises:
        WireFormatError: The header is malformed.
    """
    for name, value in headers:
        if name == CHUNKS_HEADER:
            return _parsed(value)
    return None


def length_of(value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> int:
    """Return the bytes of a message's value, in chunks or not."""
    if not value:
        try:
            chunks = chunks_of(headers)
        except WireFormatError:
            chunks = None
        if chunks is not None:
            return chunks.length
    return len(value or b"")


def with_chunks(headers: Headers, chunks: ChunkMap) -> Headers:
    """Return headers with the chunk map replaced."""
    kept = [each for each in headers if each[0] != CHUNKS_HEADER]
    return (*kept, chunks_header(chunks))


def runs_of(offsets: Iterable[int]) -> tuple[Run, ...]:
    """Return offsets in order, with consecutive offsets merged into runs."""
    runs: list[Run] = []
    for offset in offsets:
        if runs and sum(runs[-1]) == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((offset, 1))
    return tuple(runs)


def _parsed(value: bytes) -> ChunkMap:
    words = value.split(b" ")
    if len(words) != 3:  # noqa: PLR2004  (length, id, runs)
        raise _not_understood(value)
    length, body_id, runs = words
    if not _is_number(length) or not 0 < int(length) <= LARGE_MESSAGE_BYTES_MAX:
        raise _not_understood(value)
    if len(body_id) != _ID_DIGITS or not set(body_id) <= set(b"0123456789abcdef"):
        raise _not_understood(value)
    found: list[Run] = []
    for run in runs.split(b",") if runs != b"-" else ():
        first, plus, count = run.partition(b"+")
        if not (plus and _is_number(first) and _is_number(count) and int(count)):
            raise _not_understood(value)
        found.append((int(first), int(count)))
    chunks = ChunkMap(body_id.decode(), int(length), tuple(found))
    if chunks.chunk_count > chunks.length:
        raise _not_understood(value)
    return chunks


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= _OFFSET_DIGITS_MAX


def _not_understood(value: bytes) -> WireFormatError:
    return WireFormatError(f"malformed {CHUNKS_HEADER} header of a large message: {value[:80]!r}")
