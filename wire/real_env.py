"""The real world: the operating system's clock, network, entropy and threads.

Shell: the only module below the command line that reads a clock or entropy.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar, final

import trio

from wire.env import Env
from wire.tcp import TcpNetwork

Result = TypeVar("Result")

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

    def now_ms(self) -> int:
        """Return Unix time in milliseconds."""
        return time.time_ns() // 1_000_000


async def run_in_thread(
    work: Callable[[], Result], limiter: trio.CapacityLimiter | None = None
) -> Result:
    """Run `work` in a thread; see `wire.env.Offload`.

    There are as many at a time as `limiter` says, by default that of trio.

    As `trio.to_thread.run_sync` does it, which also names the thread, carries context variables
    over, and lets the loop turn once more before it begins. A sync of a fast disk takes less time
    than all that.
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
        result: Result = await trio.lowlevel.wait_task_rescheduled(_not_cancellable)
        return result
    finally:
        limiter.release_on_behalf_of(borrower)


def _not_cancellable(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


def log_event(event: str, **fields: object) -> None:
    """Write a semantic event to the log; see `wire.env.Probe`.

    The field `severity` chooses the level and is not shown: `debug`, `info` (the default),
    `warning` or `error`.
    """
    level = _LEVELS.get(str(fields.pop("severity", "info")), logging.ERROR)
    if _log.isEnabledFor(level):
        _log.log(level, event, extra={"fields": fields})


def never(site: str) -> bool:
    """Return `False`; see `wire.env.Buggify`."""
    del site
    return False


def real_env() -> Env:
    """Return the world as it is."""
    return Env(
        clock=RealClock(),
        network=TcpNetwork(),
        # Keys of receipts are drawn from it, too: nobody may guess them from names that he sees.
        random=random.SystemRandom(),
        offload=run_in_thread,
        probe=log_event,
        buggify=never,
    )
