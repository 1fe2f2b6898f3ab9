"""Benchmark of Spark on topics, against a Parquet scan of the same rows and Spark's own transport.

Needs pyspark and Java; without them the one row names the missing requirement.
"""

import os
from importlib.util import find_spec

from bench.figures import Row, Settings
from bench.machine import broker_process
from bench.raw import RawConnection
from tidelog.spark_connector.java import JavaMissingError, prepare_java


def run(settings: Settings) -> list[Row]:
    """Read and write topics, alternately with the reference."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return [Row("spark: left out", "pip install 'tidelog[spark]'")]
    try:
        prepare_java()
    except JavaMissingError as missing:
        return [Row("spark: left out", str(missing))]
    with broker_process(settings.directory / "data") as server:
        os.sched_setaffinity(
            0, range(os.cpu_count() or 1)
        )  # Spark has all cores, as in production.
        return _measure(settings, server.address)


def _measure(settings: Settings, address: tuple[str, int]) -> list[Row]:
    from bench.spark_reads import memory, reads  # noqa: PLC0415 (there may be no pyspark)
    from bench.spark_records import SHAPES, fill, fill_repeated  # noqa: PLC0415
    from bench.spark_session import session  # noqa: PLC0415
    from bench.spark_streams import look, micro_batches, part_of, writes  # noqa: PLC0415

    record_count = settings.choose(4_000_000, 400_000)
    replayed_count = settings.choose(10_000_000, 1_000_000)
    text = "{}:{}".format(*address)
    broker = RawConnection(address)
    for shape in SHAPES:
        fill(broker, shape, record_count)
    fill_repeated(broker, "replayed", replayed_count)
    rows = look(broker, text, settings)
    broker.close()
    with session(settings) as spark:
        read = reads(spark, settings, text, record_count=record_count)
        written = part_of(spark, settings, SHAPES[0].topic, record_count=record_count // 4)
        return [
            *read,
            *memory(spark, text, "replayed", record_count=replayed_count),
            *rows,
            *micro_batches(spark, settings, text),
            *writes(spark, settings, text, what=written),
        ]
