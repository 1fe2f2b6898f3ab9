"""`tidelog serve` with a wall clock that jumps ahead on SIGUSR1, and back on SIGUSR2.

    python -m tests.system.integration.jumping_clock SECONDS serve ...

Only the wall clock of this process is changed, and no code of tidelog.
"""

import signal
import sys
import time
from types import FrameType

from tidelog.cli.main import main

_read_clock = time.time_ns
_ahead_ns = 0


def jump_by(seconds: int) -> None:
    """Change the wall clock of this process on signals."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        global _ahead_ns  # noqa: PLW0603  (the clock of a process is global)
        del frame
        _ahead_ns = seconds * 10**9 if number == signal.SIGUSR1 else 0

    time.time_ns = lambda: _read_clock() + _ahead_ns
    signal.signal(signal.SIGUSR1, on_signal)
    signal.signal(signal.SIGUSR2, on_signal)


def jumping(seconds: int) -> list[str]:
    """Return the command for a broker whose clock jumps by so much."""
    return [sys.executable, "-m", "tests.system.integration.jumping_clock", str(seconds)]


if __name__ == "__main__":
    jump_by(int(sys.argv.pop(1)))
    main()
