"""Spark sessions in processes of their own, which can be killed.

A job is a function of a module that executors can import as well; its first argument is the
session.
"""

# There is no public way to find the process of Java.
# pyright: reportPrivateUsage=false

import os
import signal
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, final

from pyspark.sql import SparkSession

from tests.paths import ROOT

_ENDED_S = 30.0

CLUSTER = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    # Small batches of rows, so that writers begin long before the rows end.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}
"""Settings of a session whose executors are killed: two of them, with one task each."""

Job = Callable[..., Any]
Reply = tuple[bool, Any]
"""Whether the job succeeded, and its result; else the text of the error."""


class JobFailedError(Exception):
    """A job has failed; the message is that of its error."""


class DriverDiedError(Exception):
    """A driver died before its job was done."""


@final
class Driver:
    """A process with a Spark session, which executes one job after the other."""

    def __init__(self, folder: Path, master: str, settings: Mapping[str, str]) -> None:
        """Start it, and wait until its session exists."""
        ours, theirs = get_context("spawn").Pipe()
        # Not a daemon: Spark starts processes of its own.
        self._process = get_context("spawn").Process(
            target=_drive, args=(theirs, str(folder), master, dict(settings))
        )
        self._process.start()
        theirs.close()
        self._pipe: Connection[Any, Any] = ours
        self._java_pid: int = self.do(java_pid)

    @property
    def is_alive(self) -> bool:
        """Whether the process lives."""
        return self._process.is_alive()

    def start(self, job: Job, *arguments: object) -> "Future[Any]":
        """Begin a job; one at a time."""
        future: Future[Any] = Future()
        self._pipe.send((job, arguments))

        def wait() -> None:
            try:
                is_result, told = self._pipe.recv()
            except (EOFError, ConnectionResetError):
                future.set_exception(DriverDiedError(job.__name__))
                return
            if is_result:
                future.set_result(told)
            else:
                future.set_exception(JobFailedError(told))

        Thread(target=wait, daemon=True).start()
        return future

    def do(self, job: Job, *arguments: object) -> Any:  # noqa: ANN401 (whatever the job returns)
        """Execute a job, and return its result.

        Raises:
            JobFailedError: It raised.
            DriverDiedError: The driver died.
        """
        return self.start(job, *arguments).result()

    def kill(self) -> None:
        """Kill it with SIGKILL, including Java."""
        if self._java_pid:
            os.kill(self._java_pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """Stop the session, and the process."""
        if self._process.is_alive():
            self._pipe.send(None)
            self._process.join(_ENDED_S)
        if self._process.is_alive():
            self.kill()


@final
class Drivers:
    """Sessions of one Spark cluster, one at a time; a dead one is replaced."""

    def __init__(self, folder: Path, master: str) -> None:
        """Start without a session."""
        self._folder = folder
        self._master = master
        self._driver: Driver | None = None
        self._settings: dict[str, str] = {}

    def __enter__(self) -> "Drivers":
        """Close the session at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        if self._driver is not None:
            self._driver.close()

    def get(self, **settings: str) -> Driver:
        """Return a session with these settings, in which `_` stands for a dot."""
        given = {**CLUSTER, **{name.replace("_", "."): text for name, text in settings.items()}}
        if self._driver is None or not self._driver.is_alive or given != self._settings:
            self.__exit__()
            self._driver = Driver(self._folder, self._master, given)
            self._settings = given
        return self._driver


def java_pid(spark: SparkSession) -> int:
    """Return the process id of Java, 0 if it is unknown (Spark Connect)."""
    if not hasattr(spark, "_jvm"):
        return 0
    java: Any = spark._jvm
    return int(java.ProcessHandle.current().pid())


def _drive(
    pipe: "Connection[Any, Any]", folder: str, master: str, settings: dict[str, str], /
) -> None:
    """Execute jobs until there are no more."""
    from tests.system.spark.session import session  # noqa: PLC0415 (this is another process)

    sys.path.insert(0, str(ROOT))
    with session(Path(folder), master, settings) as spark:
        while (asked := pipe.recv()) is not None:
            job, arguments = asked
            try:
                reply: Reply = (True, job(spark, *arguments))
            except Exception as error:  # noqa: BLE001 (sent to the caller)
                reply = (False, str(error))
            pipe.send(reply)
