"""NATS with JetStream, whose streams are files."""

import json
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from bench.peers.packages import from_go
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

_VERSION: Final = "2.15.2"
_SYNC: Final = "  sync_interval: always\n"
_CONFIG: Final = """\
server_name: "bench-{number}"
listen: "127.0.0.1:{port}"
max_payload: 8MB
jetstream {{
  store_dir: "{store}"
  max_file_store: 20GB
{more}}}
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
    """Build the server."""
    programs = from_go(root, f"github.com/nats-io/nats-server/v2@v{_VERSION}")
    return Installed(programs, _VERSION)


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start a server whose streams are files, or three that make one cluster."""
    count = promise.node_count
    ports = free_ports(3 * count)
    listeners, routes, monitoring = ports[:count], ports[count : 2 * count], ports[2 * count :]
    directory.mkdir(parents=True, exist_ok=True)
    program = str(installed.root / "nats-server")
    commands: list[Command] = []
    for number, port in enumerate(listeners, 1):
        store = directory / f"store-{number}"
        more = _SYNC if promise.is_fsync else ""
        text = _CONFIG.format(number=number, port=port, store=store, more=more)
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


def _settings(replicas: int) -> tuple[str, ...]:
    return "storage: file", f"num_replicas: {replicas}", "acknowledged publishing"


NATS: Final = System(
    name="nats",
    title="NATS JetStream",
    client="nats-py",
    install=install,
    start=start,
    settings={
        Promise.MEMORY_ONE: _settings(1),
        Promise.FSYNC_ONE: (*_settings(1), "sync_interval: always"),
        Promise.MEMORY_THREE: _settings(3),
        Promise.FSYNC_THREE: (*_settings(3), "sync_interval: always"),
    },
    promises=dict.fromkeys(("log", "queue"), tuple(Promise)),
    remarks=(
        (
            "Producer: publish_async with 4,000 unacknowledged; partitions are streams of their"
            " own. Consumer: an ordered consumer."
        ),
        (
            "Queues: pull consumers of a stream with work queue retention; what is deleted is what"
            " ack_sync has confirmed, a batch at once."
        ),
        (
            "One copy: ack_sync promises less than the row. It is answered when the server has"
            " noted the deletion in memory; the file follows within 100 ms. After the end of the"
            " server's process such a message may come again."
        ),
        (
            "Three copies: what is published or deleted is acknowledged when the majority has it in"
            " its Raft log, which is synced with sync_interval: always."
        ),
    ),
)
