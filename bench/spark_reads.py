"""Benchmark of batch reads, against a Parquet scan of the same rows and Spark's own transport."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.figures import Row, Settings, Spread
from bench.spark_ceiling import NAME
from bench.spark_records import PARTITIONS, SHAPES, Shape
from bench.spark_session import ratio_row, read_rate, worker_peaks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TWO_COLUMNS = "value binary, offset long"
_PARQUET_GOAL = 0.9
_CEILING_GOAL = 0.9
_TWO_COLUMNS_GOAL = 2.0
_MEMORY_GOAL_MB = 400


def reads(
    spark: "SparkSession", settings: Settings, address: str, *, record_count: int
) -> list[Row]:
    """Read topics, alternately with the reference."""
    rows: list[Row] = []
    for shape in SHAPES:
        rows += _reads(spark, settings, address, what=(shape, record_count // shape.share))
    return rows


def _reads(
    spark: "SparkSession", settings: Settings, address: str, *, what: tuple[Shape, int]
) -> list[Row]:
    shape, record_count = what

    def ours(schema: str | None = None) -> "DataFrame":
        reader = spark.read.format("tidelog").options(**_options(address, shape.topic))
        return (reader.schema(schema) if schema else reader).load()

    def ceiling() -> "DataFrame":
        rows = record_count // PARTITIONS
        reader = spark.read.format(NAME).options(topic=shape.topic, rows=rows, tasks=PARTITIONS)
        return reader.load()

    parquet = str(settings.directory / shape.topic)
    ours().write.parquet(parquet)
    steps: list[Callable[[], DataFrame]] = [
        ours,
        lambda: spark.read.parquet(parquet),
        ceiling,
        lambda: ours(_TWO_COLUMNS),
    ]
    # The first rounds warm up, because the JVM compiles frequent code as it runs.
    rounds = [
        [read_rate(step(), record_count) for step in steps] for _ in range(settings.choose(9, 4))
    ][2:]
    mine, scan, best, two = (list(column) for column in zip(*rounds, strict=True))
    name = f"spark: {record_count:,} records, {shape.text}, 7 columns"
    return [
        ratio_row(f"{name}, to a Parquet scan", mine, scan, goal=_PARQUET_GOAL),
        ratio_row(f"{name}, to Spark's own transport", mine, best, goal=_CEILING_GOAL),
        ratio_row(f"{name}: Spark's own transport to a Parquet scan", best, scan),
        ratio_row(f"{name}: value and offset only, to all", two, mine, goal=_TWO_COLUMNS_GOAL),
        Row(f"{name}, records/s", Spread.of(mine).text()),
    ]


def memory(spark: "SparkSession", address: str, topic: str, *, record_count: int) -> list[Row]:
    """Read all records with one task for each partition."""
    table = spark.read.format("tidelog").options(**_options(address, topic)).load()
    rate = read_rate(table, record_count)
    assert table.count() == record_count, "records are missing"
    megabytes = max(worker_peaks()) / 1e6
    return [
        Row(
            f"spark: most resident memory of a worker, {record_count:,} records, MB",
            f"{megabytes:.0f}",
            f"<= {_MEMORY_GOAL_MB}",
            megabytes <= _MEMORY_GOAL_MB,
        ),
        Row("spark: one task for each partition of them, records/s", f"{rate:,.0f}"),
    ]


def _options(address: str, topic: str) -> dict[str, str]:
    """Return options for one task per partition."""
    return {
        "bootstrap.servers": address,
        "subscribe": topic,
        "maxRecordsPerPartition": str(1 << 40),
    }
