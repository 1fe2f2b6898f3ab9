"""Cluster of several broker processes on this machine."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep  # noqa: TID251  (processes are observed from outside)
from types import TracebackType
from typing import Self, TypeVar, final

from bench.machine import ROOT, cpu_seconds
from bench.raw import RawConnection
from tidelog.wire.errors import BrokerError, ConnectionLostError, WireFormatError
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Value = TypeVar("Value")

PATIENCE_S = 60.0
_LOOK_S = 0.01
_ANSWER_S = 15.0


@final
class Nodes:
    """Brokers with node ids from 1 on; all end with the `with` block."""

    def __init__(self, directory: Path, count: int) -> None:
        """Start `count` brokers that make one cluster."""
        self._directory = directory
        self.ports = {node_id: _free_port() for node_id in range(1, count + 1)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in self.ports:
            self.start(node_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        if exc is not None:
            for node_id in self.ports:
                sys.stderr.write(self._log(node_id).read_text(encoding="utf-8"))

    @property
    def addresses(self) -> str:
        """Addresses of all brokers, for a client."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, node_id: int) -> None:
        """Start one broker, for the first time or again."""
        peers = ",".join(f"{each}=127.0.0.1:{port}" for each, port in self.ports.items())
        listen = f"127.0.0.1:{self.ports[node_id]}"
        data_dir = str(self._directory / str(node_id))
        with self._log(node_id).open("a", encoding="utf-8") as log:
            options = ["--node-id", str(node_id), "--listen", listen]
            options += ["--peers", peers, "--data-dir", data_dir]
            self._processes[node_id] = subprocess.Popen(
                [sys.executable, "-m", "tidelog", "serve", *options], cwd=ROOT, stderr=log
            )

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal; return when a process that it ends has ended."""
        process = self._processes[node_id]
        process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process.wait()

    def cpu_seconds(self, node_id: int) -> float:
        """CPU seconds of one broker."""
        return cpu_seconds(self._processes[node_id].pid)

    def resident_bytes(self, node_id: int) -> int:
        """Resident memory of one broker."""
        pid = self._processes[node_id].pid
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def ask(self, node_id: int, api_: Api[Request, Reply], request: Request) -> Reply:
        """Return the reply of one broker.

        Raises:
            OSError: The broker is unreachable, or does not answer.
            BrokerError: The broker rejects the request.
        """
        connection = RawConnection(("127.0.0.1", self.ports[node_id]), timeout_s=_ANSWER_S)
        try:
            return connection.ask(api_, request)
        finally:
            connection.close()

    def call_any(
        self, api_: Api[Request, Reply], request: Request, *, but: int | None = None
    ) -> Reply:
        """Return the reply of the first broker that answers; retry without a limit."""
        others = [node_id for node_id in self.ports if node_id != but]

        def look() -> Reply | None:
            for node_id in others:
                try:
                    return self.ask(node_id, api_, request)
                except (OSError, BrokerError, ConnectionLostError, WireFormatError):
                    continue
            return None

        return wait_for(look)

    def metadata(self, node_id: int) -> MetadataReply | None:
        """Return the metadata of one broker, or `None` if it does not answer."""
        try:
            return self.ask(node_id, api.METADATA, MetadataRequest(None))
        except (OSError, BrokerError, ConnectionLostError, WireFormatError):
            return None

    def has_files_of(self, topic: str) -> bool:
        """Return whether a broker still has a topic's files, or removes those of any topic."""
        return any(
            found
            for pattern in (f"*/topics/{topic}.*", "*/deleted")
            for found in self._directory.glob(pattern)
        )

    def wait_leader(self, *, but: int | None = None) -> int:
        """Return the controller, as soon as a broker other than `but` knows it."""

        def look() -> int | None:
            for node_id in self.ports:
                known = None if node_id == but else self.metadata(node_id)
                if known is not None and known.controller_id not in (None, but):
                    return known.controller_id
            return None

        return wait_for(look)

    def wait_complete(self) -> None:
        """Wait until every broker serves, and knows that all others do."""
        for node_id in self.ports:

            def look(asked: int = node_id) -> bool | None:
                known = self.metadata(asked)
                return (known is not None and len(known.brokers) == len(self.ports)) or None

            wait_for(look)

    def _log(self, node_id: int) -> Path:
        return self._directory / f"log-{node_id}"


def wait_for(look: Callable[[], Value | None]) -> Value:
    """Return the first result of `look` that is not `None`.

    Raises:
        TimeoutError: There is none within `PATIENCE_S`.
    """
    began = perf_counter()
    while (found := look()) is None:
        if perf_counter() - began > PATIENCE_S:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s")
        sleep(_LOOK_S)
    return found


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
