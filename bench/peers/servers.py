"""Server processes of peers on this machine: start, observation and stop.

They are not pinned to cores: JVMs and Erlang use all cores, and all systems have the same two.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep  # noqa: TID251  (processes are observed from outside)
from types import TracebackType
from typing import Final, Self, final

from bench.machine import cpu_seconds

_START_S_MAX: Final = 300.0
_STOP_S_MAX: Final = 30.0
_LOOK_S: Final = 0.01
_LOG_TAIL: Final = 2_000
"""Characters of a failed server's log to show."""


def free_ports(count: int) -> list[int]:
    """Return different unused ports of the loopback interface."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port: int) -> bool:
    """Return whether a process listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@final
class Servers:
    """Servers of one system, which stop at the end of the `with` block."""

    def __init__(self, directory: Path) -> None:
        """Create an empty set of servers; `directory` is for data and logs."""
        self.directory = directory
        self.addresses = ""
        """Addresses for the client of the system: `host:port`, separated by commas."""
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
        """Start a process with its output in a file beside its data."""
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
                # In a new session: an interrupt stops the benchmark, which stops the servers.
                start_new_session=True,
            )
        self._processes.append(process)

    def wait_ready(self, is_ready: Callable[[], bool]) -> None:
        """Wait until `is_ready` returns true.

        Raises:
            RuntimeError: A process has ended, or the time limit is exceeded.
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
        """Wait until servers listen on all ports, and set these as the addresses."""
        self.wait_ready(lambda: all(answers(port) for port in ports))
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in ports)

    def stop(self) -> None:
        """Stop all processes and their children."""
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
        """CPU seconds of all servers, user and system."""
        return sum(self.cpu_seconds_each)

    @property
    def cpu_seconds_each(self) -> list[float]:
        """CPU seconds of each server, in the order of their starts."""
        return [cpu_seconds(process.pid) for process in self._processes]

    @property
    def resident_bytes(self) -> int:
        """Resident memory of all servers."""
        return sum(_resident_bytes(process.pid) for process in self._processes)

    @property
    def disk_bytes(self) -> int:
        """Bytes of the files of data and logs."""
        return occupied_bytes(self.directory)

    def _log(self, number: int) -> Path:
        return self.directory / f"server-{number}.log"

    def _tail(self, number: int) -> str:
        return self._log(number).read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]


@dataclass(frozen=True, slots=True)
class Command:
    """Command that starts a server."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def start_servers(
    directory: Path,
    commands: Sequence[Command],
    ports: Sequence[int],
    *,
    is_ready: Callable[[], bool] = lambda: True,
) -> Servers:
    """Start processes, and wait until servers listen on all ports and are ready.

    Args:
        directory: Directory for data and logs.
        commands: One command for each process.
        ports: Ports for clients.
        is_ready: Polled when all ports answer: whether the servers know each other.

    Raises:
        RuntimeError: A server is not ready in time; all are stopped.
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
    """Return the disk usage of all files below a directory, without holes."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118
            except FileNotFoundError:  # Servers remove files while they are counted.
                continue
    return total
