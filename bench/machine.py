"""The machine: its cores, its processes and their CPU and memory.

Every process is pinned: the measured process has one core for itself, and its load runs on another.
A process inherits its core, so all of its threads run there from the start.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, final

_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = _CORES[0]
LOAD_CORE = _CORES[-1]
ROOT = Path(__file__).resolve().parent.parent

_CPUCLOCK_SCHED = 2
_EXIT_SECONDS_MAX = 120
_VARIABLES = "TIDELOG_"


@final
class ServerProcess:
    """A Python process on the core of servers; ends with the `with` block.

    Its log is lines of JSON; the first line with an `address` means that it is ready.
    """

    def __init__(self, arguments: Sequence[str], **settings: str) -> None:
        """Start `python -m` with these arguments, and settings of tidelog's configuration."""
        # Between these two calls the benchmark itself is on the other core.
        os.sched_setaffinity(0, {SERVER_CORE})
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=_environment(settings),
            text=True,
        )
        os.sched_setaffinity(0, {LOAD_CORE})
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.log: list[str] = []
        """Lines of its log so far."""
        self.address = self._wait_address()
        # A thread must read the pipe, because a full pipe blocks the process.
        self._reader = threading.Thread(target=self.log.extend, args=[self._output])
        self._reader.start()

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
        if exc is not None:
            sys.stderr.writelines(self.log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        self._process.send_signal(number)
        self._process.wait(_EXIT_SECONDS_MAX)
        self._reader.join()
        self._output.close()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def cpu_seconds(self) -> float:
        """Processor time used so far, by all threads, in user space and in the kernel."""
        return cpu_seconds(self._process.pid)

    @property
    def open_files(self) -> int:
        """Number of open file descriptors."""
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())

    @property
    def resident_bytes(self) -> int:
        """Resident memory now."""
        return self._memory("VmRSS")

    def forget_peak(self) -> int:
        """Reset the peak of resident memory; return the present resident memory."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5", encoding="ascii")
        return self.resident_bytes

    @property
    def resident_bytes_peak(self) -> int:
        """Peak of resident memory since the start, or since `forget_peak`."""
        return self._memory("VmHWM")

    def _wait_address(self) -> tuple[str, int]:
        for line in self._output:
            self.log.append(line)
            try:
                event = json.loads(line)
            except ValueError:
                continue
            address = event.get("address")
            if address is not None and event.get("event") != "http_listening":
                host, _, port = address.rpartition(":")
                return host, int(port)
        raise RuntimeError(
            f"a server ended with status {self._process.wait()}: {''.join(self.log)}"
        )

    def _memory(self, name: str) -> int:
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in text.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, all of its threads together."""
    # As clock_getcpuclockid(3) returns it: exact, with the time of ended threads.
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


def broker_process(directory: Path, **settings: str) -> ServerProcess:
    """Start a broker as users start it."""
    arguments = ["--data-dir", str(directory), "--listen", "127.0.0.1:0", "--log-format", "json"]
    return ServerProcess(["tidelog", "serve", *arguments], **settings)


def bare_process() -> ServerProcess:
    """Start the ceiling."""
    return ServerProcess(["bench.bare_server"])


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without settings for another broker."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(_VARIABLES)
    }
    return variables | {f"{_VARIABLES}{name.upper()}": text for name, text in settings.items()}


def describe() -> str:
    """Return one line about this machine and the code that was measured."""
    cpu = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{len(_CORES)} cores ({cpu}), {memory_gib:.0f} GiB of memory, {platform.system()}"
        f" {platform.release()}, {platform.python_implementation()} {platform.python_version()},"
        f" commit {_commit()}"
    )


def _commit() -> str:
    """Return the commit, with a mark if its code was changed since.

    Files of results in the repository do not count as changes.
    """
    head = subprocess.run(
        ["git", "describe", "--always"], capture_output=True, check=False, cwd=ROOT, text=True
    )
    if head.returncode:
        return "unknown"
    changes = subprocess.run(
        ["git", "diff", "--quiet", "HEAD", "--", "*.py", "pyproject.toml"], check=False, cwd=ROOT
    )
    return head.stdout.strip() + ("-dirty" if changes.returncode else "")
