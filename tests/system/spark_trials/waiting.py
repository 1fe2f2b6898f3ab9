"""Waiting for what other processes do, which share nothing with this one but files."""

import threading
from collections.abc import Callable

WAITED_S = 900.0
"""For what hangs; a busy machine takes thirty times as long as a quiet one."""
_LOOKS_AGAIN_S = 0.02


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: It never was; `what` is said.
    """
    nothing = threading.Event()
    for _ in range(int(WAITED_S / _LOOKS_AGAIN_S)):
        if is_true():
            return
        nothing.wait(_LOOKS_AGAIN_S)
    raise TimeoutError(f"waited in vain for this: {what}")
