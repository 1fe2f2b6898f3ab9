"""NATS with JetStream, whose streams are files."""

import json
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from bench.peers.packages import debian_environment, debian_version, from_debian
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

_CONFIG: Final = """\
server_name: "bench-{number}"
listen: "127.0.0.1:{port}"
max_payload: 8MB
jetstream {{
  store_dir: "{store}"
  max_file_store: 20GB
}}
"""
_CLUSTER: Final = """\
http: "127.0.0.1:{monitoring}"
cluster {{
  name: "bench"
  listen: "127.0.0.1:{route}"
  routes: [{routes}]
}}
"""
_ANSWER_S: Final = 5.0


def install(root: Path) -> Installed:
    """Unpack Debian's package."""
    tree = from_debian(root, ["nats-server"])
    return Installed(root, debian_version(root, "nats-server"), debian_environment(tree))


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start a server whose streams are files, or three that make one cluster."""
    count = promise.node_count
    ports = free_ports(3 * count)
    listeners, routes, monitoring = ports[:count], ports[count : 2 * count], ports[2 * count :]
    directory.mkdir(parents=True, exist_ok=True)
    program = str(installed.root / "tree" / "usr" / "sbin" / "nats-server")
    commands: list[Command] = []
    for number, port in enumerate(listeners, 1):
        store = directory / f"store-{number}"
        text = _CONFIG.format(number=number, port=port, store=store)
        if count > 1:
            text += _CLUSTER.format(
                route=routes[number - 1],
                routes=", ".join(f'"nats://127.0.0.1:{route}"' for route in routes),
                monitoring=monitoring[number - 1],
            )
        config = directory / f"nats-{number}.conf"
        config.write_text(text, encoding="utf-8")
        commands.append(Command([program, "-c", str(config)], installed.environment))
    if count == 1:
        return start_servers(directory, commands, listeners)
    return start_servers(
        directory,
        commands,
        listeners,
        is_ready=lambda: all(is_clustered(_jetstream(port), count) for port in monitoring),
    )


def _jetstream(port: int) -> str:
    """Return a server's JetStream status, or an empty text if it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/jsz", timeout=_ANSWER_S) as answer:
            text: bytes = answer.read()
            return text.decode()
    except OSError:
        return "{}"


def is_clustered(text: str, count: int) -> bool:
    """Return whether a JetStream status lists `count` servers and their leader."""
    found = json.loads(text).get("meta_cluster", {})
    return bool(found.get("leader")) and found.get("cluster_size") == count


NATS: Final = System(
    name="nats",
    title="NATS JetStream",
    client="nats-py",
    install=install,
    start=start,
    settings={
        Promise.MEMORY_ONE: ("storage: file", "num_replicas: 1", "acknowledged publishing"),
        Promise.MEMORY_THREE: ("storage: file", "num_replicas: 3", "acknowledged publishing"),
    },
    promises=dict.fromkeys(("log", "queue"), (Promise.MEMORY_ONE, Promise.MEMORY_THREE)),
    remarks=(
        (
            "Producer: publish_async with 4,000 unacknowledged; partitions are streams of their"
            " own. Consumer: an ordered consumer."
        ),
        (
            "Queues: a pull consumer of a stream with work queue retention; what is deleted is what"
            " ack_sync has confirmed, a batch at once."
        ),
        (
            "Three copies: what is published is acknowledged when the majority has written it to"
            " its Raft log. ack_sync promises less in Debian's version: it is answered when the"
            " acknowledgement is proposed, not when the majority has it. After the loss of a"
            " machine such a message may come again."
        ),
        (
            "With fsync it is left out: Debian's version syncs now and then, not before it"
            " acknowledges."
        ),
    ),
)
