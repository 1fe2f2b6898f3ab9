"""Work in steps: a long request lets other tasks run between two of them.

Shell: the driver awaits, the work does not.
"""

from collections.abc import Iterator

import trio

Steps = Iterator[None]
"""The rest of the work on a request. The connection takes the next step when other tasks have run,
and its next request after the last step."""


async def finish(steps: Steps) -> None:
    """Take all steps, letting other tasks run after each.

    Cancellation leaves the rest of the steps undone.
    """
    for _ in steps:
        await trio.lowlevel.checkpoint()
