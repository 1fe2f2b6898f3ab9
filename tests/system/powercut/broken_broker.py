"""`tidelog serve` on an operating system that breaks a promise: the controls of the experiments.

    python -m tests.system.powercut.broken_broker WHAT serve ...

Only this process is changed, and no code of tidelog. A defect that an experiment misses here,
it would miss in tidelog either.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tidelog.cli.main import main

_sync = os.fdatasync


def _lose_syncs_of_records() -> None:
    """Sync all files except segments, so that topics exist after a power cut."""

    def sync_all_but_records(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not ("topics" in path.parts and path.suffix == ".log"):
            _sync(descriptor)

    os.fdatasync = sync_all_but_records  # type: ignore[assignment]  # of descriptors only


def _keep_the_page_cache() -> None:
    """Never drop a file's page cache."""

    def keep(descriptor: int, offset: int, length: int, advice: int, /) -> None:
        del descriptor, offset, length, advice

    os.posix_fadvise = keep


BREAKS: dict[str, Callable[[], None]] = {
    "no-sync": _lose_syncs_of_records,
    "no-drop": _keep_the_page_cache,
}


def broken(what: str) -> list[str]:
    """Return the command for a broker with a broken `what`."""
    assert what in BREAKS
    return [sys.executable, "-m", "tests.system.powercut.broken_broker", what]


if __name__ == "__main__":
    BREAKS[sys.argv.pop(1)]()
    main()
