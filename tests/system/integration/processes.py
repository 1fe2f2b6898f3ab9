"""Real processes for tests: brokers whose log can be awaited, and commands."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.paths import ROOT

TIDELOG = [sys.executable, "-m", "tidelog"]
DEADLINE_S = 250.0
"""Maximum seconds of a hang, below a test's global limit, so that child processes are killed."""

Event = dict[str, Any]


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without settings of tidelog, and with `variables`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    return {**own, **variables}


class BrokerProcess:
    """A `tidelog serve` with a JSON log."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.events: list[Event] = []
        self.other_lines: list[str] = []
        """Its output outside of the log, such as an error at the start."""
        self._changed = trio.Event()
        self.has_ended = False

    @property
    def address(self) -> str:
        return str(self.event("broker_started")["address"])

    @property
    def pid(self) -> int:
        return self.process.pid

    def event(self, name: str) -> Event:
        return next(event for event in self.events if event["event"] == name)

    def names(self) -> list[str]:
        return [event["event"] for event in self.events]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the log fulfils a condition."""
        while not condition():
            assert not self.has_ended, f"the broker ended: {self.other_lines} {self.events}"
            await self._changed.wait()

    async def wait_event(self, name: str) -> Event:
        await self.wait_until(lambda: name in self.names())
        return self.event(name)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def wait_ended(self) -> int:
        """Wait until the process has ended and its log was read; return its status."""
        status = await self.process.wait()
        while not self.has_ended:
            await self._changed.wait()
        return status

    async def read_log(self) -> None:
        assert self.process.stderr is not None
        rest = b""
        async for chunk in self.process.stderr:
            *lines, rest = (rest + bytes(chunk)).split(b"\n")
            for line in lines:
                self._note(line.decode())
        self.has_ended = True
        self._tell()

    def _note(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            self.other_lines.append(line)
        else:
            self.events.append(event)
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


@asynccontextmanager
async def serving(
    data_dir: Path,
    *options: str,
    listen: str = "127.0.0.1:0",
    limits: str = "",
    program: Sequence[str] = TIDELOG,
    deadline_s: float = DEADLINE_S,
    **variables: str,
) -> AsyncGenerator[BrokerProcess, None]:
    """Run a broker until the block ends, or `deadline_s` is over; then kill it.

    `limits` are resource limits of the shell's `ulimit`. `program` may be a broker with a mutation,
    as a control. `variables` are added to the environment.
    """
    with trio.fail_after(deadline_s):
        command = [*program, "serve", "--log-format", "json", "--data-dir", str(data_dir)]
        if limits:
            command = ["sh", "-c", f'ulimit {limits} && exec "$@"', "sh", *command]
        process = await trio.lowlevel.open_process(
            [*command, "--listen", listen, *options],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(**variables),
        )
        broker = BrokerProcess(process)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker.read_log)
                await broker.wait_event("broker_started")
                yield broker
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


async def run_tidelog(
    *arguments: str, stdin: bytes = b"", **variables: str
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end."""
    with trio.fail_after(DEADLINE_S):
        return await trio.run_process(
            [*TIDELOG, *arguments],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=ROOT,
            env=environment(**variables),
        )


def only_line(result: "subprocess.CompletedProcess[bytes]") -> str:
    """Return the one line that a command wrote to standard error."""
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, f"one line was expected, not {lines}"
    return lines[0]
