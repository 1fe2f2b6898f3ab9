"""Faults while Spark reads and writes, and the numbers that must exist at the end."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from tests.system.spark_trials.brokers import Brokers
from tests.system.spark_trials.driver import Driver, Drivers
from tests.system.spark_trials.gate import Gate
from tests.system.spark_trials.jobs import Options, value_of
from tests.system.spark_trials.waiting import wait_until

ROW_COUNT = 40_000
"""Rows of a thousand bytes each: more than a task buffers at a time."""
PARTITIONS = 2


@final
@dataclass(frozen=True, slots=True)
class Trial:
    """A cluster of Spark, three brokers, a folder and a topic."""

    brokers: Brokers
    drivers: Drivers
    folder: Path
    topic: str

    @property
    def driver(self) -> Driver:
        """A session with executors."""
        return self.drivers.get()

    def create(self, topic: str = "", *, replicas: int = 3) -> None:
        """Create a topic."""
        self.brokers.client.admin.create_topic(
            topic or self.topic, PARTITIONS, replication_factor=replicas
        )

    def fill(self, *, replicas: int = 3) -> None:
        """Create the topic, with each number once."""
        self.create(replicas=replicas)
        values = [value_of(number) for number in range(ROW_COUNT)]
        self.brokers.write(self.topic, values, PARTITIONS)

    def gate(self, number: int = ROW_COUNT // 4, *, failing: bool = False) -> Gate:
        """Return a gate in the middle of a task."""
        folder = self.folder / "gate"
        folder.mkdir()
        return Gate(str(folder), number, failing)

    def kill_executor(self, gate: Gate, *, staged: str = "") -> None:
        """Kill the executor that waits at a gate, once rows are staged for a topic."""
        executor = gate.wait_reached()
        if staged:
            self.wait_staged(staged)
        os.kill(executor, signal.SIGKILL)
        gate.open()

    def kill_driver(self, gate: Gate, *, staged: str = "") -> None:
        """Kill the driver when a task waits at a gate, and rows are staged for a topic."""
        gate.wait_reached()
        if staged:
            self.wait_staged(staged)
        self.driver.kill()
        gate.open()

    def kill_leader(self, topic: str, gate: Gate) -> int:
        """Kill the leader of a partition when a task waits at a gate; return the node."""
        gate.wait_reached()
        leader = self.brokers.leader(topic)
        self.brokers.kill(leader)
        gate.open()
        return leader

    def wait_staged(self, topic: str) -> None:
        """Wait until rows are staged for a topic."""
        wait_until(lambda: self.brokers.has_staged(topic), f"rows are staged for {topic}")

    def source(self, **options: str) -> Options:
        """Return options to read the topic."""
        return {**self._options("subscribe", self.topic), "startingOffsets": "earliest", **options}

    def sink(self, topic: str, **options: str) -> Options:
        """Return options to write to a topic."""
        return {**self._options("topic", topic), **options}

    def numbers(self, topic: str) -> list[int]:
        """Return the numbers in a topic."""
        return sorted(int(value) for value in self.brokers.values(topic))

    def _options(self, name: str, topic: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.brokers.addresses,
            "client.request.timeout.ms": "120s",
            name: topic,
        }


def is_each_once(numbers: Sequence[int], count: int = ROW_COUNT) -> bool:
    """Return whether these are all numbers below `count`, each once."""
    return sorted(numbers) == list(range(count))
