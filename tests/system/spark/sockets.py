"""Connections of Spark tasks to a broker on this machine, as Linux reports them."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"
_TASKS = b"pyspark.daemon\0pyspark.worker\0"
"""Names of processes that work for tasks; other processes plan queries."""


def established(port: int) -> set[int]:
    """Return the inodes of sockets that are connected to a port."""
    found: set[int] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _ESTABLISHED and int(fields[2].rpartition(":")[2], 16) == port:
            found.add(int(fields[9]))
    return found


def held_by_tasks(executor: int) -> set[int]:
    """Return the inodes of all sockets of the processes in which an executor has tasks."""
    return {number for pid in _below(executor) if _is_for_tasks(pid) for number in _held_by(pid)}


def _below(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # The thread has ended.
            for child in children.read_text().split():
                yield from _below(int(child))


def _is_for_tasks(pid: int) -> bool:
    with suppress(OSError):  # The process has ended.
        return _TASKS in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _held_by(pid: int) -> Iterator[int]:
    with suppress(OSError):  # The process has ended.
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                name = str(file.readlink())
                if name.startswith("socket:["):
                    yield int(name[8:-1])
