"""RabbitMQ: streams, which are logs, and quorum queues."""

from pathlib import Path
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
    """Start a server, and what Erlang finds its nodes with."""
    del promise  # Streams and quorum queues differ, not servers.
    tree = installed.root / "tree"
    port, stream_port, distribution_port, epmd_port = free_ports(4)
    directory.mkdir(parents=True, exist_ok=True)
    plugins = directory / "plugins"
    plugins.write_text("[rabbitmq_stream].\n", encoding="utf-8")
    config = directory / "rabbitmq.conf"
    config.write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\n"
        f"stream.listeners.tcp.1 = 127.0.0.1:{stream_port}\n"
        f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {stream_port}\n",
        encoding="utf-8",
    )
    environment = {
        **installed.environment,
        "PATH": f"{installed.root / 'bin'}:/usr/bin:/bin",
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RUNNING_UNDER_SYSTEMD": "true",  # The script becomes the server: one process to watch.
    }
    epmd = str(_only(tree, _PROGRAMS) / "epmd")
    commands = [
        Command([epmd, "-address", "127.0.0.1", "-port", str(epmd_port)]),
        Command([str(_only(tree, _SCRIPTS) / "rabbitmq-server")], environment),
    ]
    return start_servers(directory, commands, [port, stream_port])


RABBITMQ: Final = System(
    name="rabbitmq",
    title="RabbitMQ",
    client="rstream and aio-pika",
    install=install,
    start=start,
    settings={
        Promise.MEMORY_ONE: ("a stream", "initial-cluster-size=1", "publishing confirmed"),
        Promise.FSYNC_ONE: ("a quorum queue of one member", "publisher confirms"),
    },
    promises={"log": (Promise.MEMORY_ONE,), "queue": (Promise.FSYNC_ONE,)},
    remarks=(
        "Streams: rstream, published with confirmation, up to 1,000 in one frame.",
        (
            "Quorum queues: aio-pika, publisher confirms, prefetch of one batch for each worker,"
            " who acknowledges what has come with one basic.ack; that has no reply, so the last"
            " thing measured is a round trip behind all of them."
        ),
        "Three copies are left out so far.",
    ),
)
