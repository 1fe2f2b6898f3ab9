"""Front processes of a trial, which are killed."""

import subprocess
from contextlib import suppress
from typing import final

import trio

from tests.paths import ROOT
from tests.system.integration.nodes import free_ports
from tests.system.integration.processes import TIDELOG, environment


@final
class FrontProcesses:
    """Fronts of one cluster, each on a port of its own."""

    def __init__(self, brokers: str, count: int) -> None:
        self.ports = free_ports(count)
        self._brokers = brokers
        self._running: dict[int, trio.Process] = {}

    async def start(self, number: int) -> None:
        """Start a front; return when it listens."""
        listen = f"127.0.0.1:{self.ports[number]}"
        self._running[number] = await trio.lowlevel.open_process(
            [*TIDELOG, "sqs", "--broker", self._brokers, "--listen", listen, "--no-auth"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment(),
        )
        while not await _answers(self.ports[number]):
            assert self._running[number].poll() is None, "the front ended"
            await trio.sleep(0.05)

    async def kill(self, number: int) -> None:
        """Kill a front with SIGKILL; return when it is dead."""
        process = self._running.pop(number)
        process.kill()
        await process.wait()

    async def stop(self) -> None:
        """Kill all that run."""
        for number in list(self._running):
            await self.kill(number)


async def _answers(port: int) -> bool:
    with suppress(OSError):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.aclose()
        return True
    return False
