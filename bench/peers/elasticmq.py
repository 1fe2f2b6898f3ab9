"""ElasticMQ, a server with the API of Amazon SQS, with its messages in a database of its own."""

import os
from pathlib import Path
from typing import Final

from bench.peers.packages import from_maven
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

_VERSION: Final = "1.6.12"
_CONFIG: Final = """\
include classpath("application.conf")
node-address {{ host = "127.0.0.1", port = {port} }}
rest-sqs {{ bind-port = {port}, bind-hostname = "127.0.0.1" }}
rest-stats {{ enabled = false }}
"""
_STORAGE: Final = """\
messages-storage {{ enabled = true, uri = "jdbc:h2:{database};WRITE_DELAY=0" }}
"""


def install(root: Path) -> Installed:
    """Fetch the jars of the server."""
    from_maven(root, [f"org.elasticmq:elasticmq-server_2.13:{_VERSION}"])
    return Installed(root, _VERSION)


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Start a server whose messages are in an embedded database."""
    assert promise is Promise.MEMORY_ONE, "ElasticMQ has one copy, and its database does not sync"
    return _start(installed, directory, _STORAGE.format(database=directory / "messages"))


def start_in_memory(installed: Installed, directory: Path) -> Servers:
    """Start a server as it starts by default: its messages end with its process."""
    return _start(installed, directory, "")


def _start(installed: Installed, directory: Path, storage: str) -> Servers:
    (port,) = free_ports(1)
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "elasticmq.conf"
    config.write_text(_CONFIG.format(port=port) + storage, encoding="utf-8")
    jars = os.path.join(installed.root, "jars", "*")  # noqa: PTH118  (a pattern of Java)
    words = ["java", f"-Dconfig.file={config}", "-cp", jars, "org.elasticmq.server.Main"]
    return start_servers(directory, [Command(words)], [port])


ELASTICMQ: Final = System(
    name="elasticmq",
    title="ElasticMQ",
    client="boto3",
    install=install,
    start=start,
    settings={Promise.MEMORY_ONE: ("messages-storage with H2", "WRITE_DELAY=0")},
    promises={"queue": (Promise.MEMORY_ONE,)},
    remarks=(
        (
            "By default its messages are in the memory of its process alone, which is less than any"
            " of the promises. With messages-storage they are in H2, which writes each commit to"
            " its file with WRITE_DELAY=0, and does not sync it. There is one copy."
        ),
        (
            "boto3, one client with a connection for each thread. A call has 10 messages at most,"
            " as with Amazon SQS: larger batches are several calls."
        ),
    ),
)
