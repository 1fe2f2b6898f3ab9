"""Ending a command by a signal: in order at the first one, at once at the second."""

import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import final

import trio


@final
class Interruption:
    """Whether a signal asked this process to end."""

    def __init__(self) -> None:
        """Start with no signal."""
        self.signal: signal.Signals | None = None

    @property
    def status(self) -> int:
        """The exit status that says so; 0 while there was no signal."""
        return 0 if self.signal is None else 128 + self.signal


@asynccontextmanager
async def on_signal(end: Callable[[], None]) -> AsyncGenerator[Interruption, None]:
    """Call `end` when a signal asks this process to end; a second one kills it at once."""
    interruption = Interruption()
    heeded = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        heeded.append(signal.SIGINT)  # Shells ignore it for what they run in the background.

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
