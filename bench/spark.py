"""What Spark makes of a topic, against a Parquet scan of the same rows and Spark's own transport.

Needs pyspark and Java; without them the one row says what is missing.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING

from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ROOT, broker_process
from bench.produce import Batches
from bench.raw import RawConnection, pump
from client.address import Address
from spark_connector.java import JavaMissingError, prepare_java
from spark_connector.options import ConnectionOptions
from spark_connector.read_options import ReadOptions
from spark_connector.stream_source import Limit, StreamSource
from wire import api
from wire.produce import Acks
from wire.topics import CreateTopicRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS_IN_BATCH = 1000
_TASKS = 4
_ALL_PARTITIONS = 1000
_TWO_COLUMNS = "value binary, offset long"
_PARQUET_GOAL = 1.0
_CEILING_GOAL = 0.8
_TWO_COLUMNS_GOAL = 1.2
_LOOK_GOAL_MS = 5.0
_MEMORY_GOAL_MB = 400

_READ_ALONE = """
import resource, sys
from spark_connector.arrow import arrow_schema
from spark_connector.batch_plan import plan
from spark_connector.columns import RECORD_COLUMNS
from spark_connector.pool import borrowed
from spark_connector.read_options import ReadOptions
from spark_connector.slice_reader import read_slice
options = ReadOptions.parse({"bootstrap.servers": sys.argv[1], "subscribe": "spark",
                             "maxRecordsPerPartition": str(1 << 40)}, is_stream=False)
schema = arrow_schema(list(RECORD_COLUMNS), list(RECORD_COLUMNS.values()))
with borrowed(options.connection) as brokers:
    (whole,) = plan(brokers, options)
rows = sum(batch.num_rows for batch in read_slice(options, schema, whole))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def run(settings: Settings) -> list[Row]:
    """Write a topic, then read it in turn with what it is compared to."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return [Row("spark: left out", "pip install 'tidelog[spark]'")]
    try:
        prepare_java()
    except JavaMissingError as missing:
        return [Row("spark: left out", str(missing))]
    record_count = settings.choose(4_000_000, 400_000)
    with broker_process(settings.directory / "data") as server:
        address = "{}:{}".format(*server.address)
        broker = RawConnection(server.address)
        topic_id = broker.create_topic("spark", durability="replicated")
        batches = Batches(topic_id, _RECORDS_IN_BATCH, Acks.LEADER, 0)
        pump(broker.sock, batches.next_frame, record_count // _RECORDS_IN_BATCH, 4)
        broker.close()
        os.sched_setaffinity(0, range(os.cpu_count() or 1))  # Spark has all cores, as it would.
        rows = [*_memory(address), *_look(address, settings)]
        return [*_reads(settings, address, record_count), *rows]


def _reads(settings: Settings, address: str, record_count: int) -> list[Row]:
    with _session(settings) as spark:
        options = {"bootstrap.servers": address, "subscribe": "spark"}
        options["maxRecordsPerPartition"] = str(-(-record_count // _TASKS))

        def ours(schema: str | None = None) -> "DataFrame":
            reader = spark.read.format("tidelog").options(**options)
            return (reader.schema(schema) if schema else reader).load()

        def ceiling() -> "DataFrame":
            reader = spark.read.format("tidelog_ceiling")
            return reader.options(rows=record_count // _TASKS, tasks=_TASKS).load()

        parquet = str(settings.directory / "parquet")
        ours().write.parquet(parquet)
        steps: list[Callable[[], DataFrame]] = [
            ours,
            lambda: spark.read.parquet(parquet),
            ceiling,
            lambda: ours(_TWO_COLUMNS),
        ]
        rounds = [
            [_rate(step(), record_count) for step in steps] for _ in range(settings.choose(8, 3))
        ][1:]
    mine, scan, best, two = (list(column) for column in zip(*rounds, strict=True))
    what = f"spark: {record_count:,} records of 100 bytes, 7 columns"
    return [
        _ratio(f"{what}, to a Parquet scan", mine, scan, _PARQUET_GOAL),
        _ratio(f"{what}, to Spark's own transport", mine, best, _CEILING_GOAL),
        _ratio("spark: value and offset only, to 7 columns", two, mine, _TWO_COLUMNS_GOAL),
        Row("spark: 7 columns, records/s", Spread.of(mine).text()),
        Row("spark: Parquet, records/s", Spread.of(scan).text()),
        Row("spark: transport alone, records/s", Spread.of(best).text()),
    ]


def _ratio(what: str, mine: list[float], other: list[float], goal: float) -> Row:
    ratio = ratios(mine, other)
    return Row(what, ratio.text(".2f"), f">= {goal}", ratio.median >= goal)


def _rate(table: "DataFrame", record_count: int) -> float:
    began = perf_counter()
    table.write.format("noop").mode("overwrite").save()
    return record_count / (perf_counter() - began)


def _memory(address: str) -> list[Row]:
    """Read everything in one task, in a process of its own."""
    said = subprocess.run(
        [sys.executable, "-c", _READ_ALONE, address],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    row_count, kilobytes = map(int, said.stdout.split())
    megabytes = kilobytes / 1024
    return [
        Row(
            f"spark: resident memory of a task that reads {row_count:,} records, MB",
            f"{megabytes:.0f}",
            f"<= {_MEMORY_GOAL_MB}",
            megabytes <= _MEMORY_GOAL_MB,
        )
    ]


def _look(address: str, settings: Settings) -> list[Row]:
    """Ask how far a thousand partitions go, as an idle stream does."""
    host, port = address.split(":")
    connection = RawConnection((host, int(port)))
    connection.ask(api.CREATE_TOPIC, CreateTopicRequest("wide", _ALL_PARTITIONS, {}))
    connection.close()
    options = ReadOptions.parse({"bootstrap.servers": address, "subscribe": "wide"}, is_stream=True)
    assert options.connection == ConnectionOptions(addresses=(Address(host, int(port)),))
    clock = [0.0]

    def wait(seconds: float) -> None:
        clock[0] += seconds

    source = StreamSource(options, now=lambda: clock[0], wait=wait)
    start = source.initial()
    times: list[float] = []
    for _ in range(settings.choose(200, 20)):
        clock[0] += 1
        began = perf_counter()
        source.latest(start, Limit())
        times.append((perf_counter() - began) * 1000)
    spread = Spread.of(times)
    return [
        Row(
            f"spark: latestOffset over {_ALL_PARTITIONS:,} partitions, ms",
            spread.text(".1f"),
            f"<= {_LOOK_GOAL_MS:.0f}",
            spread.median <= _LOOK_GOAL_MS,
        )
    ]


def _session(settings: Settings) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415 (there may be none)

    from bench.spark_ceiling import CeilingSource  # noqa: PLC0415

    os.environ["PYTHONPATH"] = str(ROOT)  # The tasks import the ceiling.
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("tidelog-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(settings.directory / "spark"))
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(CeilingSource)
    return spark
