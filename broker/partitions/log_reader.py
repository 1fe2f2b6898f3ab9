"""Reader of log slices for clients: at once from the page cache, in a thread from the disk.

Shell: limits the number of reads from the disk under way.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, final

import trio

from tidelog.broker.encryption.partition_cipher import PartitionCipher
from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.disk.disk import File
from tidelog.logstore.segments.batch_scanner import FileWindow
from tidelog.logstore.segments.log_slice import LogSlice, corrupt
from tidelog.wire.batch.older_format import (
    REWRITTEN_BYTES_MAX,
    in_format_1,
    rewritten_length,
)
from tidelog.wire.batch.record_batch import HEADER_SIZE, BatchHeader
from tidelog.wire.env.env import BytesLike, Env
from tidelog.wire.errors import CorruptRecordError
from tidelog.wire.transport.write_buffer import FileRegion

_COPY_BELOW_BYTES: Final = 32 << 10
"""Size in bytes below which a slice is read and sent with the reply's header, in one system
call."""
OPENED_AT_ONCE_BYTES: Final = 128 << 10
"""Size in bytes above which batches are opened in a thread; of those that are rewritten, the
unpacked size as well."""
_WINDOW_BYTES: Final = 256 << 10
"""Size in bytes of the reads of sealed batches."""
_COLD_READS_MAX: Final = 16
"""Maximum number of reads from the disk at a time; more would make syncs wait for a thread."""


@final
class SliceReader:
    """Reads slices of partitions, and reports damage and failures to the partitions."""

    def __init__(self, env: Env) -> None:
        """Read slices that are not in the page cache in threads of `env`."""
        self._env = env
        self._cold_reads = trio.CapacityLimiter(_COLD_READS_MAX)

    def is_cold(self, part: LogSlice) -> bool:
        """Return whether a slice must be loaded before it can be sent."""
        return not part.is_ready() or self._env.buggify("cold fetch")

    def is_cold_file(self, file: File, position: int, length: int) -> bool:
        """Return whether checked bytes of a file must be read from the disk first."""
        return not file.is_cached(position, length) or self._env.buggify("cold header")

    async def load(self, partition: Partition, part: LogSlice) -> LogSlice:
        """Read a slice from the disk and check it; return its valid part.

        Raises:
            CorruptRecordError: The batch with the requested offset is damaged; the partition
                records it.
            LogOfflineError: The disk failed.
        """
        try:
            async with self._cold_reads:
                return await self._env.run_in_thread(part.load)
        except CorruptRecordError as error:
            partition.damage_found(error)
            raise
        except OSError as error:
            raise partition.reading_failed(error) from error

    def is_slow(self, part: LogSlice, *, is_opened: bool, is_older: bool) -> bool:
        """Return whether a slice takes a task: it is cold, or has much to open."""
        if self.is_cold(part) or (is_opened and part.length > OPENED_AT_ONCE_BYTES):
            return True
        return is_older and _is_long_unpacked(part)

    async def open(
        self, partition: Partition, part: LogSlice, room: Callable[[], int], *, is_older: bool
    ) -> BytesLike | None:
        """Return the batches of a slice that is not cold, in a thread; see `open_now`.

        `room` returns the room in bytes when a thread is free; without room, return `None`.
        """
        cipher = partition.cipher
        async with self._cold_reads:
            room_bytes = room()
            if room_bytes <= 0:
                return None
            with _telling(partition):
                return await self._env.run_in_thread(
                    lambda: _opened(cipher, part, room_bytes, is_older=is_older)
                )

    @staticmethod
    def open_now(
        partition: Partition, part: LogSlice, room_bytes: int, *, is_older: bool
    ) -> BytesLike:
        """Return the plain batches of a slice that is not cold: at least one.

        The result ends before a batch that cannot be opened, or that has no room.

        Args:
            partition: Partition of the slice.
            part: The slice.
            room_bytes: Maximum number of bytes, if the slice is sealed.
            is_older: Whether the client reads batches of format version 1 only.

        Raises:
            KeyUnavailableError: The data key of the first batch cannot be used here.
            CorruptRecordError: The seal of the first batch is broken; the partition records it.
            LogOfflineError: The disk failed.
        """
        with _telling(partition):
            return _opened(partition.cipher, part, room_bytes, is_older=is_older)

    async def run(self, work: Callable[[], None]) -> None:
        """Do other work on batches in a thread; its errors are raised here."""
        async with self._cold_reads:
            await self._env.run_in_thread(work)

    def piece(
        self, partition: Partition, file: File, position: int, *, length: int, room_bytes: int
    ) -> bytes | FileRegion:
        """Return the piece to send for bytes of a file that are not cold: a copy if they are few.

        Args:
            partition: Partition of the file.
            file: The file.
            position: Position of the first byte.
            length: Number of bytes.
            room_bytes: Maximum number of bytes to copy.

        Raises:
            LogOfflineError: The bytes cannot be read.
        """
        is_large = length >= min(_COPY_BELOW_BYTES, room_bytes)
        if is_large or self._env.buggify("small piece from its file"):
            return FileRegion(file, position, length)
        try:
            data = file.read_at(position, length)
        except OSError as error:
            raise partition.reading_failed(error) from error
        if len(data) < length:
            raise partition.reading_failed(OSError(errno.EIO, "the file is shorter than it was"))
        return data


def _is_long_unpacked(part: LogSlice) -> bool:
    """Return whether rewriting takes long, although the slice is short."""
    try:
        stored = part.file.read_at(part.position, part.length)
    except OSError:
        return True  # Reading it in the task fails again, and reports it.
    return rewritten_length(stored) > OPENED_AT_ONCE_BYTES


def _opened(
    cipher: PartitionCipher | None, part: LogSlice, room_bytes: int, *, is_older: bool
) -> BytesLike:
    plain: BytesLike
    if cipher is not None:
        plain = cipher.open_run(_stored(part), room_bytes=min(room_bytes, part.length))
    else:
        plain = part.file.read_at(part.position, part.length)
        if len(plain) < part.length:
            raise OSError(errno.EIO, "the file is shorter than it was")
    return in_format_1(plain, rewritten_bytes_max=REWRITTEN_BYTES_MAX) if is_older else plain


def _stored(part: LogSlice) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a slice, read in windows: new memory costs more than to decrypt it."""
    position, end, offset = part.position, part.position + part.length, part.offset
    window = FileWindow(part.file, end=end, chunk_bytes=_WINDOW_BYTES)
    while position < end:
        header = window.header(position)
        batch = window.view(position, HEADER_SIZE if header is None else header.size)
        if header is None or len(batch) < header.size:
            if part.file.size() < end:
                raise OSError(errno.EIO, "the file is shorter than it was")
            raise corrupt(offset, offset + 1)
        yield header, batch
        position, offset = position + header.size, header.next_offset


@contextmanager
def _telling(partition: Partition) -> Iterator[None]:
    """Report damage and failures of a read to the partition."""
    try:
        yield
    except CorruptRecordError as error:
        partition.damage_found(error)
        raise
    except OSError as error:
        raise partition.reading_failed(error) from error
