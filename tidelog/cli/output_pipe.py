"""The writer of standard output for commands that must stay responsive.

Shell: a pipe or a terminal whose reader does not read blocks a thread, and not the event loop.
"""

import os
import select
import stat
from typing import BinaryIO, Final, final

import trio

_NEVER_BLOCKED: Final = 4096
"""Bytes that a pipe takes at once when it is ready (PIPE_BUF of Linux); a terminal may not."""


@final
class OutputPipe:
    """Writes to a file, unbuffered, and waits while its reader is slow."""

    def __init__(self, file: BinaryIO) -> None:
        """Write to a file, which stays open, and into which nothing else is written."""
        self._file = file
        self._descriptor = _descriptor_that_blocks(file)
        self._readiness = select.poll()
        self._is_pipe = self._descriptor is not None and not os.isatty(self._descriptor)
        if self._descriptor is not None:
            self._readiness.register(self._descriptor, select.POLLOUT)

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
            # A thread costs more than the few steps for a batch.
            if self._is_pipe and self._readiness.poll(0):
                count = os.write(self._descriptor, rest[:_NEVER_BLOCKED])
            else:
                count = await trio.to_thread.run_sync(
                    os.write, self._descriptor, rest, abandon_on_cancel=True
                )
            rest = rest[count:]


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
