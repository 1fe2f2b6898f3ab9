"""Ends of programs by signals: the first one stops in order, the second one at once.

Shell: the handlers of signals of the process, only while a program asks for it.
"""

import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Final, final

import trio

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None
_EXIT: Final = 128
"""Exit status of a process that a signal ended, less the number of the signal."""


@final
class StopSignal:
    """The signal that stopped a block of `stop_on_signal`, if one did."""

    def __init__(self) -> None:
        """Start without a signal."""
        self.signal: signal.Signals | None = None
        """The first signal; `None` before."""

    @property
    def status(self) -> int:
        """The exit status for the signal: 143 for SIGTERM, 130 for SIGINT; 0 without one."""
        return 0 if self.signal is None else _EXIT + self.signal


@final
class _Handling:
    """Handlers of signals for one block. Blocks of the same signals form a chain."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self.found = StopSignal()
        self._stop = stop
        self.previous: dict[int, _Handler] = {}
        self.is_over = False

    def begin(self, signals: Iterable[int]) -> None:
        """Handle these signals, except those that the parent process has ignored."""
        for number in signals:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self.previous[number] = signal.signal(number, self.handle)

    def end(self) -> None:
        """Put the handlers back."""
        self.is_over = True
        self._put_back()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Stop the block at its first signal, and the blocks outside of it."""
        self._put_back()
        if not self.is_over:
            self.found.signal = signal.Signals(number)
            self._stop()
        outer = _handling_of(self._before(number))
        if outer is not None:  # Several blocks of a program stop together.
            outer.handle(number, frame)

    def _put_back(self) -> None:
        for number in self.previous:
            if _handling_of(signal.getsignal(number)) is self:
                signal.signal(number, self._before(number))

    def _before(self, number: int) -> "_Handler":
        """Return the handler before this one; those of blocks that have ended do not count."""
        found = self.previous[number]
        while (outer := _handling_of(found)) is not None and outer.is_over:
            found = outer.previous[number]
        return signal.SIG_DFL if found is None else found


def _handling_of(handler: "_Handler") -> _Handling | None:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, _Handling) else None


@contextmanager
def stop_on_signal(
    stop: Callable[[], object], signals: Iterable[int] = _STOPPING
) -> Generator[StopSignal]:
    """Call `stop` at the first SIGTERM or SIGINT (Ctrl-C) while the block runs.

    A second signal acts as without the block: it ends the process at once. Blocks may overlap, and
    one signal stops them all. Afterwards the handlers are as before. Signals that the parent
    process ignores stay ignored, as SIGINT of a shell's background jobs.

        worker = client.queue("payments").worker(handle)
        with tidelog.stop_on_signal(worker.stop) as stopped:
            worker.run()
        sys.exit(stopped.status)  # 143 after SIGTERM

    Args:
        stop: Stops the work of the block, which ends by itself then: `stop` of a worker, or
            `cancel` of a `trio.CancelScope`. In trio, it runs as a callback of the event loop.
            Elsewhere it runs in the handler of the signal, and must be safe there, as `stop` of
            workers is.
        signals: Numbers of the signals.

    Raises:
        RuntimeError: This is not the main thread, to which Python delivers signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "stop_on_signal failed: Python delivers signals to the main thread; call it there, or"
            " call stop() of the worker"
        )
    if trio.lowlevel.in_trio_run():
        stop = partial(trio.lowlevel.current_trio_token().run_sync_soon, stop)
    handling = _Handling(stop)
    try:
        handling.begin(signals)
        yield handling.found
    finally:
        handling.end()
