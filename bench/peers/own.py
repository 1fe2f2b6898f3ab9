"""tidelog itself, as users start it."""

import sys
from pathlib import Path
from typing import Final

from bench.machine import ROOT, describe
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System


def install(root: Path) -> Installed:
    """Return tidelog, which is installed."""
    del root
    return Installed(ROOT, describe().rpartition("commit ")[2])


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start one broker, or three that make one cluster."""
    ports = free_ports(promise.node_count)
    peers = ",".join(f"{number}=127.0.0.1:{port}" for number, port in enumerate(ports, 1))
    environment = {"PYTHONPATH": str(installed.root)}
    commands: list[Command] = []
    for number, port in enumerate(ports, 1):
        words = [sys.executable, "-m", "tidelog", "serve"]
        words += ["--listen", f"127.0.0.1:{port}", "--log-format", "json"]
        words += ["--data-dir", str(directory / f"node-{number}")]
        if len(ports) > 1:
            words += ["--node-id", str(number), "--peers", peers]
        commands.append(Command(words, environment))
    return start_servers(directory, commands, ports)


TIDELOG: Final = System(
    name="tidelog",
    title="tidelog",
    client="tidelog",
    install=install,
    start=start,
    settings={
        Promise.MEMORY_ONE: ("durability=replicated", "acks=all"),
        Promise.FSYNC_ONE: ("durability=fsync", "acks=all"),
        Promise.MEMORY_THREE: (
            "durability=replicated",
            "acks=all",
            "three replicas",
            "min_insync_replicas=2",
        ),
        Promise.FSYNC_THREE: (
            "durability=fsync",
            "acks=all",
            "three replicas",
            "min_insync_replicas=2",
        ),
    },
    promises={"log": tuple(Promise), "queue": tuple(Promise)},
    remarks=(
        "Broker and client with all defaults; producers are idempotent, CRCs are checked by both.",
        (
            "Queues: four partitions, receive_acks=leader, the default: what is sent or deleted"
            " is committed as promised; a receive does not wait for that."
        ),
    ),
)
