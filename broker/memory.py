"""The memory that all connections together may use for requests.

Shell: parks tasks until there is room, in the order in which they came.
"""

from collections import deque
from typing import final

import trio


@final
class MemoryBudget:
    """A number of bytes that is lent out.

    Invariant: 0 <= used_bytes; a request that was granted is never more than the whole budget.
    """

    def __init__(self, total_bytes: int) -> None:
        """Lend at most `total_bytes` at a time."""
        self._total_bytes = total_bytes
        self._used_bytes = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def used_bytes(self) -> int:
        """Bytes lent out."""
        return self._used_bytes

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for bytes."""
        return bool(self._waiting)

    async def acquire(self, count: int) -> None:
        """Take `count` bytes, waiting for them if need be.

        If cancelled, nothing was taken.
        """
        assert count <= self._total_bytes, f"{count} bytes can never be granted"
        if not self._waiting and self._used_bytes + count <= self._total_bytes:
            self._used_bytes += count
            return
        granted = trio.Event()
        entry = (count, granted)
        self._waiting.append(entry)
        try:
            await granted.wait()
        except trio.Cancelled:
            if granted.is_set():
                self.release(count)
            else:
                self._waiting.remove(entry)
                self._grant()
            raise

    def release(self, count: int) -> None:
        """Give `count` bytes back."""
        self._used_bytes -= count
        assert self._used_bytes >= 0
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._used_bytes + self._waiting[0][0] <= self._total_bytes:
            count, granted = self._waiting.popleft()
            self._used_bytes += count
            granted.set()
