"""Workload in which Spark reads topics: as one batch, and as a stream that replays an hour.

All systems and repetitions share one Spark session in its own process, so that the JVM keeps its
compiled code.
"""

import atexit
import json
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, final

from bench.machine import ROOT
from bench.peers.cases import Case, Workload
from bench.peers.packages import NotAvailableError, from_maven
from bench.peers.promises import Promise
from bench.peers.results import OWN, Sample
from bench.peers.running import Measure, Running
from tidelog.spark_connector.java import JavaMissingError, prepare_java

_VALUE_BYTES: Final = 100
_PARTITIONS: Final = 4
_COUNT: Final = 3_600_000
"""An hour of 1,000 records a second."""
_COUNT_QUICK: Final = 400_000
_MICRO_BATCHES: Final = 10
"""Micro-batches of the replay: six minutes of that hour each."""
_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""Version of the newest Kafka source, which later versions of Spark 4 accept too."""
_JARS: Final = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
"""Modules that Spark does not include."""


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return a batch and a stream, beside Kafka, whose source comes with Spark."""
    if promise is not Promise.MEMORY_ONE:
        return []
    count = _COUNT_QUICK if is_quick else _COUNT
    what = f"{count:,} records of 100 B in {_PARTITIONS} partitions, all columns"
    filled: dict[str, str] = {}
    return [
        Case("batch", f"Spark reads {what}", _measure("batch", count, filled), 5.0, ("kafka",)),
        Case(
            "stream",
            f"Spark replays {what}, in {_MICRO_BATCHES} micro-batches",
            _measure("stream", count, filled),
            10.0,
            ("kafka",),
        ),
    ]


def _measure(kind: str, count: int, filled: dict[str, str]) -> Measure:
    """Return a measurement that reads the same topic of a system repeatedly; `filled` names it."""

    def measure(running: Running, name: str) -> Sample:
        spark, system = _spark(), running.system.name
        if system not in filled:
            topic = f"spark-{name}"
            running.errand("create", topic, partitions=_PARTITIONS)
            more = {"count": count, "value_bytes": _VALUE_BYTES, "partitions": _PARTITIONS}
            running.do(running.order("produce", topic, **more))
            filled[system] = topic
        before = running.servers.cpu_seconds
        seconds, rows = spark.read(
            kind, system, {**_options(running), "subscribe": filled[system]}, count=count
        )
        expected = rows_of(system, count)
        assert rows == expected, f"{rows} rows where {expected} are expected"
        return {
            "spark_rows": rows / seconds,
            "spark_server_us": (running.servers.cpu_seconds - before) / rows * 1e6,
        }

    return measure


def rows_of(system: str, count: int) -> int:
    """Return the rows of a topic after a producer has sent `count` records.

    tidelog's producer sends an empty record first, to connect.
    """
    return count + 1 if system == OWN else count


def _options(running: Running) -> dict[str, str]:
    """Return the options of each source; all others have their defaults."""
    address = running.servers.addresses
    if running.system.name == OWN:
        return {"bootstrap.servers": address}
    return {"kafka.bootstrap.servers": address}


@final
class _Spark:
    """A process with a Spark session."""

    def __init__(self) -> None:
        """Start the process, with Spark's own source for Kafka.

        Raises:
            NotAvailableError: pyspark, Java or the Kafka source is missing.
        """
        if find_spec("pyspark") is None:
            raise NotAvailableError("needs pyspark: pip install 'tidelog[spark]'")
        try:
            prepare_java()
        except JavaMissingError as missing:
            raise NotAvailableError(str(missing)) from missing
        jars = from_maven(ROOT / "build" / "peers" / "spark-kafka", [_CONNECTOR])
        path = ":".join(
            str(jar) for name in _JARS for jar in sorted(jars.glob(f"{name}-[0-9]*.jar"))
        )
        self._directory = tempfile.TemporaryDirectory(prefix="tidelog-bench-spark-")
        self._log = Path(self._directory.name, "log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.peers.spark_process", path, self._log.parent],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        atexit.register(self.close)

    def read(
        self, kind: str, form: str, options: dict[str, str], *, count: int
    ) -> tuple[float, int]:
        """Read as a `batch` or as a `stream`; return the seconds, and the number of rows.

        Raises:
            RuntimeError: The process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"kind": kind, "format": form, "options": options, "rows": count // _MICRO_BATCHES}
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline() or "null")
        except (OSError, ValueError) as error:
            raise RuntimeError(f"Spark has ended: {error}; {self._last_line()}") from error
        if answer is None:
            raise RuntimeError(f"Spark has ended: {self._last_line()}")
        return answer["seconds"], answer["rows"]

    def close(self) -> None:
        """Stop the process and remove its files."""
        self._process.kill()
        self._process.wait()
        self._directory.cleanup()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "silently")


@cache
def _spark() -> _Spark:
    """Return the shared session process."""
    return _Spark()


SPARK: Final = Workload("spark", "log", _cases)
