"""Something that is done once for all who want it in one turn of the loop.

Shell without tasks: who is the first to want it does it for all.
"""

from collections.abc import Callable
from typing import final

import trio


@final
class OnceATurn:
    """Has something done when the loop has gone round once, however many want it until then."""

    def __init__(self, do: Callable[[], None]) -> None:
        """Call `do`, which raises nothing."""
        self._do = do
        self._is_due = False

    async def want(self) -> None:
        """Return at once if somebody wants it already; else do it in the next turn of the loop.

        If cancelled, it is done at once: the others rely on it.
        """
        if self._is_due:
            return
        self._is_due = True
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._is_due = False
            self._do()
