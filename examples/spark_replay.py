"""Replay of the last hour of a topic into a table, as a batch of Spark.

    python examples/spark_replay.py [TOPIC] [BROKER]

Writes some flights first, so that there is something to replay. Needs a broker (`tidelog serve`),
`pip install 'tidelog[spark]'` and Java.
"""

import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession

import tidelog.spark
from tidelog import blocking
from tidelog.demo.flights import load_flights


def produce_flights(topic: str, address: str) -> int:
    """Produce all flights now; return their count."""
    flights = load_flights()
    with blocking.connect(address) as client:
        if topic not in client.admin.list_topics():
            client.admin.create_topic(topic, partitions=3)
        with client.producer(compression_type="zstd") as producer:
            for key, value in zip(flights.keys, flights.values, strict=True):
                producer.send_nowait(topic, value, key=key)
            producer.flush()
    return len(flights.values)


def last_hour(spark: SparkSession, topic: str, address: str) -> DataFrame:
    """Return the records of the last hour of a topic."""
    return (
        spark.read.format("tidelog")
        .option("bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingTimestamp", "1h")
        .load()
    )


def replay(spark: SparkSession, topic: str, address: str, *, folder: str) -> int:
    """Write the last hour into a table of Parquet files in `folder`; return its rows."""
    records = last_hour(spark, topic, address)
    rows = records.selectExpr(
        "CAST(key AS STRING) AS tail_number",
        "CAST(value AS STRING) AS flight",
        "partition",
        "offset",
        "timestamp",
    )
    rows.write.mode("overwrite").parquet(folder)
    return spark.read.parquet(folder).count()


def main() -> None:
    """Run the example."""
    given = sys.argv[1:]
    topic, address = (*given, *("spark-flights", "127.0.0.1:8433")[len(given) :])[:2]
    print(f"produced {produce_flights(topic, address)} flights")
    builder = SparkSession.builder.master("local[2]").appName("replay")
    spark = tidelog.spark.session(builder)
    with tempfile.TemporaryDirectory() as folder:
        print(f"replayed {replay(spark, topic, address, folder=folder)} records into a table")
    spark.stop()


if __name__ == "__main__":
    main()
