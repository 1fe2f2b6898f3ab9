"""The effect of compaction on a topic: the records that remain, the last one of each key.

    python examples/spark_compaction.py TOPIC [BROKER]

Needs a broker (`tidelog serve`), `pip install 'tidelog[spark]'` and Java.
"""

import sys
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import tidelog.spark


class Compaction(NamedTuple):
    """The records of the topic, and those that compaction leaves."""

    records: int
    keys: int
    deleted: int
    """Keys whose last record is a tombstone, which compaction deletes as well."""
    size_bytes: int
    kept_bytes: int


def check(spark: SparkSession, topic: str, address: str) -> Compaction:
    """Read a topic once; return the effect of compaction."""
    records = (
        spark.read.format("tidelog")
        .schema("key binary, value binary, partition int, offset long")
        .option("bootstrap.servers", address)
        .option("subscribe", topic)
        .load()
        .where("key IS NOT NULL")
        .withColumn("size", f.length("key") + f.coalesce(f.length("value"), f.lit(0)))
        .withColumn("has_value", f.col("value").isNotNull())
    )
    last = f.struct("offset", "size", "has_value")
    by_key = records.groupBy("partition", "key").agg(
        f.count("*").alias("records"), f.sum("size").alias("size"), f.max(last).alias("last")
    )
    total = by_key.agg(
        f.coalesce(f.sum("records"), f.lit(0)),
        f.count("*"),
        f.coalesce(f.sum(f.expr("IF(last.has_value, 0, 1)")), f.lit(0)),
        f.coalesce(f.sum("size"), f.lit(0)),
        f.coalesce(f.sum(f.expr("IF(last.has_value, last.size, 0)")), f.lit(0)),
    )
    return Compaction(*total.collect()[0])


def main() -> None:
    """Check the topic of the argument."""
    if len(sys.argv) < 2:  # noqa: PLR2004
        sys.exit("usage: python examples/spark_compaction.py TOPIC [BROKER]")
    address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:8433"  # noqa: PLR2004
    builder = SparkSession.builder.master("local[2]").appName("compaction")
    spark = tidelog.spark.session(builder)
    found = check(spark, sys.argv[1], address)
    print(
        f"{found.records} records with {found.keys} keys, {found.deleted} of them deleted:"
        f" {found.kept_bytes} of {found.size_bytes} bytes would be kept"
    )
    spark.stop()


if __name__ == "__main__":
    main()
