"""Worker processes that do not outlive who started them."""

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
    """Have the kernel end this process with its parent, however that ends; Linux only."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # It has ended meanwhile.


def workers(count: int) -> ProcessPoolExecutor:
    """Return a pool of so many new processes; leave it in the thread that has made it."""
    # Forked children would inherit whatever threads and locks a test runner has.
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=die_with_parent)


def in_fresh_process(work: Callable[[], Result]) -> Result:
    """Return what `work` returns in a process that has done nothing else."""
    with workers(1) as pool:
        return pool.submit(work).result()
