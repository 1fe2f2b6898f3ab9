"""Ending a command by a signal: in order at the first one, at once at the second."""

import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import final

import trio

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    # Who started us may have had one ignored, as shells do for what runs in the background.
    heeded = [each for each in _ENDING_SIGNALS if signal.getsignal(each) != signal.SIG_IGN]

    async def listen() -> None:
        with trio.open_signal_receiver(*heeded) as signals:
            async for number in signals:
                interruption.signal = signal.Signals(number)
                end()
                break
            for each in heeded:
                signal.signal(each, signal.SIG_DFL)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        yield interruption
        nursery.cancel_scope.cancel()
