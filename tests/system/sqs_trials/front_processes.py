"""Front processes of a trial, which are killed."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import final

import trio

from tests.paths import ROOT
from tests.system.integration.nodes import free_ports
from tests.system.integration.processes import TIDELOG, environment


@final
class FrontProcesses:
    """Fronts of one cluster, each on a port of its own."""

    def __init__(self, brokers: str, count: int, *options: str, logs: Path | None = None) -> None:
        """Run fronts of `brokers` with these options; their logs go to a folder, or nowhere."""
        self.ports = free_ports(count)
        self._brokers = brokers
        self._options = options or ("--no-auth",)
        self._logs = logs
        self._running: dict[int, trio.Process] = {}

    async def start(self, number: int) -> None:
        """Start a front; return when it listens."""
        listen = f"127.0.0.1:{self.ports[number]}"
        path = Path(os.devnull) if self._logs is None else self._logs / f"front-{number}.log"
        with path.open("ab") as log:
            self._running[number] = await trio.lowlevel.open_process(
                [*TIDELOG, "sqs", "-b", self._brokers, "--listen", listen, *self._options],
                stdin=subprocess.DEVNULL,
                stderr=log,
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

    async def end(self, number: int) -> None:
        """Stop a front with SIGTERM; return when it has ended."""
        process = self._running.pop(number)
        process.terminate()
        assert await process.wait() == 0

    def sizes(self, number: int) -> tuple[int, int]:
        """Return the memory of a front in kB, and its number of open files."""
        folder = Path(f"/proc/{self._running[number].pid}")
        status = (folder / "status").read_text().split("VmRSS:")[1]
        return int(status.split()[0]), len(list((folder / "fd").iterdir()))

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
