"""Spark cluster on this machine: a master and a worker, from the pip package.

Shell: owns the processes.
"""

import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.system.integration.nodes import free_ports
from tests.system.spark_trials.waiting import wait_until

_ENDED_S = 20.0
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Hosts of workers: a speculative attempt runs on another host than the first."""


@contextmanager
def standalone(folder: Path, hosts: Sequence[str] = HOSTS) -> Generator[str, None, None]:
    """Run a master, and a worker on each host, while the block runs; yield the master's URL.

    Raises:
        TimeoutError: A worker was not registered in time.
    """
    (port,) = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        web = ["--webui-port", "0"]
        what = "master.Master", "--host", "127.0.0.1", "--port", str(port), *web
        _wait_for(stack.enter_context(_running(folder, "master", what)), "New state: ALIVE")
        logs: list[Path] = []
        for host in hosts:
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / host)]
            what = "worker.Worker", "--host", host, *size, *web, master
            logs.append(stack.enter_context(_running(folder, host, what)))
        for log in logs:
            _wait_for(log, "Successfully registered with master")
        yield master


@contextmanager
def _running(folder: Path, name: str, what: Sequence[str]) -> Generator[Path, None, None]:
    """Run a part of Spark; yield the file with its output."""
    home = Path(pyspark.__file__).parent
    main, *arguments = what
    log = folder / f"{name}.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{main}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"},
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(_ENDED_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, line: str) -> None:
    wait_until(lambda: line in log.read_text(), f"{line!r} in {log}")
