"""Memory budget for the requests of all connections together.

Shell: parks tasks until there is room. Bytes are lent as a frame arrives, so a holder may wait for
more while it keeps what it has. A reserve prevents the deadlock of holders that all wait: one
holder at a time may use it, until its frame is complete.
"""

from typing import Protocol, final

import trio


class Holder(Protocol):
    """A holder of lent bytes."""

    @property
    def share_key(self) -> str:
        """Name of the share that the bytes count for: that of the holder's principal."""
        ...

    def shrink(self) -> None:
        """Free the memory for which bytes were lent; they are not lent any more."""
        ...

    def give_way(self) -> None:
        """Hear that a holder of another share waits: what waits for a quota must not keep bytes."""
        ...


@final
class _Waiting:
    """A holder that waits for bytes."""

    def __init__(self, holder: Holder, count: int, missing_bytes: int) -> None:
        self.holder = holder
        self.count = count
        self.missing_bytes = missing_bytes
        self.granted = trio.Event()


@final
class MemoryBudget:
    """A number of bytes that is lent out.

    Requests are granted in their order, but while holders of several principals wait, those of one
    that has more than half of the bytes come last. When there is no room, the holder whose frame
    misses the fewest bytes gets the reserve: it returns its bytes soonest.

    Invariant: the holders without the reserve have at most `total_bytes - largest_bytes`.
    """

    def __init__(self, total_bytes: int, *, largest_bytes: int) -> None:
        """Lend at most `total_bytes` at a time, and at most `largest_bytes` to one holder."""
        assert total_bytes > largest_bytes, "the reserve holds one frame"
        self._largest_bytes = largest_bytes
        self._pool_bytes = total_bytes - largest_bytes
        self._used_bytes = 0
        """Bytes lent from the pool."""
        self._lent: dict[Holder, int] = {}
        self._owner: Holder | None = None
        """The holder with the reserve."""
        self._waiting: dict[_Waiting, None] = {}
        self._idle: dict[Holder, None] = {}

    @property
    def limit_bytes(self) -> int:
        """Maximum of `used_bytes`."""
        return self._pool_bytes + self._largest_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes lent out."""
        return sum(self._lent.values())

    @property
    def is_short(self) -> bool:
        """Whether a task waits for bytes, or one uses the reserve."""
        return bool(self._waiting) or self._owner is not None

    def lent_bytes(self, holder: Holder) -> int:
        """Return the number of bytes that a holder has."""
        return self._lent.get(holder, 0)

    def is_wanted(self, holder: Holder) -> bool:
        """Return whether a holder has bytes while one of another share waits for some."""
        key = holder.share_key
        return holder in self._lent and any(
            entry.holder.share_key != key for entry in self._waiting
        )

    async def acquire(self, holder: Holder, total: int, *, missing_bytes: int) -> None:
        """Raise the bytes of a holder to `total`, waiting for them if necessary.

        On cancellation, the holder keeps what it was lent so far.

        Args:
            holder: Gets the bytes; another call for it must not be under way.
            total: Bytes that it has afterwards.
            missing_bytes: Known number of bytes until its frame is complete.
        """
        assert total <= self._largest_bytes, f"{total} bytes can never be granted"
        count = total - self.lent_bytes(holder)
        if holder is self._owner:
            self._lent[holder] = total
            return
        if not self._waiting and self._has_room(count):
            self._lend(holder, count)
            return
        entry = _Waiting(holder, count, missing_bytes)
        self._waiting[entry] = None
        self._grant()
        if not entry.granted.is_set():
            for other in [each for each in self._lent if each.share_key != holder.share_key]:
                other.give_way()
        try:
            await entry.granted.wait()
        finally:
            self._waiting.pop(entry, None)
            if not entry.granted.is_set():
                self._grant()

    def release(self, holder: Holder) -> None:
        """Return all bytes of a holder."""
        self._take_back(holder)
        self._grant()

    def note_idle(self, holder: Holder) -> None:
        """Mark the bytes of `holder` as not needed now."""
        if holder in self._lent:
            self._idle[holder] = None
            self._grant()

    def note_busy(self, holder: Holder) -> None:
        """Mark the bytes of `holder` as needed; no effect if they were."""
        self._idle.pop(holder, None)

    def _grant(self) -> None:
        while self._waiting:
            first = self._next_waiting()
            if self._has_room(first.count):
                self._lend(first.holder, first.count)
            elif self._owner is None:
                first = min(self._waiting, key=lambda entry: entry.missing_bytes)
                self._give_reserve(first.holder, first.count)
            else:
                return
            del self._waiting[first]
            first.granted.set()

    def _next_waiting(self) -> _Waiting:
        """Return the waiting holder whose turn it is."""
        keys = {entry.holder.share_key for entry in self._waiting}
        first = next(iter(self._waiting))
        if len(keys) == 1:
            return first
        shares = dict.fromkeys(keys, 0)
        for holder, count in self._lent.items():
            if holder.share_key in shares:
                shares[holder.share_key] += count
        for entry in self._waiting:
            if shares[entry.holder.share_key] <= self._pool_bytes // 2:
                return entry
        return first

    def _lend(self, holder: Holder, count: int) -> None:
        self._lent[holder] = self.lent_bytes(holder) + count
        self._used_bytes += count

    def _give_reserve(self, holder: Holder, count: int) -> None:
        """Move what a holder has to the reserve, and more."""
        self._owner = holder
        self._used_bytes -= self.lent_bytes(holder)
        self._lent[holder] = self.lent_bytes(holder) + count

    def _take_back(self, holder: Holder) -> None:
        count = self._lent.pop(holder, 0)
        self._idle.pop(holder, None)
        if holder is self._owner:
            self._owner = None
        else:
            self._used_bytes -= count

    def _has_room(self, count: int) -> bool:
        """Return whether `count` bytes can be lent, reclaiming from the longest idle if needed."""
        while self._used_bytes + count > self._pool_bytes and self._idle:
            holder = next(iter(self._idle))
            holder.shrink()
            self._take_back(holder)
        return self._used_bytes + count <= self._pool_bytes
