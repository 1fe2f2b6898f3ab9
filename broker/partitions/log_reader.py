"""Reader of log slices for clients: at once from the page cache, in a thread from the disk.

Shell: limits the number of reads from the disk under way.
"""

import errno
from collections.abc import Callable
from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.env.env import Env
from tidelog.wire.errors import CorruptRecordError
from tidelog.wire.transport.write_buffer import FileRegion

_COPY_BELOW_BYTES: Final = 32 << 10
"""Size in bytes below which a slice is read and sent with the reply's header, in one system
call."""
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

    async def run(self, work: Callable[[], None]) -> None:
        """Do other work on batches in a thread; its errors are raised here."""
        async with self._cold_reads:
            await self._env.run_in_thread(work)

    def piece(self, partition: Partition, part: LogSlice, room_bytes: int) -> bytes | FileRegion:
        """Return the piece to send for a slice that is not cold: its bytes if they are few.

        Args:
            partition: Partition of the slice.
            part: The slice.
            room_bytes: Maximum number of bytes to copy.

        Raises:
            LogOfflineError: The slice cannot be read.
        """
        is_large = part.length >= min(_COPY_BELOW_BYTES, room_bytes)
        if is_large or self._env.buggify("small piece from its file"):
            return FileRegion(part.file, part.position, part.length)
        try:
            data = part.read()
        except OSError as error:
            raise partition.reading_failed(error) from error
        if len(data) < part.length:
            raise partition.reading_failed(OSError(errno.EIO, "the file is shorter than it was"))
        return data
