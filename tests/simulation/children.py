"""Worker processes that end with their parent."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Result = TypeVar("Result")

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends; Linux only."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # The parent has ended meanwhile.


def workers(count: int) -> ProcessPoolExecutor:
    """Return a pool of `count` new processes; keep it in the thread that created it."""
    # Forked children would inherit all threads and locks of a test runner.
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=die_with_parent)


def in_fresh_process(work: Callable[[], Result]) -> Result:
    """Return the result of `work` in a new process."""
    with workers(1) as pool:
        return pool.submit(work).result()
