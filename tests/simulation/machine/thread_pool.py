"""Threads of a simulated process in virtual time, with the delays of a disk.

Work runs a piece at a time (`tests.simulation.machine.blocking_call`): every disk call that can
block takes time, and the rest of the world continues meanwhile. So appends arrive while a sync is
in progress, and a crash may come between a rename and the sync of its directory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar, final

import outcome
import trio

from tests.simulation.machine.blocking_call import BlockingCall, Threads, current_blocking_call
from tests.simulation.machine.clock import TICK_S, SimulatedClock

Result = TypeVar("Result")

_THREADS_MAX = 40
"""Maximum concurrent threads; trio's default."""
_START_MEAN_S = 0.00005
_HOLDS_UP_THE_LOOP = 0.5
"""Fraction of brief work that runs at once, in the loop, while the disk does not stall."""

_STALL_STEP_S = 0.05
"""Seconds until a call notices that a stall ended early, or was extended."""

_READS_THAT_BLOCK = 0.1

_BLOCKING = {"sync", "sync_directory"}
_READING = {"open", "read_at", "list_directory"}
_CHANGING = {"create", "write_at", "truncate", "make_directory", "rename", "remove"}


@dataclass(slots=True, kw_only=True)
class DiskSpeed:
    """Durations of disk calls of threads; may be changed at any time."""

    sync_mean_s: float = 0.002
    """Mean duration of syncs of files and directories, in seconds."""
    read_mean_s: float = 0.0001
    change_mean_s: float = 0.00003
    """Mean duration of changes, which go to the page cache, in seconds."""
    stalled_until: float = 0.0
    """Simulated time before which no call ends."""

    def mean_s(self, operation: str) -> float:
        """Return the mean duration of an operation, 0 if it never blocks."""
        if operation in _BLOCKING:
            return self.sync_mean_s
        if operation in _READING:
            return self.read_mean_s
        return self.change_mean_s if operation in _CHANGING else 0.0


def block_for_disk(
    clock: SimulatedClock, speed: DiskSpeed, random: Random, *, operation: str
) -> None:
    """Block the calling thread for the duration of its disk call.

    Calls from the loop are not delayed, because the page cache serves them at once.
    """
    call = current_blocking_call()
    mean_s = speed.mean_s(operation)
    if call is None or not mean_s:
        return
    is_stalled = speed.stalled_until > clock.now
    if operation in _READING and not is_stalled:
        # Reads are many, and their exact time has no effect. So most take no time, and some take
        # the time of all, because thread switches are the main cost of a simulation.
        if random.random() >= _READS_THAT_BLOCK:
            return
        mean_s /= _READS_THAT_BLOCK
    while (stall_s := speed.stalled_until - clock.now) > 0:
        call.block(min(stall_s, _STALL_STEP_S) + TICK_S)
    call.block(random.expovariate(1 / mean_s))


@final
class SimulatedThreadPool:
    """Runs work in threads; see `wire.env.env.ThreadPool`.

    Invariant: every piece of work that is under way has an event due, or waits in `_stopped`.
    """

    def __init__(
        self, clock: SimulatedClock, threads: Threads, random: Random, *, speed: DiskSpeed
    ) -> None:
        """Use `threads`; `random` sets their start delay, `speed` has the stalls of the disk."""
        self._speed = speed
        self._clock = clock
        self._threads = threads
        self._random = random
        self._limiter = trio.CapacityLimiter(_THREADS_MAX)
        self._under_way: dict[BlockingCall, trio.lowlevel.Task] = {}
        self._is_stopped = False
        self._stopped: list[BlockingCall] = []
        self._end_error: BaseException | None = None

    async def __call__(self, work: Callable[[], Result], *, is_brief: bool = False) -> Result:
        """See `wire.env.env.ThreadPool`."""
        is_stalled = self._speed.stalled_until > self._clock.now
        if is_brief and not is_stalled and self._random.random() < _HOLDS_UP_THE_LOOP:
            self._check_alive()
            return work()
        async with self._limiter:
            self._check_alive()
            call = BlockingCall(self._threads, work)
            self._under_way[call] = trio.lowlevel.current_task()
            self._go_on_after(self._random.expovariate(1 / _START_MEAN_S), call)
            result: Result = await trio.lowlevel.wait_task_rescheduled(_not_now)
            return result

    def stop(self) -> None:
        """Stop all work."""
        self._is_stopped = True

    def go_on(self) -> None:
        """Resume the work that waited since `stop`."""
        self._is_stopped = False
        stopped, self._stopped = self._stopped, []
        for call in stopped:
            self._go_on_after(0.0, call)

    def end(self, error: BaseException) -> None:
        """Raise `error` in all work and in the tasks that wait for it: the process is dead."""
        self._end_error = error
        for call in list(self._under_way):
            call.end(error)
            task = self._under_way.pop(call)
            trio.lowlevel.reschedule(task, outcome.Error(error))

    def _check_alive(self) -> None:
        if self._end_error is not None:
            raise self._end_error

    def _go_on_after(self, delay: float, call: BlockingCall) -> None:
        self._clock.call_later(delay, lambda: self._go_on(call))

    def _go_on(self, call: BlockingCall) -> None:
        if call not in self._under_way:
            return
        if self._is_stopped:
            self._stopped.append(call)
            return
        delay = call.go_on()
        if delay is not None:
            self._go_on_after(delay, call)
        else:
            assert call.outcome is not None
            trio.lowlevel.reschedule(self._under_way.pop(call), call.outcome)


def _not_now(_: Any) -> trio.lowlevel.Abort:  # noqa: ANN401  (trio's type for it)
    return trio.lowlevel.Abort.FAILED
