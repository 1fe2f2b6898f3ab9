"""Servers of peers as processes of this machine: started, watched from outside, and ended.

They are not pinned to cores: JVMs and Erlang use all there are, and everybody has the same two.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep  # noqa: TID251  (processes are looked at from outside)
from types import TracebackType
from typing import Final, Self, final

from bench.machine import cpu_seconds

_START_S_MAX: Final = 300.0
_STOP_S_MAX: Final = 30.0
_LOOK_S: Final = 0.01
_LOG_TAIL: Final = 2_000
"""Characters that are shown of a server that failed."""


def free_ports(count: int) -> list[int]:
    """Return different ports of loopback that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port: int) -> bool:
    """Whether somebody listens."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@final
class Servers:
    """All servers of one system; they end with the `with` block."""

    def __init__(self, directory: Path) -> None:
        """Of none yet; `directory` is for data and logs."""
        self.directory = directory
        self.addresses = ""
        """As the client of the system takes them: `host:port`, separated by commas."""
        self.started_in = 0.0
        """Seconds from the first process until all were ready."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._began = perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a process; what it writes goes into a file beside its data."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self._log(len(self._processes))
        with path.open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Of a session of its own: an interrupt ends the benchmark, which ends the servers.
                start_new_session=True,
            )
        self._processes.append(process)

    def wait_ready(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it says so.

        Raises:
            RuntimeError: A process has ended, or it takes too long.
        """
        until = perf_counter() + _START_S_MAX
        while not is_ready():
            for number, process in enumerate(self._processes):
                if process.poll() is not None:
                    raise RuntimeError(f"a server has ended: {self._tail(number)}")
            if perf_counter() > until:
                raise RuntimeError(f"a server does not answer: {self._tail(0)}")
            sleep(_LOOK_S)
        self.started_in = perf_counter() - self._began

    def wait_ports(self, ports: Sequence[int]) -> None:
        """Wait until somebody listens on all of them, and say that these are the addresses."""
        self.wait_ready(lambda: all(answers(port) for port in ports))
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in ports)

    def stop(self) -> None:
        """End all processes, and whatever they have started."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @property
    def are_alive(self) -> bool:
        """Whether no process has ended."""
        return all(process.poll() is None for process in self._processes)

    @property
    def cpu_seconds(self) -> float:
        """Processor time used so far, user and system, by all of them."""
        return sum(cpu_seconds(process.pid) for process in self._processes)

    @property
    def resident_bytes(self) -> int:
        """Resident memory now, of all of them."""
        return sum(_resident_bytes(process.pid) for process in self._processes)

    @property
    def disk_bytes(self) -> int:
        """What the files of data and logs occupy now."""
        return occupied_bytes(self.directory)

    def _log(self, number: int) -> Path:
        return self.directory / f"server-{number}.log"

    def _tail(self, number: int) -> str:
        return self._log(number).read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]


@dataclass(frozen=True, slots=True)
class Command:
    """How a server is started."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def start_servers(
    directory: Path,
    commands: Sequence[Command],
    ports: Sequence[int],
    *,
    is_ready: Callable[[], bool] = lambda: True,
) -> Servers:
    """Start processes, and wait until somebody listens on all ports, and until they are ready.

    Args:
        directory: For data and logs.
        commands: One for each process.
        ports: Where clients connect.
        is_ready: Asked when all ports answer, again and again: whether servers know each other.

    Raises:
        RuntimeError: One of them does not; none is left.
    """
    servers = Servers(directory)
    try:
        for command in commands:
            servers.start(command.words, environment=command.environment)
        servers.wait_ports(ports)
        servers.wait_ready(is_ready)
    except BaseException:
        servers.stop()
        raise
    return servers


def _resident_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    (line,) = (line for line in text.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def occupied_bytes(directory: Path) -> int:
    """Return what all files below a directory occupy on the disk; holes do not count."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118
            except FileNotFoundError:  # Servers remove files while they are counted.
                continue
    return total
