"""Spark session for benchmarks, with the memory of its processes."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from bench.figures import Row, Settings, ratios
from bench.machine import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def session(settings: Settings) -> "Generator[SparkSession, None, None]":
    """Run Spark with two tasks at a time while the block runs."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (there may be none)

    from bench.spark_ceiling import CeilingSource  # noqa: PLC0415

    os.environ["PYTHONPATH"] = str(ROOT)  # The tasks import the ceiling.
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("tidelog-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(settings.directory / "spark"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(CeilingSource)
    try:
        yield spark
    finally:
        spark.stop()


def read_rate(table: "DataFrame", record_count: int) -> float:
    """Return records a second that Spark reads and discards."""
    began = perf_counter()
    table.write.format("noop").mode("overwrite").save()
    return record_count / (perf_counter() - began)


def ratio_row(
    what: str, mine: list[float], other: list[float], *, goal: float | None = None
) -> Row:
    """Return a row with a ratio of rates, each pair measured in succession."""
    ratio = ratios(mine, other)
    if goal is None:
        return Row(what, ratio.text(".2f"))
    return Row(what, ratio.text(".2f"), f">= {goal}", ratio.median >= goal)


def worker_peaks() -> list[int]:
    """Return the peak of resident bytes of each worker process of this session."""
    parents: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            status = (process / "status").read_text(encoding="ascii")
        except OSError:
            continue  # The process has ended.
        lines = dict(line.split(":", 1) for line in status.splitlines())
        number = int(process.name)
        parents[number] = int(lines["PPid"])
        if b"pyspark.daemon" in command and "VmHWM" in lines:
            peaks[number] = int(lines["VmHWM"].split()[0]) * 1024
    return [peak for number, peak in peaks.items() if _is_ours(number, parents)]


def _is_ours(number: int, parents: Mapping[int, int]) -> bool:
    while number in parents and number != os.getpid():
        number = parents[number]
    return number == os.getpid()
