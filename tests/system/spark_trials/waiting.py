"""Polling for the state of other processes, which share only files with this one."""

import threading
from collections.abc import Callable

WAITED_S = 900.0
"""Maximum seconds for a hang; a busy machine takes thirty times as long as a quiet one."""
_LOOKS_AGAIN_S = 0.02


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It never held; the message has `what`.
    """
    nothing = threading.Event()
    for _ in range(int(WAITED_S / _LOOKS_AGAIN_S)):
        if is_true():
            return
        nothing.wait(_LOOKS_AGAIN_S)
    raise TimeoutError(f"timed out waiting for: {what}")
