"""Programs of asyncio: runners, names of their own, and processes."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Final, Protocol, TypeVar

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
    while not is_so():
        await asyncio.sleep(0.001)


async def turns(number: int) -> None:
    """Let the event loop turn."""
    for _ in range(number):
        await asyncio.sleep(0)


def ran(
    *arguments: str, code: str | None = None, timeout: float = 60
) -> "subprocess.CompletedProcess[str]":
    """Return what Python did with arguments, or with a program; it has the rooms of this tree."""
    program = [] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *arguments, *program] if code is None else
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
