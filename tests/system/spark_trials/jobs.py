"""Jobs of drivers; see `driver`. Rows are numbers, each once.

A value is a number, padded with blanks, so that the values exceed the buffers.
"""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from tests.system.spark_trials.gate import Gate

VALUE_BYTES = 1000
Options = Mapping[str, str]


def value_of(number: int) -> bytes:
    """Return the value of a number."""
    return b"%d" % number + b" " * (VALUE_BYTES - len(str(number)))


def read(spark: SparkSession, options: Options, gate: Gate | None = None) -> list[int]:
    """Return the numbers in a topic, past a gate."""
    rows = spark.read.format("tidelog").options(**options).load()
    return [row.number for row in rows.select(_gated(gate).alias("number")).collect()]


def decode(spark: SparkSession, options: Options, gate: Gate | None = None) -> list[int]:
    """Return the numbers in the decoded values of a topic, past a gate."""
    rows = spark.read.format("tidelog").options(**options).load()
    number = _past(gate, sql.col("value.number"))
    return [row.number for row in rows.select(number.alias("number")).collect()]


def write(spark: SparkSession, options: Options, count: int, gate: Gate | None = None, /) -> None:
    """Write the numbers below `count` in four tasks, past a gate."""
    numbers = spark.range(0, count, 1, 4).selectExpr("cast(id as string) as value")
    rows = numbers.select(_padded(_gated(gate)).alias("value"))
    rows.write.format("tidelog").options(**options).mode("append").save()


def copy(
    spark: SparkSession, source: Options, sink: Options, folder: str, gate: Gate | None = None, /
) -> None:
    """Copy the topic by a stream, past a gate; `folder` has its checkpoint."""
    stream = spark.readStream.format("tidelog").options(**source).load()
    _run(stream.select(_padded(_gated(gate)).alias("value")), sink, folder)


def collect(
    spark: SparkSession, source: Options, folder: str, gate: Gate | None = None, /
) -> list[int]:
    """Return the rows that a stream reads up to the current end, past a gate."""
    stream = spark.readStream.format("tidelog").options(**source).load()
    found: dict[int, list[int]] = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        found[batch_id] = [row.number for row in batch.collect()]

    numbers = stream.select(_gated(gate).alias("number"))
    writer = numbers.writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(Path(folder, "checkpoint")))
    writer.trigger(availableNow=True).start().awaitTermination()
    return [number for batch in found.values() for number in batch]


def _run(rows: DataFrame, sink: Options, folder: str) -> None:
    writer = rows.writeStream.format("tidelog").options(**sink)
    writer = writer.option("checkpointLocation", str(Path(folder, "checkpoint")))
    writer.trigger(availableNow=True).start().awaitTermination()


def _gated(gate: Gate | None) -> Column:
    """Return the number of a value, for which a gate may be closed."""
    return _past(gate, sql.trim(sql.col("value").cast("string")).cast("bigint"))


def _past(gate: Gate | None, number: Column) -> Column:
    if gate is None:
        return number

    def pass_by(number: int) -> int:
        gate.pass_by(number)
        return number

    return sql.udf(pass_by, "bigint")(number)


def _padded(number: Column) -> Column:
    return sql.rpad(number.cast("string"), VALUE_BYTES, " ")
