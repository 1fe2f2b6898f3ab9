"""Apache Kafka in KRaft mode, from its jars: `kafka.Kafka` is all that its start script starts."""

import os
import subprocess
from pathlib import Path
from typing import Final

from bench.peers.packages import from_maven
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.peers.systems import Installed, System

VERSION: Final = "4.3.1"
_CLUSTER_ID: Final = "dGlkZWxvZy1iZW5jaG1hcg"
# What the start script of Kafka gives to a JVM.
_JVM: Final = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_THREE: Final = ("replication.factor=3", "min.insync.replicas=2")


def install(root: Path) -> Installed:
    """Fetch the jars of the broker and of its tools."""
    artifacts = ["kafka_2.13", "kafka-tools"]
    from_maven(root, [f"org.apache.kafka:{artifact}:{VERSION}" for artifact in artifacts])
    return Installed(root, VERSION)


def java(installed: Installed, *arguments: str) -> list[str]:
    """Return the command that starts a class of Kafka."""
    return ["java", *_JVM, "-cp", str(installed.root / "jars" / "*"), *arguments]


def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
    """Format the storage of each node, and start it."""
    count = promise.node_count
    ports = free_ports(2 * count)
    listeners, controllers = ports[:count], ports[count:]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
    paths: list[Path] = []
    for number, (port, controller) in enumerate(zip(listeners, controllers, strict=True), 1):
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"node-{number}.properties"
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / f"node-{number}"),
            "offsets.topic.replication.factor": str(count),
            "message.max.bytes": str(8 << 20),
        }
        path.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
        paths.append(path)
    for path in paths:
        subprocess.run(
            [
                *java(installed, "kafka.tools.StorageTool", "format"),
                "--cluster-id",
                _CLUSTER_ID,
                "--config",
                str(path),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ},
        )
    commands = [Command(java(installed, "kafka.Kafka", str(path))) for path in paths]
    return start_servers(directory, commands, listeners)


KAFKA: Final = System(
    name="kafka",
    title="Apache Kafka",
    client="confluent-kafka",
    install=install,
    start=start,
    settings={
        Promise.MEMORY_ONE: ("replication.factor=1", "acks=all", "enable.idempotence=true"),
        Promise.FSYNC_ONE: (
            "replication.factor=1",
            "flush.messages=1",
            "acks=all",
            "enable.idempotence=true",
        ),
        Promise.MEMORY_THREE: (*_THREE, "acks=all", "enable.idempotence=true"),
        Promise.FSYNC_THREE: (*_THREE, "flush.messages=1", "acks=all", "enable.idempotence=true"),
    },
    promises={"log": tuple(Promise)},
    warm_up_s=12.0,  # A JVM compiles frequent code as it runs.
    remarks=(
        "Heap and collector as in Kafka's own start script.",
        (
            "Producer: queue.buffering.max.messages=1000000, the rest as it comes; where latency is"
            " measured linger.ms=0. Always produce(): produce_batch() takes as much CPU a record,"
            " for it wants a dict for each."
        ),
        (
            "Consumer: queued.min.messages=1000000, queued.max.messages.kbytes=1000000,"
            " fetch.queue.backoff.ms=1, the rest as it comes (librdkafka does not check CRCs then;"
            " the client of tidelog always does)."
        ),
    ),
)
