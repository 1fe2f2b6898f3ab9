"""Three brokers of one cluster, as real processes."""

import math
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import final

import trio

from tests.paths import ROOT
from tests.system.integration.processes import TIDELOG, BrokerProcess, environment, serving


def free_ports(count: int) -> list[int]:
    """Return ports without listeners."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@final
class Nodes:
    """Three brokers of one cluster, which can be killed, stopped and restarted."""

    ids = (1, 2, 3)

    def __init__(
        self,
        data_dir: Path,
        nursery: trio.Nursery,
        *options: str,
        program: Sequence[str] = TIDELOG,
    ) -> None:
        """Run them in `nursery`, with these options of `serve`."""
        self._data_dir = data_dir
        self._nursery = nursery
        self.options = options
        """Options of the brokers that start from now on."""
        self.program = program
        """Command of the brokers that start from now on."""
        self._ports = free_ports(2 * len(self.ids))
        self._running: dict[int, tuple[trio.CancelScope, BrokerProcess]] = {}

    @property
    def addresses(self) -> str:
        """Addresses of all brokers."""
        return ",".join(map(self.address, self.ids))

    def address(self, node_id: int) -> str:
        """Return the address of a broker."""
        return f"127.0.0.1:{self._ports[node_id - 1]}"

    def http_address(self, node_id: int) -> str:
        """Return the address of the HTTP server of a broker."""
        return f"127.0.0.1:{self._ports[len(self.ids) + node_id - 1]}"

    async def start(self, *node_ids: int) -> None:
        """Start these brokers, and wait until they serve."""
        async with trio.open_nursery() as starting:
            for node_id in node_ids:
                starting.start_soon(self._nursery.start, self._run, node_id)

    async def _run(self, node_id: int, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as scope:
            async with serving(
                self._data_dir / str(node_id),
                *self._arguments(node_id),
                program=self.program,
                listen=self.address(node_id),
                deadline_s=math.inf,
                TIDELOG_HTTP_LISTEN=self.http_address(node_id),  # earlier versions ignore it
            ) as process:
                self._running[node_id] = scope, process
                task_status.started()
                await trio.sleep_forever()

    def _arguments(self, node_id: int) -> list[str]:
        peers = ",".join(f"{number}={self.address(number)}" for number in self.ids)
        return ["--node-id", str(node_id), "--peers", peers, *self.options]

    async def refused(self, node_id: int) -> str:
        """Start a broker that must fail, and return the last line of its output."""
        result = await trio.run_process(
            [
                *(*self.program, "serve", "--data-dir", str(self._data_dir / str(node_id))),
                *("--listen", self.address(node_id), *self._arguments(node_id)),
            ],
            capture_stderr=True,
            check=False,
            cwd=ROOT,
            env=environment(),
        )
        assert result.returncode == 1
        return result.stderr.decode().splitlines()[-1]

    def kill(self, node_id: int) -> None:
        """Kill a broker with SIGKILL."""
        self._running[node_id][0].cancel()

    async def kill_and_wait(self, node_id: int) -> None:
        """Kill a broker with SIGKILL, and return when it is dead."""
        self.kill(node_id)
        await self.process(node_id).process.wait()

    async def stop_and_wait(self, node_id: int) -> None:
        """Stop a broker cleanly with SIGTERM, and return when it has ended."""
        self.process(node_id).signal(signal.SIGTERM)
        await self.process(node_id).wait_ended()
        self.kill(node_id)

    def process(self, node_id: int) -> BrokerProcess:
        """Return the process of a broker, the last one if none runs."""
        return self._running[node_id][1]

    def stop(self, node_id: int) -> None:
        """Pause a broker (SIGSTOP)."""
        self._running[node_id][1].signal(signal.SIGSTOP)

    def go_on(self, node_id: int) -> None:
        """Resume a paused broker."""
        self._running[node_id][1].signal(signal.SIGCONT)
