"""Store of results: one JSON file for each row and peer, so that parts can be repeated."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, final

from bench.figures import Spread, ratios
from bench.peers.promises import Promise

OWN: Final = "tidelog"
_LEFT_OUT: Final = "left-out.json"

Sample = dict[str, float]
"""Figures of one repetition, by the name of a metric."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure and its direction."""

    title: str
    is_rate: bool
    """Whether a higher figure is better."""
    form: str = ",.0f"


METRICS: Final = {
    "produced": Metric("records produced a second", is_rate=True),
    "produce_server_us": Metric(
        "CPU of the servers, µs a record produced", is_rate=False, form=",.2f"
    ),
    "produce_client_us": Metric("CPU of the producer, µs a record", is_rate=False, form=",.2f"),
    "produce_us": Metric("CPU of both, µs a record produced", is_rate=False, form=",.2f"),
    "consumed": Metric("records consumed a second", is_rate=True),
    "consume_server_us": Metric(
        "CPU of the servers, µs a record consumed", is_rate=False, form=",.2f"
    ),
    "consume_client_us": Metric("CPU of the consumer, µs a record", is_rate=False, form=",.2f"),
    "consume_us": Metric("CPU of both, µs a record consumed", is_rate=False, form=",.2f"),
    "drained": Metric("records consumed a second, while more are produced", is_rate=True),
    "drain_us": Metric("CPU of all, µs a record consumed", is_rate=False, form=",.2f"),
    "worked": Metric("messages sent, received and deleted a second", is_rate=True),
    "work_server_us": Metric("CPU of the servers, µs a message", is_rate=False, form=",.1f"),
    "work_client_us": Metric("CPU of sender and workers, µs a message", is_rate=False, form=",.1f"),
    "spark_rows": Metric("rows a second in Spark", is_rate=True),
    "spark_server_us": Metric("CPU of the servers, µs a row", is_rate=False, form=",.2f"),
    "p50": Metric("latency, median, ms", is_rate=False, form=",.2f"),
    "p99": Metric("latency, 99 %, ms", is_rate=False, form=",.2f"),
    "p99.9": Metric("latency, 99.9 %, ms", is_rate=False, form=",.2f"),
    "max": Metric("latency, longest, ms", is_rate=False, form=",.1f"),
    "rate": Metric("records a second offered", is_rate=True),
    "start_s": Metric("start, s", is_rate=False, form=",.2f"),
    "idle_cpu": Metric("CPU when idle, % of a core", is_rate=False, form=",.2f"),
    "idle_mb": Metric("memory when idle, MB", is_rate=False),
    "loaded_mb": Metric("memory after the load, MB", is_rate=False),
    "disk_bytes": Metric("disk, bytes a record of 100 bytes", is_rate=False, form=",.1f"),
    "installed_mb": Metric("installed size, MB", is_rate=False),
}


@dataclass(frozen=True, slots=True, order=True)
class RowId:
    """Key of a row: a workload, a promise and a case."""

    workload: str
    promise: str
    case: str

    @property
    def slug(self) -> str:
        """Key as a part of file names and topic names."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.workload} {self.promise} {self.case}".lower())


@dataclass(frozen=True, slots=True)
class RowResult:
    """Repetitions of tidelog and of one peer, measured in turn."""

    row: RowId
    what: str
    """Description of the case."""
    peer: str
    ours: Sequence[Sample]
    theirs: Sequence[Sample]
    is_quick: bool
    machine: str = ""
    versions: str = ""
    date: str = ""

    def metrics(self) -> list[str]:
        """Return the metrics of both sides, in the order of `METRICS`."""
        sides = [*self.ours, *self.theirs]
        return [name for name in METRICS if all(name in sample for sample in sides)]

    def spread(self, metric: str, *, is_ours: bool) -> Spread:
        """Return the figures of one side."""
        return Spread.of(each[metric] for each in (self.ours if is_ours else self.theirs))

    def ratio(self, metric: str) -> Spread:
        """Return the ratios of tidelog to the peer, each pair measured in direct succession.

        Figures below a thousandth of their unit count as that, to avoid a division by zero.
        """
        floor = 1e-3
        ours = [max(each[metric], floor) for each in self.ours]
        theirs = [max(each[metric], floor) for each in self.theirs]
        return ratios(ours, theirs)

    def line(self) -> str:
        """Return all ratios as a line."""
        parts = [f"{name} {self.ratio(name).text('.2f')}" for name in self.metrics()]
        return f"{self.row.slug}, tidelog to {self.peer}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An unmeasured row, and the reason."""

    row: RowId
    """An empty promise: all of the workload; an empty case: all of them under that promise."""
    name: str
    """Name of the system; empty: no system was measured."""
    why: str

    def line(self) -> str:
        """Return the reason as a line."""
        place = self.row.slug.strip("-") or "everything"
        return f"{place}: {self.name or 'the row'} is left out: {self.why}"


@final
class Store:
    """Directory of results; a new result replaces the earlier one of its row and peer."""

    def __init__(self, directory: Path, *, machine: str = "", date: str = "") -> None:
        """Open a store, with the machine and date of new results."""
        self._directory = directory
        self._machine = machine
        self._date = date
        self.versions: dict[str, str] = {}
        """Versions of systems, by name."""

    def keep(self, result: RowResult) -> None:
        """Write a result."""
        self._directory.mkdir(parents=True, exist_ok=True)
        content = asdict(result)
        content["machine"] = self._machine
        content["date"] = self._date
        content["versions"] = self.versions.get(result.peer, "unknown")
        path = self._directory / f"{result.row.slug}--{result.peer}.json"
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        self._write_left_out(
            [
                each
                for each in self.left_out()
                if each.row != result.row or each.name not in ("", result.peer, OWN)
            ]
        )

    def leave_out(self, left_out: LeftOut) -> None:
        """Record an unmeasured row, once; earlier results stay."""
        others = [
            each
            for each in self.left_out()
            if (each.row, each.name) != (left_out.row, left_out.name)
        ]
        self._write_left_out([*others, left_out])

    def begin(self, workload: str, promise: str, name: str = "") -> None:
        """Remove the reasons for servers left out (one system's, or all) before a new attempt."""
        row = RowId(workload, promise, "")
        self._write_left_out(
            [each for each in self.left_out() if each.row != row or name not in ("", each.name)]
        )

    def left_out(self) -> list[LeftOut]:
        """Return the rows that were left out since their last measurement."""
        path = self._directory / _LEFT_OUT
        if not path.exists():
            return []
        found = json.loads(path.read_text(encoding="utf-8"))
        return [LeftOut(RowId(**each["row"]), each["name"], each["why"]) for each in found]

    def _write_left_out(self, left_out: Sequence[LeftOut]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        content = json.dumps([asdict(each) for each in left_out], indent=1)
        (self._directory / _LEFT_OUT).write_text(content + "\n", encoding="utf-8")

    def load(self) -> list[RowResult]:
        """Return all results, in the order of their names."""
        found: list[RowResult] = []
        for path in sorted(self._directory.glob("*--*.json")):
            content = json.loads(path.read_text(encoding="utf-8"))
            content["row"] = RowId(**content["row"])
            found.append(RowResult(**content))
        return sorted(found, key=_place)


def _place(result: RowResult) -> tuple[str, int, str, str]:
    promises = [promise.value for promise in Promise]
    row = result.row
    return row.workload, promises.index(row.promise), row.case, result.peer
