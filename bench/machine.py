"""The machine: its cores, its processes and what they use.

Every process is pinned: what is measured runs on one core and has it for itself, what loads it
runs on another. A process inherits its core, so no thread of it ever ran elsewhere.
"""

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, final

_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = _CORES[0]
LOAD_CORE = _CORES[-1]
ROOT = Path(__file__).resolve().parent.parent

_CPUCLOCK_SCHED = 2
_EXIT_SECONDS_MAX = 120


@final
class ServerProcess:
    """A Python process on the core of servers; ends with the `with` block.

    It says on its first line of output where it listens.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        """Start `python -m` with these arguments."""
        # Between these two calls the benchmark itself is on the other core.
        os.sched_setaffinity(0, {SERVER_CORE})
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, cwd=ROOT, text=True
        )
        os.sched_setaffinity(0, {LOAD_CORE})
        assert self._process.stdout is not None
        self._output = self._process.stdout
        line = self._output.readline()
        if not line:
            raise RuntimeError(f"{arguments[0]} ended with status {self._process.wait()}")
        host, _, port = line.strip().rpartition(":")
        self.address = (host, int(port))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.stop(signal.SIGTERM if exc is None else signal.SIGKILL)
        self._output.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        self._process.send_signal(number)
        self._process.wait(_EXIT_SECONDS_MAX)

    @property
    def cpu_seconds(self) -> float:
        """Processor time used so far, by all threads, in user space and in the kernel."""
        # What clock_getcpuclockid(3) returns: exact, and it counts threads that ended.
        return time.clock_gettime(~self._process.pid << 3 | _CPUCLOCK_SCHED)

    @property
    def resident_bytes(self) -> int:
        """Resident memory now."""
        return self._memory("VmRSS")

    @property
    def resident_bytes_peak(self) -> int:
        """The most resident memory there ever was."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in text.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024


def describe() -> str:
    """Return one line about this machine and the code that was measured."""
    cpu = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
    ).stdout.strip()
    return (
        f"{len(_CORES)} cores ({cpu}), {memory_gib:.0f} GiB of memory, {platform.system()}"
        f" {platform.release()}, {platform.python_implementation()} {platform.python_version()},"
        f" commit {commit or 'unknown'}"
    )
