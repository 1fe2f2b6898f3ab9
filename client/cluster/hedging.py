"""Hedged calls: several ways to one result, so that a slow way costs little.

Shell: runs each way in a task.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from tidelog.wire.errors import TidelogError

Result = TypeVar("Result")


async def first_success(
    ways: Iterable[Callable[[], Awaitable[Result]]], *, head_start: float
) -> Result:
    """Return the result of the first way to succeed; cancel the others.

    Args:
        ways: Each starts when the one before it has failed, or has had its head start. There is
            at least one.
        head_start: Seconds before the next way starts too.

    Raises:
        ExceptionGroup: All ways failed; the `TidelogError`s are in the order of the failures.
    """
    found: list[Result] = []
    failures: list[TidelogError] = []
    async with trio.open_nursery() as nursery:

        async def go(way: Callable[[], Awaitable[Result]], has_failed: trio.Event) -> None:
            try:
                found.append(await way())
            except TidelogError as error:
                failures.append(error)
                has_failed.set()
            else:
                nursery.cancel_scope.cancel()

        for way in ways:
            has_failed = trio.Event()
            nursery.start_soon(go, way, has_failed)
            with trio.move_on_after(head_start):
                await has_failed.wait()
    if not found:
        raise ExceptionGroup("all attempts failed", failures)
    return found[0]
