"""beanstalkd, a work queue with a log on disk."""

from pathlib import Path
from typing import Final

from bench.peers.packages import debian_environment, debian_version, from_debian
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

_SYNC: Final = {Promise.MEMORY_ONE: ("-F",), Promise.FSYNC_ONE: ("-f", "0")}
_JOB_BYTES_MAX: Final = 1 << 20


def install(root: Path) -> Installed:
    """Unpack Debian's package."""
    tree = from_debian(root, ["beanstalkd"])
    return Installed(root, debian_version(root, "beanstalkd"), debian_environment(tree))


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start a server with a log."""
    (port,) = free_ports(1)
    log = directory / "log"
    log.mkdir(parents=True, exist_ok=True)
    command = Command(
        [
            str(installed.root / "tree" / "usr" / "bin" / "beanstalkd"),
            "-l",
            "127.0.0.1",
            "-p",
            str(port),
            "-z",
            str(_JOB_BYTES_MAX),
            "-b",
            str(log),
            *_SYNC[promise],
        ],
        installed.environment,
    )
    return start_servers(directory, [command], [port])


BEANSTALKD: Final = System(
    name="beanstalkd",
    title="beanstalkd",
    client="greenstalk",
    install=install,
    start=start,
    settings={
        promise: ("-b (a log on disk)", " ".join(options)) for promise, options in _SYNC.items()
    },
    promises={"queue": tuple(_SYNC)},
    remarks=(
        "There are no batches: so many messages are so many calls.",
        "There is one copy.",
        (
            "Expired messages: the connection that let them expire asks for them again, and again"
            " at once whenever it is told DEADLINE_SOON, as it is all through the last second. If"
            " it is silent and another connection waits, this version forgets most of what has"
            " expired, until the first one says something or closes"
            " (github.com/beanstalkd/beanstalkd/issues/262)."
        ),
    ),
)
