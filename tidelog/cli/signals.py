"""Signal handling: the first signal ends a command in order, the second at once."""

import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import final

import trio


@final
class Interruption:
    """The signal that asked this process to end, if any."""

    def __init__(self) -> None:
        """Start with no signal."""
        self.signal: signal.Signals | None = None

    @property
    def status(self) -> int:
        """The exit status for the signal; 0 without one."""
        return 0 if self.signal is None else 128 + self.signal


@asynccontextmanager
async def on_signal(end: Callable[[], None]) -> AsyncGenerator[Interruption, None]:
    """Call `end` at the first SIGTERM or SIGINT; the second one kills the process."""
    interruption = Interruption()
    heeded = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        heeded.append(signal.SIGINT)  # Shells ignore SIGINT for background jobs.

    async def listen(signals: AsyncIterator[int]) -> None:
        interruption.signal = signal.Signals(await anext(signals))
        end()
        for each in heeded:
            signal.signal(each, signal.SIG_DFL)

    with trio.open_signal_receiver(*heeded) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, signals)
            yield interruption
            nursery.cancel_scope.cancel()
