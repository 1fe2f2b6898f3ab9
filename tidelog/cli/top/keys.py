"""Keys of a terminal, without the Enter key."""

import os
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import trio

_READ_MAX: Final = 64


@contextmanager
def keys_of_terminal() -> Generator[int | None, None, None]:
    """Let keys arrive at once while the block runs; give the file descriptor to read them from.

    `None` if standard input is no terminal. Ctrl-C remains a signal.
    """
    if not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def read_keys(descriptor: int, on_key: Callable[[str], None]) -> None:
    """Call `on_key` for each key until cancelled, or until the terminal is closed."""
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        typed = os.read(descriptor, _READ_MAX)
        if not typed:
            return
        for key in typed.decode(errors="replace"):
            on_key(key)
