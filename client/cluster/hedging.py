"""Several ways to one result, so that one that leads nowhere costs little.

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
    """Return what the first way to succeed returns; the others are cancelled.

    Args:
        ways: Each is tried when the one before it has failed, or has had its head start. There is
            at least one.
        head_start: How long a way is left alone, in seconds.

    Raises:
        ExceptionGroup: All failed; the `TidelogError`s are in the order in which they came.
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
        raise ExceptionGroup("no way led to a result", failures)
    return found[0]
