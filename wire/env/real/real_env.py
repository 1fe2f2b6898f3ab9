"""The production environment: the operating system's clock, network, entropy and threads.

Shell: the only module below the command line that reads a clock or entropy.
"""

import logging
import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final, TypeVar, final

import trio

from tidelog.wire.env.env import Buggify, Env
from tidelog.wire.env.real.process_usage import process_usage
from tidelog.wire.env.real.tcp import TcpNetwork

Result = TypeVar("Result")

_BRIEF_S: Final = 0.0005
"""About the time of a thread's wake-up and its answer, if both are cold."""
_LATELY: Final = 8
"""Number of recent calls in the moving average of the duration."""
_DISTRUST_S: Final = 0.1
_DISTRUST_MAX_S: Final = 60.0
"""Longest time without trust: a slow disk blocks the loop for a few syncs only so often.
A disk that was fast for so long counts as fast again."""

_log = logging.getLogger("tidelog.event")
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


@final
class RealClock:
    """The operating system's wall clock."""

    ahead_ms: ClassVar[int] = 0
    """Milliseconds by which all clocks of this process are ahead; only `tidelog.testing` sets it.
    Brokers and clients of a test must agree on the time."""

    def now_ms(self) -> int:
        """Return Unix time in milliseconds."""
        return time.time_ns() // 1_000_000 + self.ahead_ms


async def run_in_thread(
    work: Callable[[], Result],
    limiter: trio.CapacityLimiter | None = None,
    *,
    interrupt: Callable[[], None] | None = None,
) -> Result:
    """Run `work` in a thread; see `wire.env.env.ThreadPool`.

    `limiter` bounds the number of threads; the default is trio's limiter. If cancelled, this waits
    for the end of `work`, which `interrupt` may bring about.

    `trio.to_thread.run_sync` also names the thread, copies context variables, and takes one more
    turn of the loop before it begins. A sync of a fast disk takes less time than all that.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    limiter = limiter or trio.to_thread.current_default_thread_limiter()
    borrower = object()
    try:
        limiter.acquire_on_behalf_of_nowait(borrower)
    except trio.WouldBlock:
        await limiter.acquire_on_behalf_of(borrower)
    try:
        task = trio.lowlevel.current_task()
        token = trio.lowlevel.current_trio_token()
        trio.lowlevel.start_thread_soon(
            work, lambda outcome: token.run_sync_soon(trio.lowlevel.reschedule, task, outcome)
        )
        on_cancel = _not_cancellable if interrupt is None else partial(_interrupted, interrupt)
        result: Result = await trio.lowlevel.wait_task_rescheduled(on_cancel)
        return result
    finally:
        limiter.release_on_behalf_of(borrower)


@final
class AdaptiveThreadPool:
    """Thread pool that runs brief work in the event loop.

    See decision 0022. The pool measures brief work. If the recent average is too long, brief work
    goes to threads for a while, and for twice as long if that happens again soon.
    """

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        """Trust that brief work is brief; `now_s` returns seconds."""
        self._now_s = now_s
        self._usual_s = 0.0
        """Moving average of the duration of brief work in the loop."""
        self._trusted_from_s = -math.inf
        """Time from which brief work may run in the loop again."""
        self._distrust_s = _DISTRUST_S

    async def __call__(self, work: Callable[[], Result], *, is_brief: bool = False) -> Result:
        """See `wire.env.env.ThreadPool`."""
        began_s = self._now_s()
        if not is_brief or began_s < self._trusted_from_s:
            return await run_in_thread(work)
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return work()
        finally:
            self._note(began_s, self._now_s())

    def _note(self, began_s: float, ended_s: float) -> None:
        self._usual_s += (ended_s - began_s - self._usual_s) / _LATELY
        if self._usual_s > _BRIEF_S:
            is_again = ended_s - self._trusted_from_s < _DISTRUST_MAX_S
            longer_s = min(2 * self._distrust_s, _DISTRUST_MAX_S)
            self._distrust_s = longer_s if is_again else _DISTRUST_S
            self._usual_s = 0.0
            self._trusted_from_s = ended_s + self._distrust_s


def _not_cancellable(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


def _interrupted(interrupt: Callable[[], None], _: object) -> trio.lowlevel.Abort:
    interrupt()
    return trio.lowlevel.Abort.FAILED


def log_event(event: str, **fields: object) -> None:
    """Write a semantic event to the log; see `wire.env.env.Probe`.

    The field `severity` chooses the level and is not shown: `debug`, `info` (the default),
    `warning` or `error`. The message has the name and the fields, for any format of an application;
    they are the attributes `event` and `fields` of the record as well.
    """
    level = _LEVELS.get(str(fields.pop("severity", "info")), logging.ERROR)
    if _log.isEnabledFor(level):
        extra = {"event": event, "fields": fields}
        if fields:
            # Events of one name have one message, as logging has it: their values are arguments.
            names = " ".join(f"{name}=%({name})s" for name in fields)
            _log.log(level, f"{event.replace('%', '%%')} {names}", fields, extra=extra)
        else:
            _log.log(level, event, extra=extra)


never: Final[Buggify] = frozenset[str]().__contains__
"""Returns `False`; see `wire.env.env.Buggify`. Not a Python function: each request asks."""


def real_env() -> Env:
    """Return the environment of the operating system."""
    return Env(
        clock=RealClock(),
        network=TcpNetwork(),
        # It also draws the keys of receipt handles: clients must not be able to guess them.
        random=random.SystemRandom(),
        run_in_thread=AdaptiveThreadPool(),
        probe=log_event,
        buggify=never,
        process_usage=process_usage,
    )
