"""The readers of lines from a file or pipe, many at a time.

Shell: reads a descriptor in a thread, so that an idle pipe does not block the event loop.
"""

import os
from collections.abc import Sequence
from typing import Protocol, final

import trio

from tidelog.cli.errors import CommandError

_READ_BYTES = 1 << 20
LINE_BYTES_MAX = 64 << 20
"""Bytes of a line at most: far more than a record, and little for the memory."""


class LineSource(Protocol):
    """A source of lines, or of what takes the place of lines."""

    async def next_lines(self) -> list[bytes]:
        """Return the next lines; return none at the end."""
        ...


@final
class LineReader:
    """Splits the bytes of a descriptor into lines."""

    def __init__(self, descriptor: int) -> None:
        """Read from a descriptor, which stays open."""
        self._descriptor = descriptor
        self._unfinished: list[bytes] = []
        self._unfinished_bytes = 0

    async def next_lines(self) -> list[bytes]:
        """Return the next lines, without their ends; return none at the end of the input.

        If cancelled, bytes that the thread still reads are lost.

        Raises:
            CommandError: A line is longer than `LINE_BYTES_MAX`.
            OSError: The input cannot be read.
        """
        while True:
            chunk = await _next_chunk(self._descriptor)
            if not chunk:
                rest = b"".join(self._unfinished)
                self._unfinished.clear()
                return [rest] if rest else []
            lines = chunk.split(b"\n")
            if len(lines) > 1:
                lines[0] = b"".join((*self._unfinished, lines[0]))
                self._unfinished = [lines.pop()]
                self._unfinished_bytes = len(self._unfinished[0])
                return lines
            self._unfinished.append(chunk)
            self._unfinished_bytes += len(chunk)
            if self._unfinished_bytes > LINE_BYTES_MAX:
                raise CommandError(
                    f"a line is longer than {LINE_BYTES_MAX >> 20} MiB; separate records by line"
                    " ends"
                )


@final
class WholeReader:
    """Reads all bytes of a descriptor as one line."""

    def __init__(self, descriptor: int) -> None:
        """Read from a descriptor, which stays open."""
        self._descriptor = descriptor
        self._is_read = False

    async def next_lines(self) -> list[bytes]:
        """Return all bytes at the first call, and nothing afterwards.

        Raises:
            CommandError: There are more than `LINE_BYTES_MAX` bytes.
            OSError: The input cannot be read.
        """
        content: list[bytes] = []
        if self._is_read:
            return []
        while chunk := await _next_chunk(self._descriptor):
            content.append(chunk)
            if sum(map(len, content)) > LINE_BYTES_MAX:
                raise CommandError(
                    f"the value is longer than {LINE_BYTES_MAX >> 20} MiB: send it as a large"
                    " message with `tidelog queue send --file`"
                )
        self._is_read = True
        return [b"".join(content)]


@final
class GivenLines:
    """Lines that need not be read."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        """Return `lines` once."""
        self._lines = list(lines)

    async def next_lines(self) -> list[bytes]:
        """Return all lines at the first call, and nothing afterwards."""
        await trio.lowlevel.checkpoint()
        lines, self._lines = self._lines, []
        return lines


async def _next_chunk(descriptor: int) -> bytes:
    return await trio.to_thread.run_sync(os.read, descriptor, _READ_BYTES, abandon_on_cancel=True)
