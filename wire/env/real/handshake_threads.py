"""Threads for the arithmetic of handshakes, in which sites take turns.

Shell: owns the queues. A step of a handshake is a millisecond of arithmetic for a client that has
proved nothing, and costs the client that repeats its first bytes none.
"""

from collections.abc import Callable
from typing import Final, final

import trio

from tidelog.wire.env.real.real_env import run_in_thread
from tidelog.wire.env.sites import site_of

_THREADS: Final = 2
"""Steps of handshakes at a time: others wait, and the loop serves requests meanwhile."""


@final
class _Site:
    """The steps of one site; so many of them at most wait in the queue of all sites."""

    def __init__(self) -> None:
        self.limiter = trio.CapacityLimiter(_THREADS)
        self.step_count = 0


@final
class HandshakeThreads:
    """Runs steps of handshakes. A site with many of them keeps out no other."""

    def __init__(self) -> None:
        """Begin without steps."""
        self._threads = trio.CapacityLimiter(_THREADS)
        self._sites: dict[str, _Site] = {}

    def __len__(self) -> int:
        """Return the number of sites with steps."""
        return len(self._sites)

    async def run(self, step: Callable[[], None], peer: str) -> None:
        """Run a step in a thread, for the client at a `HOST:PORT`."""
        name = site_of(peer.rpartition(":")[0])
        site = self._sites.setdefault(name, _Site())
        site.step_count += 1
        try:
            async with site.limiter:
                await run_in_thread(step, self._threads)
        finally:
            site.step_count -= 1
            if not site.step_count:
                del self._sites[name]
