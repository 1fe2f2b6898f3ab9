"""Processes of tests here: a broker, and a `tidelog sqs` beside it."""

import re
import subprocess
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.paths import ROOT
from tests.system.integration.processes import TIDELOG, environment


@contextmanager
def running_broker(data_dir: Path, *options: str) -> Generator[str]:
    """Run a broker until the block ends; yield its address."""
    command = [*TIDELOG, "serve", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", *options]
    with _running(command, r"listening on (\S+:\d+)") as address:
        yield address


@contextmanager
def running_front(broker: str, *options: str) -> Generator[str]:
    """Run a front of a broker until the block ends; yield its URL."""
    command = [*TIDELOG, "sqs", "--broker", broker, "--listen", "127.0.0.1:0", *options]
    with _running(command, r"serves SQS on (http://\S+:\d+)") as url:
        yield url


@contextmanager
def _running(command: Sequence[str], ready: str) -> Generator[str]:
    """Run a server until the block ends; yield what it says of itself when it serves."""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    ) as process:
        try:
            assert process.stderr is not None
            said = _read_until(process.stderr, ready)
            # A pipe that nothing reads would stop the server when it is full.
            reader = Thread(target=deque, args=(process.stderr, 0))
            reader.start()
            yield said
        finally:
            process.terminate()
            process.wait()
        reader.join()


def _read_until(lines: Iterable[str], pattern: str) -> str:
    said: list[str] = []
    for line in lines:
        said.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"the server ended: {said}")
