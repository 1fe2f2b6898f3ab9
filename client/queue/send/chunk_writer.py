"""Writer of large messages: sends the chunks of a value, then the record that lists them.

Shell without tasks. Memory: `_WINDOW` chunks at a time, and the producer's copies of them, about
8 MiB, for any length of the message. No part of it is delivered before the record itself is sent. A
sender that dies before leaves orphaned chunks, which the retention of the log deletes.
"""

import inspect
import io
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from functools import partial
from hashlib import sha256
from typing import Final, Protocol, cast, final

import msgspec

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.producer.partitioner import partition_for_key
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.wire.batch.large_messages import (
    LARGE_MESSAGE_BYTES_MAX,
    ChunkMap,
    chunk_header,
    chunks_header,
    runs_of,
)
from tidelog.wire.env.env import Env
from tidelog.wire.errors import RecordTooLargeError, TidelogError
from tidelog.wire.messages.queues import DEDUPLICATION_ID_HEADER

WHOLE_BYTES_MAX: Final = (1 << 20) - (4 << 10)
"""Maximum bytes of a message in one record; longer ones are sent in chunks, even if the topic takes
larger records."""
CHUNK_BYTES: Final = 512 << 10
_WINDOW: Final = 4
"""Maximum chunks in flight."""
_CHUNK_BYTES_MIN: Final = 256
_RECORD_OVERHEAD: Final = 512
"""Upper bound of the bytes of a batch in addition to the chunk in it."""


class BinaryFile(Protocol):
    """File open for reading bytes; read in a thread."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""
        ...


class AsyncBinaryFile(Protocol):
    """File as `trio.open_file` returns it."""

    def read(self, size: int, /) -> Awaitable[bytes]:
        """Return up to `size` bytes; none at the end."""
        ...


Source = bytes | BinaryFile | AsyncBinaryFile | AsyncIterable[bytes]
"""Source of the value of a message."""


class _Pieces(Protocol):
    async def known_length(self) -> int | None:
        """Return the number of bytes to take; `None` if only the end shows it."""
        ...

    async def take(self, size: int) -> bytes:
        """Return the next bytes, fewer than `size` only at the end."""
        ...


@final
class ChunkWriter:
    """Sends the chunks of one message."""

    def __init__(
        self, cluster: ClusterClient, producer: Producer, record: ProducerRecord, *, source: Source
    ) -> None:
        """Send the value of a record from `source`, which is read once.

        Raises:
            TypeError: `source` is not a source of bytes.
        """
        self._cluster = cluster
        self._producer = producer
        self._record = record
        self._topic = record.topic
        self._pieces = _pieces_of(source, cluster.env)
        self._body_id = f"{cluster.env.random.getrandbits(64):016x}"
        self._size = CHUNK_BYTES
        self._hash = sha256()
        self._length = 0
        self._offsets: list[int] = []
        self._window: list[bytes] = []

    async def send(
        self, *, whole_bytes_max: int = WHOLE_BYTES_MAX, is_identified: bool = False
    ) -> ProducerRecord:
        """Send the chunks, and return the record to be sent after them: the message.

        Chunks go to the partition of the key, or to any without a key. A short value is not sent in
        chunks: it becomes the value of the record.

        Args:
            whole_bytes_max: Maximum size of a record that is not sent in chunks.
            is_identified: Whether the message gets a deduplication id from its value, unless it
                has one: brokers do not see the content of chunks.

        Raises:
            RecordTooLargeError: It is longer than `LARGE_MESSAGE_BYTES_MAX`, or the topic does not
                accept chunks of a sensible size. If the length is known, no chunk was sent.
            TidelogError: A chunk was not acknowledged.
        """
        known_length = await self._pieces.known_length()
        if known_length is not None and known_length > LARGE_MESSAGE_BYTES_MAX:
            raise _too_long(known_length, f"this one {known_length}")
        await self._fill()
        record = msgspec.structs.replace(self._record, value=b"")
        length = sum(map(len, self._window))
        if not length or record.size + length <= whole_bytes_max:
            return msgspec.structs.replace(record, value=b"".join(self._window))
        partition = await self._partition(record.key)
        while self._window:
            self._length += sum(map(len, self._window))
            if self._length > LARGE_MESSAGE_BYTES_MAX:
                raise _too_long(self._length, "this one more")
            if is_identified:
                for piece in self._window:
                    self._hash.update(piece)
            await self._send(self._window, partition)
            self._window = []
            await self._fill()
        chunks = ChunkMap(self._body_id, self._length, runs_of(self._offsets))
        headers = (*record.headers, chunks_header(chunks))
        if is_identified and not any(name == DEDUPLICATION_ID_HEADER for name, _ in headers):
            sent_id = self._hash.hexdigest().encode()
            headers = (*headers, (DEDUPLICATION_ID_HEADER, sent_id))
        return msgspec.structs.replace(record, partition=partition, headers=headers)

    async def _fill(self) -> None:
        while len(self._window) < _WINDOW:
            piece = await self._pieces.take(self._size)
            if not piece:
                return
            self._window.append(piece)

    async def _send(self, window: list[bytes], partition: int) -> None:
        """Send some chunks, cut smaller if they are refused for their size."""
        while True:
            try:
                self._offsets += await self._appended(window, partition)
            except RecordTooLargeError as error:
                size = (error.detail("limit_bytes") or 0) - _RECORD_OVERHEAD
                if not _CHUNK_BYTES_MIN <= size < max(map(len, window)):
                    raise
                self._size = size
                window = [
                    piece[at : at + size] for piece in window for at in range(0, len(piece), size)
                ]
            else:
                return

    async def _appended(self, window: list[bytes], partition: int) -> list[int]:
        """Return the offsets of chunks that are acknowledged.

        Raises:
            TidelogError: A chunk failed.
        """
        left = {len(self._offsets) + place: piece for place, piece in enumerate(window)}
        offsets: dict[int, int] = {}
        while left:
            records = [
                ProducerRecord(
                    self._topic,
                    piece,
                    partition=partition,
                    headers=(chunk_header(self._body_id, index),),
                )
                for index, piece in left.items()
            ]
            results = await self._producer.send_records(self._topic, records)
            for index, result in zip(list(left), results, strict=True):
                if isinstance(result, TidelogError):
                    raise result
                if result.offset is not None:  # Otherwise it is in the log at an unknown offset.
                    offsets[index] = result.offset
                    del left[index]
        return [offsets[index] for index in sorted(offsets)]

    async def _partition(self, key: bytes | None) -> int:
        known = self._cluster.metadata.topic(self._topic)
        if known is None:
            known = await self._cluster.topic(self._topic)
        count = len(known.partitions)
        if key is not None:
            return partition_for_key(key, count)
        numbers = range(count)
        is_led = [self._cluster.metadata.leader_of(self._topic, n) is not None for n in numbers]
        return self._cluster.env.random.choice(
            [number for number in numbers if is_led[number]] or list(numbers)
        )


def _too_long(length: int, told: str) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"a message has at most {LARGE_MESSAGE_BYTES_MAX} bytes, and {told}; send it in parts",
        size_bytes=length,
        limit_bytes=LARGE_MESSAGE_BYTES_MAX,
    )


def is_to_be_cut(record: ProducerRecord, source: Source, whole_bytes_max: int) -> bool:
    """Return whether a `ChunkWriter` is to send the value of a record, perhaps in chunks.

    It is if the length is unknown, or if the value makes the record longer than the limit.
    """
    if not isinstance(source, bytes):
        return True
    return record.size > whole_bytes_max and 2 * len(source) > record.size


@final
class _BytesPieces:
    """Pieces of bytes."""

    def __init__(self, value: bytes) -> None:
        self._value = memoryview(value)
        self._at = 0

    async def known_length(self) -> int:
        return self._value.nbytes

    async def take(self, size: int) -> bytes:
        piece = bytes(self._value[self._at : self._at + size])
        self._at += len(piece)
        return piece


@final
class _FilePieces:
    """Pieces of a file, whose reads may return fewer bytes than requested."""

    def __init__(self, file: BinaryFile | AsyncBinaryFile, env: Env) -> None:
        self._file = file
        self._env = env
        self._is_async = inspect.iscoroutinefunction(file.read)

    async def known_length(self) -> int | None:
        return await self._env.run_in_thread(partial(_length_left, self._file))

    async def take(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = await self._read(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    async def _read(self, size: int) -> bytes:
        if self._is_async:
            return await cast("AsyncBinaryFile", self._file).read(size)
        part = await self._env.run_in_thread(partial(cast("BinaryFile", self._file).read, size))
        if not isinstance(part, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a file must be open for bytes; it returned {type(part).__name__}")
        return part


def _length_left(file: object) -> int | None:
    """Return the bytes between the position of a file and its end; blocks.

    It is `None` unless the file is in memory, or a plain one that has positions: the end of a
    compressed file is known when all of it is decompressed, and that of a pipe at its end.
    """
    file = getattr(file, "wrapped", file)  # As `trio.open_file` returns it.
    plain = cast("io.IOBase", file)
    if not isinstance(getattr(file, "raw", file), (io.FileIO, io.BytesIO)) or not plain.seekable():
        return None
    position = plain.tell()
    end = plain.seek(0, io.SEEK_END)
    plain.seek(position)
    return max(0, end - position)


@final
class _StreamPieces:
    """Pieces of a stream of bytes of any lengths."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._rest = bytearray()
        self._is_over = False

    async def known_length(self) -> None:
        return None

    async def take(self, size: int) -> bytes:
        while len(self._rest) < size and not self._is_over:
            try:
                self._rest += await anext(self._stream)
            except StopAsyncIteration:
                self._is_over = True
        piece = bytes(memoryview(self._rest)[:size])
        del self._rest[:size]
        return piece


def _pieces_of(source: object, env: Env) -> _Pieces:
    """Return the reader of pieces for a source.

    Raises:
        TypeError: It is not a source of bytes.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _BytesPieces(cast("bytes", source))
    if hasattr(source, "read"):
        return _FilePieces(cast("BinaryFile", source), env)
    if isinstance(source, AsyncIterable):
        return _StreamPieces(aiter(cast("AsyncIterable[bytes]", source)))
    raise TypeError(
        f"a value is bytes, a file open for reading bytes, or an asynchronous iterable of bytes,"
        f" not {type(source).__name__}"
    )
