"""Reading pieces of logs for clients: what is in memory at once, what is not in a thread.

Shell: bounds how many reads from the disk are under way.
"""

import errno
from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.env.env import Env
from tidelog.wire.errors import CorruptRecordError
from tidelog.wire.protocol.write_buffer import FileRegion

_COPY_BELOW_BYTES: Final = 32 << 10
"""Smaller pieces are read and sent together with the reply's header, in one system call."""
_COLD_READS_MAX: Final = 16
"""Reads from the disk under way at a time; more would keep syncs waiting for a thread."""


@final
class SliceReader:
    """Reads slices of partitions, and tells the partitions what is wrong with them."""

    def __init__(self, env: Env) -> None:
        """Read in threads of `env` what is not in memory."""
        self._env = env
        self._cold_reads = trio.CapacityLimiter(_COLD_READS_MAX)

    def is_cold(self, part: LogSlice) -> bool:
        """Return whether it has to be loaded before it can be sent."""
        return not part.is_ready() or self._env.buggify("cold fetch")

    async def load(self, partition: Partition, part: LogSlice) -> LogSlice:
        """Read a slice from the disk and check it; return what is good of it.

        Raises:
            CorruptRecordError: The batch with the offset asked for is damaged; that is noted.
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

    def piece(self, partition: Partition, part: LogSlice, room_bytes: int) -> bytes | FileRegion:
        """Return what is sent of a slice that is not cold: its bytes if they are few.

        Args:
            partition: Whose slice it is.
            part: The slice.
            room_bytes: No more than that is copied.

        Raises:
            LogOfflineError: It cannot be read.
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
