"""The load tools that peers bring along, as the upper bound of what their servers can do.

They are no Python, so tidelog's own client is at a disadvantage here, and its CPU is not compared.
"""

import itertools
import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from bench.peers.kafka import java
from bench.peers.measuring import OWN, Running, Session
from bench.peers.results import RowId, Sample

_VALUE_BYTES: Final = 100
_PRODUCED: Final = re.compile(r"^\d+ records sent, ([0-9.]+) records/sec", re.MULTILINE)
_FETCH_RATE: Final = "fetch.nMsg.sec"
_TOOLS: Final = "org.apache.kafka.tools"


def run(session: Session) -> None:
    """One partition, 100 bytes."""
    for promise in session.promises:
        with session.running("log", promise) as running:
            able = {name: each for name, each in running.items() if name == OWN or name in _NATIVE}
            count = session.choose(1_000_000, 100_000)

            def measure(running: Running, name: str, count: int = count) -> Sample:
                running.do(running.order("create", name))
                native = _NATIVE.get(running.system.name, _own)
                sample = native(running, name, count)
                running.do(running.order("delete", name))
                return sample

            what = "100 B, 1 partition, the peer's own load tools"
            session.measure(RowId("native", promise.value, "100 B 01"), what, measure, able)


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
        *("--throughput", "-1", "--bootstrap-server", addresses, "--command-property", "acks=all"),
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
    result = subprocess.run(command, capture_output=True, check=False, text=True)
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
