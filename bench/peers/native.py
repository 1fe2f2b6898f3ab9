"""Workload with the load tools of the peers, which are independent of their Python clients.

The tools are not Python, so tidelog's client is at a disadvantage, and its CPU is not compared. A
JVM compiles frequent code as it runs: Kafka's producer tool first sends as many records as the
measured ones, and of the consumed records the latter half counts.
"""

import csv
import io
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
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
"""Approximate seconds of one repetition's producer, without the warm-up."""
_PRODUCED: Final = re.compile(
    r"^\d+ steady state records sent, ([0-9.]+) records/sec", re.MULTILINE
)
_CONSUMED: Final = "data.consumed.in.nMsg"
_CONSUMED_AT: Final = "time"
_CLOCK: Final = "%Y-%m-%d %H:%M:%S:%f"
_INTERVAL_MS: Final = 200
_PRODUCER: Final = ("acks=all", "batch.size=1000000", "linger.ms=5", "buffer.memory=268435456")
"""Batches as large as those of librdkafka: the 16 KiB of its own would slow the tool down."""
_TOOLS: Final = "org.apache.kafka.tools"


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return one partition with 100 bytes: the highest rates need one copy in memory."""
    if promise is not Promise.MEMORY_ONE:
        return []
    what = "100 B, 1 partition, the peer's own load tools"
    del is_quick
    return [Case("100 B 01", what, _measure(defaultdict(lambda: _FIRST)), 9.0, tuple(_NATIVE))]


def _measure(counts: dict[str, int]) -> Measure:
    """Return a measurement that adapts the record count of the next repetition."""

    def measure(running: Running, name: str) -> Sample:
        running.errand("create", name)
        system = running.system.name
        count = counts[system]
        sample = _NATIVE.get(system, _own)(running, name, count)
        if count == _FIRST:
            counts[system] = scaled(sample["produced"], _SECONDS, low=_FIRST, high=_COUNT_MAX)
        running.errand("delete", name)
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
    """Produce and consume twice as many records with Kafka's tools; the latter half counts."""
    addresses, total = running.servers.addresses, str(2 * count)
    produced = _run(
        running,
        "ProducerPerformance",
        *("--topic", name, "--num-records", total, "--record-size", str(_VALUE_BYTES)),
        *("--throughput", "-1", "--warmup-records", str(count)),
        *("--bootstrap-server", addresses),
        *("--command-property", *_PRODUCER),
    )
    consumed = _run(
        running,
        "ConsumerPerformance",
        *("--bootstrap-server", addresses, "--topic", name, "--num-records", total),
        *("--group", f"native-{name}", "--timeout", "60000"),
        *("--show-detailed-stats", "--reporting-interval", str(_INTERVAL_MS)),
    )
    return {"produced": produced_rate(produced), "consumed": consumed_rate(consumed)}


def _run(running: Running, tool: str, *options: str) -> str:
    """Return the output of a Kafka tool.

    Raises:
        RuntimeError: The tool failed.
    """
    command = java(running.installed, f"{_TOOLS}.{tool}", *options)
    result = subprocess.run(
        command, capture_output=True, check=False, text=True, timeout=_PATIENCE_S
    )
    if result.returncode:
        raise RuntimeError(f"{tool} failed: {result.stderr[-500:]}")
    return result.stdout


def produced_rate(output: str) -> float:
    """Return records a second after the warm-up, from the output of `ProducerPerformance`.

    Raises:
        RuntimeError: The output has no such line.
    """
    found = _PRODUCED.findall(output)
    if not found:
        raise RuntimeError(f"no rate in: {output[-500:]}")
    return float(found[-1])


def consumed_rate(output: str) -> float:
    """Return records a second of the latter half, from the output of `ConsumerPerformance`.

    Raises:
        RuntimeError: The output has fewer than two lines with a count and a time.
    """
    table = csv.DictReader(io.StringIO(output), skipinitialspace=True)
    reports = [
        (datetime.strptime(row[_CONSUMED_AT], _CLOCK).replace(tzinfo=UTC), int(row[_CONSUMED]))
        for row in table
        if row.get(_CONSUMED_AT) and (row.get(_CONSUMED) or "").isdigit()
    ]
    ended_at, total = reports[-1] if reports else (None, 0)
    for began_at, before in reversed(reports):
        if ended_at is not None and before * 2 <= total and began_at < ended_at:
            return (total - before) / (ended_at - began_at).total_seconds()
    raise RuntimeError(f"no rate in: {output[-500:]}")


_NATIVE: Final[Mapping[str, Callable[[Running, str, int], Sample]]] = {"kafka": _kafka}
NATIVE: Final = Workload("native", "log", _cases)
