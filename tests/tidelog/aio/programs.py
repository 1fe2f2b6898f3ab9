"""Programs of asyncio: runners, names of their own, and processes."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from textwrap import dedent
from typing import Any, Final, NamedTuple, Protocol, TypeVar, final

import uvloop

from tests.paths import ROOT
from tidelog import aio

Result = TypeVar("Result")


class Run(Protocol):
    """`asyncio.run`, or what replaces it."""

    def __call__(self, main: Coroutine[Any, Any, Result], /) -> Result:
        """Run a program of asyncio."""
        ...


RUNNERS: Final[dict[str, Run]] = {"asyncio": asyncio.run, "uvloop": uvloop.run}

_NUMBERS: Final = count()


class Ended(NamedTuple):
    """What a program left."""

    status: int
    lines: list[str]
    errors: str


@final
class Program:
    """A program of asyncio in a process of its own."""

    def __init__(self, code: str, *arguments: str, options: Sequence[str] = ()) -> None:
        """Start it; `asyncio`, `signal`, `sys`, `uvloop`, `aio` are imported already."""
        prelude = "import asyncio, os, signal, sys, time, uvloop\nfrom tidelog import aio\n"
        self._process = subprocess.Popen(
            [sys.executable, *options, "-c", prelude + dedent(code), *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_line(self) -> str:
        """Return the next line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def ended(self) -> Ended:
        """Wait for its end."""
        output, errors = self._process.communicate(timeout=250)
        return Ended(self._process.returncode, output.split("\n")[:-1], errors)

    def kill(self) -> None:
        """End it, if it has not ended."""
        with self._process:
            self._process.kill()


class Start(Protocol):
    """Starts a program, which the end of the test kills."""

    def __call__(self, code: str, *arguments: str, options: Sequence[str] = ()) -> Program:
        """Start it; for the arguments see `Program`."""
        ...


async def new_topic(client: aio.Client, partitions: int = 1) -> str:
    """Create a topic that no other test has."""
    name = f"topic-{next(_NUMBERS)}"
    await client.admin.create_topic(name, partitions)
    return name


async def new_queue(client: aio.Client, values: int = 0) -> aio.Queue:
    """Create a queue that no other test has; send it messages with the values 0, 1, ..."""
    name = f"queue-{next(_NUMBERS)}"
    await client.admin.create_queue(name, partitions=1, visibility_timeout=3600)
    queue = client.queue(name)
    if values:
        await queue.send_batch([b"%d" % number for number in range(values)])
    return queue


async def until(is_so: Callable[[], object]) -> None:
    """Let other tasks run until a condition holds."""
    while not is_so():  # noqa: ASYNC110  (no event tells of it)
        await asyncio.sleep(0.001)


async def turns(number: int) -> None:
    """Let the event loop turn."""
    for _ in range(number):
        await asyncio.sleep(0)
