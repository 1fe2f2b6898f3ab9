"""A read that may take long, or never end: readers wait for a moment, then take the last value.

Shell: owns the task of one read. So a hung disk or a broker that does not answer delays no page.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, final

import trio

from tidelog.broker.queues.supervisor import surviving

T = TypeVar("T")


@final
class SlowRead(Generic[T]):
    """The last value of a read, of which one runs at a time, however many readers wait."""

    def __init__(
        self,
        nursery: trio.Nursery,
        read: Callable[[], Awaitable[T]],
        *,
        name: str,
        value: T,
        wait_s: float,
    ) -> None:
        """Read in `nursery`, and have `value` before the first read; a reader waits for `wait_s`.

        A read that fails keeps the value, and the log has the error with the `name`.
        """
        self._nursery = nursery
        self._read = read
        self._name = name
        self._wait_s = wait_s
        self._ended: trio.Event | None = None
        """Set when the present read has ended; `None` without one."""
        self.value = value
        self.ended_at = float("-inf")
        """End of the last read, in seconds of trio's clock."""

    @property
    def is_running(self) -> bool:
        """Whether a read is under way."""
        return self._ended is not None

    async def refresh(self) -> None:
        """Read again, or wait for the read under way; a checkpoint."""
        ended = self._ended
        if ended is None:
            ended = self._ended = trio.Event()
            self._nursery.start_soon(self._run, ended)
        with trio.move_on_after(self._wait_s):
            await ended.wait()

    async def _run(self, ended: trio.Event) -> None:
        try:
            with surviving(self._name):
                self.value = await self._read()
        finally:
            self._ended, self.ended_at = None, trio.current_time()
            ended.set()
