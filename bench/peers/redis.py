"""Redis, whose streams are logs, and queues when read by a consumer group."""

from pathlib import Path
from typing import Final

from bench.peers.packages import debian_environment, debian_version, from_debian
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

_FSYNC: Final = {Promise.MEMORY_ONE: "no", Promise.FSYNC_ONE: "always"}


def install(root: Path) -> Installed:
    """Unpack Debian's package."""
    tree = from_debian(root, ["redis-server"])
    return Installed(root, debian_version(root, "redis-server"), debian_environment(tree))


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start a server that appends everything to a file before it answers."""
    (port,) = free_ports(1)
    command = Command(
        [
            str(installed.root / "tree" / "usr" / "bin" / "redis-server"),
            "--bind",
            "127.0.0.1",
            "--port",
            str(port),
            "--dir",
            str(directory),
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            _FSYNC[promise],
        ],
        installed.environment,
    )
    return start_servers(directory, [command], [port])


REDIS: Final = System(
    name="redis",
    title="Redis Streams",
    client="redis",
    install=install,
    start=start,
    settings={
        promise: ("appendonly yes", f"appendfsync {text}", 'save ""')
        for promise, text in _FSYNC.items()
    },
    promises={"log": tuple(_FSYNC), "queue": tuple(_FSYNC)},
    remarks=(
        "redis-py with hiredis; records go in pipelines of 1,000 XADD, come by XREAD COUNT 10000.",
        "Partitions are streams of their own. All records are in memory, as always with Redis.",
        "Queues: XREADGROUP; deleted is what one pipeline of XACK and XDEL took out.",
        "Three copies are left out: replication is asynchronous, and WAIT says only what happened.",
    ),
)
