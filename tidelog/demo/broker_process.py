"""A broker in a child process, for the kill of the demonstration.

Shell: owns a child process.
"""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast, final

import trio

from tidelog.demo.errors import DemoFailedError

_LINES_KEPT = 20
_OWN_VARIABLES = "TIDELOG_"


@final
class BrokerProcess:
    """A running `tidelog serve`."""

    def __init__(self, process: trio.Process) -> None:
        """Wrap a process whose log is JSON; `watch` reads the log."""
        self._process = process
        self._last_lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._address: str | None = None
        self._heard = trio.Event()
        self._is_silent = False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def address(self) -> str:
        """`HOST:PORT` that clients connect to."""
        assert self._address is not None, "wait_started comes first"
        return self._address

    async def wait_started(self) -> None:
        """Wait until the broker listens.

        Raises:
            DemoFailedError: The process ended; the line contains the reason.
        """
        while self._address is None and not self._is_silent:
            await self._heard.wait()
        if self._address is None:
            reason = self._last_lines[-1] if self._last_lines else "its log is empty"
            raise DemoFailedError(f"the broker did not start: {reason}")

    def kill(self) -> None:
        """Kill the process with SIGKILL, as in a crash."""
        self._process.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Stop the process with SIGTERM, and wait for its end."""
        self._process.send_signal(signal.SIGTERM)
        await self._process.wait()

    async def wait_ended(self) -> int:
        """Wait for the end of the process; return its status, negative for a signal."""
        return await self._process.wait()

    async def watch(self) -> None:
        """Read the log of the process until it ends."""
        stream = self._process.stderr
        assert stream is not None, "the log is read from a pipe"
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + bytes(chunk)).split(b"\n")
            for line in lines:
                self._parse_line(line.decode("utf-8", "replace"))
        self._is_silent = True
        self._tell()

    def _parse_line(self, line: str) -> None:
        self._last_lines.append(line)
        try:
            event = cast("dict[str, object]", json.loads(line))
        except ValueError:
            return
        if event.get("event") == "broker_started":
            self._address = str(event["address"])
            self._tell()

    def _tell(self) -> None:
        heard, self._heard = self._heard, trio.Event()
        heard.set()


@asynccontextmanager
async def open_broker_process(
    data_dir: str, *, listen: str = "127.0.0.1:0"
) -> AsyncGenerator[BrokerProcess, None]:
    """Run a broker in a child process while the block runs; then kill it, also if cancelled.

    Raises:
        DemoFailedError: The broker did not start.
    """
    command = [sys.executable, "-m", "tidelog", "serve", "--log-format", "json"]
    command += ["--data-dir", data_dir, "--listen", listen]
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_without_own_variables(os.environ),
    )
    broker = BrokerProcess(process)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.watch)
            try:
                await broker.wait_started()
                yield broker
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = error
            nursery.cancel_scope.cancel()
    finally:
        broker.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            if process.stderr is not None:
                await process.stderr.aclose()
    if failure is not None:
        # Raised outside of the nursery, which would wrap it into a group.
        raise failure


def _without_own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without `TIDELOG_` settings, which are for another broker."""
    return {
        name: value for name, value in environment.items() if not name.startswith(_OWN_VARIABLES)
    }
