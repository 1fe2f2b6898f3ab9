"""Redis: streams as logs, and streams with a consumer group as queues."""

import socket
from pathlib import Path
from typing import Final

from bench.peers.packages import debian_environment, debian_version, from_debian
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

_FSYNC: Final = {
    Promise.MEMORY_ONE: "no",
    Promise.FSYNC_ONE: "always",
    Promise.MEMORY_THREE: "no",
}
_READY_MS_MAX: Final = 1_000
_ANSWER_S: Final = 10.0
_REPLICATED: Final = ("two replicas", "min-replicas-to-write 1", "WAIT 1 behind each pipeline")


def install(root: Path) -> Installed:
    """Unpack Debian's package."""
    tree = from_debian(root, ["redis-server"])
    return Installed(root, debian_version(root, "redis-server"), debian_environment(tree))


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start a server that appends to a file before it answers, or a primary with two replicas.

    The first address is that of the primary.
    """
    ports = free_ports(promise.node_count)
    commands: list[Command] = []
    for number, port in enumerate(ports, 1):
        place = directory / f"node-{number}"
        place.mkdir(parents=True, exist_ok=True)
        options = {
            "bind": ["127.0.0.1"],
            "port": [str(port)],
            "dir": [str(place)],
            "save": [""],
            "appendonly": ["yes"],
            "appendfsync": [_FSYNC[promise]],
        }
        if number > 1:
            options["replicaof"] = ["127.0.0.1", str(ports[0])]
        elif promise.node_count > 1:
            options["min-replicas-to-write"] = ["1"]
        words = [str(installed.root / "tree" / "usr" / "bin" / "redis-server")]
        for name, texts in options.items():
            words += [f"--{name}", *texts]
        commands.append(Command(words, installed.environment))
    return start_servers(directory, commands, ports, is_ready=lambda: _are_in_sync(ports))


def _are_in_sync(ports: list[int]) -> bool:
    """Return whether every replica receives new writes and appends them to its file."""
    primary, *replicas = ports
    if not replicas:
        return True
    confirmed = _ask(primary, "SET ready 1", f"WAIT {len(replicas)} {_READY_MS_MAX}")
    is_confirmed = confirmed.split()[:2] == ["+OK", f":{len(replicas)}"]
    return is_confirmed and all(is_in_sync(_ask(port, "INFO")) for port in replicas)


def is_in_sync(info: str) -> bool:
    """Return whether a replica's `INFO` shows a complete sync and a working append-only file."""
    wanted = {"master_link_status:up", "aof_enabled:1", "aof_rewrite_in_progress:0"}
    wanted.add("aof_rewrite_scheduled:0")
    return wanted <= set(info.split())


def _ask(port: int, *commands: str) -> str:
    """Return a server's replies to commands."""
    text = "".join(f"{command}\r\n" for command in (*commands, "QUIT"))
    with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S) as connection:
        connection.sendall(text.encode())
        with connection.makefile("rb") as answer:
            return answer.read().decode("utf-8", errors="replace")


REDIS: Final = System(
    name="redis",
    title="Redis Streams",
    client="redis",
    install=install,
    start=start,
    settings={
        promise: (
            "appendonly yes",
            f"appendfsync {text}",
            'save ""',
            *(_REPLICATED if promise.node_count > 1 else ()),
        )
        for promise, text in _FSYNC.items()
    },
    promises={"log": tuple(_FSYNC), "queue": tuple(_FSYNC)},
    remarks=(
        "redis-py with hiredis; records go in pipelines of 1,000 XADD, come by XREAD COUNT 10000.",
        "Partitions are streams of their own. All records are in memory, as always with Redis.",
        "Queues: XREADGROUP; deleted is what one pipeline of XACK and XDEL took out.",
        (
            "Three copies: a pipeline is acknowledged when the WAIT behind it says that one replica"
            " at least has received and processed it; the replica has appended it to its own file"
            " then. Anything less is an error. Limits of WAIT: it undoes nothing, so readers see"
            " records before; there is no automatic election, and a manual promotion of the replica"
            " that is behind loses acknowledged records."
        ),
        (
            "Three copies with fsync are left out: they need WAITAOF, which Redis has since 7.2 and"
            " Debian's version has not."
        ),
    ),
)
