"""Memory budget for the requests of all connections together.

Shell: parks tasks until there is room, in the order of their arrival.
"""

from collections import deque
from typing import Protocol, final

import trio


class Holder(Protocol):
    """A holder of lent bytes that it does not need at this moment."""

    def give_back(self) -> int:
        """Return all lent bytes, as another task needs them; return their number."""
        ...


@final
class MemoryBudget:
    """A number of bytes that is lent out.

    A waiting task must hold nothing, so that two that want more cannot deadlock.

    Invariant: 0 <= used_bytes <= the whole.
    """

    def __init__(self, total_bytes: int) -> None:
        """Lend at most `total_bytes` at a time."""
        self._total_bytes = total_bytes
        self._used_bytes = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()
        self._idle: dict[Holder, None] = {}

    @property
    def used_bytes(self) -> int:
        """Bytes lent out."""
        return self._used_bytes

    @property
    def is_short(self) -> bool:
        """Whether a task waits for bytes."""
        return bool(self._waiting)

    async def acquire(self, count: int) -> None:
        """Acquire `count` bytes, waiting for them if necessary.

        On cancellation, nothing is acquired.
        """
        assert count <= self._total_bytes, f"{count} bytes can never be granted"
        if not self._waiting and self._has_room(count):
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
        """Return `count` bytes to the budget."""
        self._used_bytes -= count
        assert self._used_bytes >= 0
        self._grant()

    def note_idle(self, holder: Holder) -> None:
        """Mark the bytes of `holder` as not needed now."""
        self._idle[holder] = None
        self._grant()

    def note_busy(self, holder: Holder) -> None:
        """Mark the bytes of `holder` as needed; no effect if they were."""
        self._idle.pop(holder, None)

    def _grant(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            count, granted = self._waiting.popleft()
            self._used_bytes += count
            granted.set()

    def _has_room(self, count: int) -> bool:
        """Return whether `count` bytes can be lent, reclaiming from the longest idle if needed."""
        while self._used_bytes + count > self._total_bytes and self._idle:
            holder = next(iter(self._idle))
            del self._idle[holder]
            self._used_bytes -= holder.give_back()
        return self._used_bytes + count <= self._total_bytes
