"""The writer of standard output for commands that must stay responsive.

Shell: a pipe or a terminal whose reader does not read blocks a thread, and not the event loop.
"""

import errno
import os
import select
import stat
from typing import BinaryIO, Final, final

import trio

_AS_BEFORE: Final = -1
"""Position of a write where the file is, as pipes demand."""
_TRY_IN_THREAD: Final = {errno.EAGAIN, errno.EOPNOTSUPP, errno.ESPIPE, errno.EINVAL, errno.ENOSYS}
"""The pipe is full, or such files have no writes without waiting, such as terminals."""


@final
class OutputPipe:
    """Writes to a file, unbuffered, and waits while its reader is slow."""

    def __init__(self, file: BinaryIO) -> None:
        """Write to a file, which stays open, and into which nothing else is written."""
        self._file = file
        self._descriptor = _descriptor_that_blocks(file)

    async def write(self, content: bytes) -> None:
        """Write all bytes; a checkpoint only if the reader may be slow.

        If cancelled, a part may be written.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
            OSError: The bytes cannot be written.
        """
        if self._descriptor is None:
            self._file.write(content)
            self._file.flush()
            return
        rest = memoryview(content)
        while rest:
            try:
                # What has room now; the descriptor itself stays as other programs expect it.
                count = os.pwritev(self._descriptor, [rest], _AS_BEFORE, os.RWF_NOWAIT)
            except OSError as error:
                if error.errno not in _TRY_IN_THREAD:
                    raise
                count = await _write_some(self._descriptor, rest)
            rest = rest[count:]

    async def raise_when_closed(self) -> None:
        """Wait until the reader closes the pipe; wait for ever if the file is no pipe.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
        """
        if self._descriptor is not None and stat.S_ISFIFO(os.fstat(self._descriptor).st_mode):
            # The writing end is never readable, except that its reader is gone.
            await trio.lowlevel.wait_readable(self._descriptor)
            poll = select.poll()
            poll.register(self._descriptor, 0)
            if poll.poll(0):
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        await trio.sleep_forever()


async def _write_some(descriptor: int, content: memoryview) -> int:
    """Wait for room and write; return the number of bytes, 0 if the room was taken."""
    if os.get_blocking(descriptor):
        return await trio.to_thread.run_sync(os.write, descriptor, content, abandon_on_cancel=True)
    await trio.lowlevel.wait_writable(descriptor)  # Another program shares it, and polls.
    try:
        return os.write(descriptor, content)
    except BlockingIOError:
        return 0


def _descriptor_that_blocks(file: BinaryIO) -> int | None:
    """Return the descriptor of a pipe, a socket or a terminal; `None` for other files."""
    try:
        descriptor = file.fileno()
    except OSError:  # A file in memory has none.
        return None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        return descriptor
    return None
