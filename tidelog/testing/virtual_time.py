"""Virtual time of a process: real time, and the time that `advance` has added.

Shell: owns the offset of all clocks of this process. Brokers of `tidelog.testing` run on
`VirtualClock`. Wall clocks of brokers and clients are ahead by the same amount.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar, final

import trio

from tidelog.wire.env.env import ThreadPool
from tidelog.wire.env.real.real_env import RealClock

Result = TypeVar("Result")

TICK_MS: Final = 1_000
"""Interval of the maintenance of brokers in tests."""
_LAST_TICKS: Final = 2
"""Retention takes two rounds of the maintenance: one seals a segment, the next one deletes it."""
_QUIET_S: Final = 0.001
"""Real time without an event after which a broker counts as idle."""
_SETTLE_MAX_S: Final = 0.5
"""Maximum time of `settle`, while clients keep a broker busy."""


@final
class VirtualClock(trio.abc.Clock):
    """The monotonic clock of trio, ahead by as much as the wall clocks of this process."""

    def start_clock(self) -> None:
        """See `trio.abc.Clock`."""

    def current_time(self) -> float:
        """See `trio.abc.Clock`."""
        return time.perf_counter() + RealClock.ahead_ms / 1000

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """See `trio.abc.Clock`."""
        return deadline - self.current_time()


@final
class CountingThreadPool:
    """Thread pool that knows whether work is under way; see `wire.env.env.ThreadPool`."""

    def __init__(self, pool: ThreadPool) -> None:
        """Run the work in `pool`."""
        self._pool = pool
        self._running_count = 0
        self._idle = trio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether no work is under way."""
        return not self._running_count

    async def __call__(self, work: Callable[[], Result], *, is_brief: bool = False) -> Result:
        """See `wire.env.env.ThreadPool`."""
        self._running_count += 1
        try:
            return await self._pool(work, is_brief=is_brief)
        finally:
            self._running_count -= 1
            if self.is_idle:
                self._idle.set()
                self._idle = trio.Event()

    async def wait_idle(self) -> None:
        """Wait until no work is under way."""
        while not self.is_idle:
            await self._idle.wait()


async def settle(pool: CountingThreadPool) -> None:
    """Wait until all tasks of this loop wait and `pool` is idle; for half a second at most."""
    from trio.testing import wait_all_tasks_blocked  # noqa: PLC0415  (few tests need it)

    with trio.move_on_after(_SETTLE_MAX_S):
        await wait_all_tasks_blocked(_QUIET_S)
        while not pool.is_idle:
            await pool.wait_idle()
            await wait_all_tasks_blocked(_QUIET_S)


def steps_of(total_ms: int) -> Iterator[int]:
    """Yield the steps of an advance: one jump, and ticks at its end.

    Work that is due after the jump may need further rounds of periodic tasks. More steps would end
    the sessions of group members: each counts as up to 5 s of their session timeout.
    """
    tick_count = min(_LAST_TICKS, max(0, total_ms - 1) // TICK_MS)
    yield total_ms - tick_count * TICK_MS
    yield from [TICK_MS] * tick_count
