"""RabbitMQ: streams, which are logs, and quorum queues."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Final

from bench.peers.packages import debian_environment, debian_version, from_debian
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

# Debian's `erl` looks for Erlang below /usr only.
_ERL: Final = """\
#!/bin/sh
export ROOTDIR="{erlang}" BINDIR="{programs}" EMU=beam PROGNAME=erl
exec "{programs}/erlexec" "$@"
"""
_SCRIPTS: Final = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"
_PROGRAMS: Final = "usr/lib/erlang/erts-*/bin"


def install(root: Path) -> Installed:
    """Unpack Debian's packages, Erlang among them."""
    tree = from_debian(root, ["rabbitmq-server"])
    programs = _only(tree, _PROGRAMS)
    erl = root / "bin" / "erl"
    erl.parent.mkdir(exist_ok=True)
    erl.write_text(_ERL.format(erlang=tree / "usr" / "lib" / "erlang", programs=programs))
    erl.chmod(0o755)
    return Installed(root, debian_version(root, "rabbitmq-server"), debian_environment(tree))


def _only(tree: Path, pattern: str) -> Path:
    (found,) = tree.glob(pattern)
    return found.resolve()


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start a server, or a cluster of three, and Erlang's port mapper.

    The addresses are pairs: the queue address and the stream address of a node.
    """
    count = promise.node_count
    epmd_port, *ports = free_ports(1 + 3 * count)
    directory.mkdir(parents=True, exist_ok=True)
    cookie = directory / ".erlang.cookie"
    cookie.write_text(token_hex(), encoding="utf-8")
    cookie.chmod(0o400)
    (directory / "plugins").write_text("[rabbitmq_stream].\n", encoding="utf-8")
    environment = {
        **installed.environment,
        "PATH": f"{installed.root / 'bin'}:/usr/bin:/bin",
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RUNNING_UNDER_SYSTEMD": "true",  # The script becomes the server: one process to watch.
    }
    tree = installed.root / "tree"
    epmd = str(_only(tree, _PROGRAMS) / "epmd")
    commands = [Command([epmd, "-address", "127.0.0.1", "-port", str(epmd_port)])]
    scripts = _only(tree, _SCRIPTS)
    nodes = [f"bench-{number}@localhost" for number in range(1, count + 1)]
    for number, node in enumerate(nodes):
        port, stream_port, distribution_port = ports[3 * number : 3 * number + 3]
        config = directory / f"{node}.conf"
        config.write_text(_config(port, stream_port, nodes), encoding="utf-8")
        own = {
            "RABBITMQ_NODENAME": node,
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_PID_FILE": str(directory / f"{node}.pid"),
            "RABBITMQ_CONFIG_FILE": str(config),
        }
        commands.append(Command([str(scripts / "rabbitmq-server")], {**environment, **own}))
    clients = [port for number, port in enumerate(ports) if number % 3 != 2]  # noqa: PLR2004
    wait = [str(scripts / "rabbitmqctl"), "-n", nodes[0], "await_online_nodes", str(count)]
    return start_servers(
        directory, commands, clients, is_ready=lambda: count == 1 or _succeeds(wait, environment)
    )


def _succeeds(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    result = subprocess.run(
        command, capture_output=True, check=False, env={**os.environ, **environment}
    )
    return result.returncode == 0


def _config(port: int, stream_port: int, nodes: Sequence[str]) -> str:
    """Return the settings of one of these nodes."""
    lines = [
        f"listeners.tcp.1 = 127.0.0.1:{port}",
        f"stream.listeners.tcp.1 = 127.0.0.1:{stream_port}",
        "stream.advertised_host = 127.0.0.1",
        f"stream.advertised_port = {stream_port}",
    ]
    if len(nodes) > 1:
        lines.append("cluster_formation.peer_discovery_backend = classic_config")
        for number, node in enumerate(nodes, 1):
            lines.append(f"cluster_formation.classic_config.nodes.{number} = {node}")
    return "".join(f"{line}\n" for line in lines)


RABBITMQ: Final = System(
    name="rabbitmq",
    title="RabbitMQ",
    client="rstream and aio-pika",
    install=install,
    start=start,
    settings={
        Promise.MEMORY_ONE: ("a stream", "initial-cluster-size=1", "publishing confirmed"),
        Promise.FSYNC_ONE: ("a quorum queue of one member", "publisher confirms"),
        Promise.MEMORY_THREE: ("a stream", "initial-cluster-size=3", "publishing confirmed"),
        Promise.FSYNC_THREE: ("a quorum queue of three members", "publisher confirms"),
    },
    promises={
        "log": (Promise.MEMORY_ONE, Promise.MEMORY_THREE),
        "queue": (Promise.FSYNC_ONE, Promise.FSYNC_THREE),
    },
    remarks=(
        "Streams: rstream, published with confirmation, up to 1,000 in one frame.",
        (
            "Quorum queues: aio-pika, publisher confirms, prefetch of one batch for each worker,"
            " which acknowledges received messages with one basic.ack. It has no reply, so the last"
            " thing measured is a round trip behind all of them."
        ),
        (
            "Three copies: streams confirm what the majority has handed to its operating systems,"
            " and never sync; quorum queues confirm what the majority has synced to its logs."
            " Clients connect to the node on which stream or queue was made, which leads it."
        ),
    ),
)
