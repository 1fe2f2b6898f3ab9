"""NATS with JetStream, whose streams are files."""

from pathlib import Path
from typing import Final

from bench.peers.packages import debian_environment, debian_version, from_debian
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

_CONFIG: Final = """\
listen: "127.0.0.1:{port}"
max_payload: 8MB
jetstream {{
  store_dir: "{store}"
  max_file_store: 20GB
}}
"""


def install(root: Path) -> Installed:
    """Unpack Debian's package."""
    tree = from_debian(root, ["nats-server"])
    return Installed(root, debian_version(root, "nats-server"), debian_environment(tree))


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start a server whose streams are files."""
    assert promise is Promise.MEMORY_ONE, "nothing else is promised"
    (port,) = free_ports(1)
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "nats.conf"
    config.write_text(_CONFIG.format(port=port, store=directory / "store"), encoding="utf-8")
    command = Command(
        [str(installed.root / "tree" / "usr" / "sbin" / "nats-server"), "-c", str(config)],
        installed.environment,
    )
    return start_servers(directory, [command], [port])


NATS: Final = System(
    name="nats",
    title="NATS JetStream",
    client="nats-py",
    install=install,
    start=start,
    settings={Promise.MEMORY_ONE: ("storage: file", "num_replicas: 1", "acknowledged publishing")},
    promises={"log": (Promise.MEMORY_ONE,), "queue": (Promise.MEMORY_ONE,)},
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
            "With fsync it is left out: Debian's version syncs now and then, not before it"
            " acknowledges. Three copies are left out so far."
        ),
    ),
)
