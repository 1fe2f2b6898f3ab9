"""Resources of this process, as Linux tells them."""

import os
import resource
import time
from contextlib import suppress

from tidelog.wire.env.env import ProcessUsage

_STARTED_AT_S = time.time()
_STATM = "/proc/self/statm"
_FILES = "/proc/self/fd"


def process_usage() -> ProcessUsage:
    """Return the present usage: some microseconds for each open file."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resident_bytes = open_files = 0
    with suppress(OSError):  # Other systems have no such files.
        with open(_STATM, encoding="ascii") as statm:  # noqa: PTH123  (a hot path of scrapes)
            resident_bytes = int(statm.read().split()[1]) * resource.getpagesize()
        open_files = len(os.listdir(_FILES))  # noqa: PTH208
    return ProcessUsage(
        usage.ru_utime + usage.ru_stime,
        resident_bytes,
        open_files,
        max(0, soft_limit),
        _STARTED_AT_S,
    )
