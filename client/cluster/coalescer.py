"""Coalesced requests for a piece of work, which runs once for each turn of the event loop.

Shell without tasks: the first request runs it for all.
"""

from collections.abc import Callable
from typing import final

import trio


@final
class Coalescer:
    """Runs a function one turn of the event loop after the first request, once for all requests."""

    def __init__(self, run: Callable[[], None]) -> None:
        """Call `run`, which raises nothing."""
        self._run = run
        self._is_requested = False

    async def request(self) -> None:
        """Return at once if a run is requested already; else run in the next turn of the loop.

        A cancelled request runs it at once: the others rely on it.
        """
        if self._is_requested:
            return
        self._is_requested = True
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._is_requested = False
            self._run()
