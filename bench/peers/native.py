"""The load tools that peers bring along. From a cold JVM: no upper bound where runs are short.

They are no Python, so tidelog's own client is at a disadvantage here, and its CPU is not compared.
"""

import itertools
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from bench.peers.cases import Case, Workload
from bench.peers.kafka import java
from bench.peers.measuring import scaled
from bench.peers.promises import Promise
from bench.peers.results import Sample
from bench.peers.running import Measure, Running

_VALUE_BYTES: Final = 100
_PATIENCE_S: Final = 120.0
_FIRST: Final = 200_000
_COUNT_MAX: Final = 3_000_000
_SECONDS: Final = 4.0
"""How long one repetition produces, about."""
_PRODUCED: Final = re.compile(r"^\d+ records sent, ([0-9.]+) records/sec", re.MULTILINE)
_FETCH_RATE: Final = "fetch.nMsg.sec"
_PRODUCER: Final = ("acks=all", "batch.size=1000000", "linger.ms=5", "buffer.memory=268435456")
"""Batches as large as those of librdkafka: the 16 KiB of its own would slow the tool down."""
_TOOLS: Final = "org.apache.kafka.tools"


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return one partition with 100 bytes: one copy in memory is where servers can do most."""
    if promise is not Promise.MEMORY_ONE:
        return []
    what = "100 B, 1 partition, the peer's own load tools"
    del is_quick
    return [Case("100 B 01", what, _measure(defaultdict(lambda: _FIRST)), 12.0, tuple(_NATIVE))]


def _measure(counts: dict[str, int]) -> Measure:
    """Return what measures once, and says how many records the next repetition gets.

    They are many: the tools count from their start, when a JVM has compiled nothing yet.
    """

    def measure(running: Running, name: str) -> Sample:
        running.do(running.order("create", name))
        system = running.system.name
        count = counts[system]
        sample = _NATIVE.get(system, _own)(running, name, count)
        if count == _FIRST:
            counts[system] = scaled(sample["produced"], _SECONDS, low=_FIRST, high=_COUNT_MAX)
        running.do(running.order("delete", name))
        return sample

    return measure


def _own(running: Running, name: str, count: int) -> Sample:
    more = {"count": count, "value_bytes": _VALUE_BYTES}
    (produced,), _ = running.do(running.order("produce", name, **more))
    (consumed,), _ = running.do(running.order("consume", name, **more))
    return {
        "produced": count / (produced.ended - produced.began),
        "consumed": count / (consumed.ended - consumed.began),
    }


def _kafka(running: Running, name: str, count: int) -> Sample:
    addresses = running.servers.addresses
    produced = _run(
        running,
        "ProducerPerformance",
        *("--topic", name, "--num-records", str(count), "--record-size", str(_VALUE_BYTES)),
        *("--throughput", "-1", "--bootstrap-server", addresses),
        *("--command-property", *_PRODUCER),
    )
    consumed = _run(
        running,
        "ConsumerPerformance",
        *("--bootstrap-server", addresses, "--topic", name, "--num-records", str(count)),
        *("--group", f"native-{name}", "--timeout", "60000"),
    )
    return {"produced": produced_rate(produced), "consumed": fetched_rate(consumed)}


def _run(running: Running, tool: str, *options: str) -> str:
    """Return what a tool of Kafka writes.

    Raises:
        RuntimeError: It failed.
    """
    command = java(running.installed, f"{_TOOLS}.{tool}", *options)
    result = subprocess.run(
        command, capture_output=True, check=False, text=True, timeout=_PATIENCE_S
    )
    if result.returncode:
        raise RuntimeError(f"{tool} failed: {result.stderr[-500:]}")
    return result.stdout


def produced_rate(output: str) -> float:
    """Return records a second, of all that were sent, from what `ProducerPerformance` writes.

    Raises:
        RuntimeError: There is no such line.
    """
    found = _PRODUCED.findall(output)
    if not found:
        raise RuntimeError(f"no rate in: {output[-500:]}")
    return float(found[-1])


def fetched_rate(output: str) -> float:
    """Return records a second, while it fetched, from what `ConsumerPerformance` writes.

    Raises:
        RuntimeError: There is no such column.
    """
    lines = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    for head, row in itertools.pairwise(lines):
        if _FETCH_RATE in head and len(row) == len(head):
            return float(row[head.index(_FETCH_RATE)])
    raise RuntimeError(f"no rate in: {output[-500:]}")


_NATIVE: Final[Mapping[str, Callable[[Running, str, int], Sample]]] = {"kafka": _kafka}
NATIVE: Final = Workload("native", "log", _cases)
