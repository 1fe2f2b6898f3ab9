"""Streaming delays per airline: six-hour windows over the time of departure, with a watermark.

    python examples/spark_delays.py [BROKER]

The timestamp of each record is the scheduled time of the flight. A window is complete when flights
arrive that are two days younger. Needs a broker (`tidelog serve`), `pip install
'tidelog[spark]'` and Java.
"""

import sys
import tempfile
from datetime import datetime

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

import tidelog.spark
from tidelog import blocking
from tidelog.demo.flights import load_flights

COLUMNS = load_flights().columns


def produce_flights(topic: str, address: str) -> int:
    """Produce all flights with their scheduled times; return their count."""
    flights = load_flights()
    scheduled = COLUMNS.index("time_hour")
    with blocking.connect(address) as client:
        # The data is older than the default retention of seven days.
        client.admin.create_topic(topic, partitions=3, retention_ms="unlimited")
        with client.producer() as producer:
            for key, value in zip(flights.keys, flights.values, strict=True):
                moment = datetime.fromisoformat(value.split(b",")[scheduled].decode())
                time_ms = int(moment.timestamp()) * 1000
                producer.send_nowait(topic, value, key=key, timestamp_ms=time_ms)
            producer.flush()
    return len(flights.values)


def delays(records: DataFrame) -> DataFrame:
    """Return the mean delay of each airline in each window, of flights that have left."""
    fields = f.split(f.col("value").cast("string"), ",")
    flights = records.select(
        "timestamp",
        fields[COLUMNS.index("carrier")].alias("airline"),
        f.expr(
            f"try_cast(split(CAST(value AS STRING), ',')[{COLUMNS.index('dep_delay')}] AS INT)"
        ).alias("minutes"),
    )
    return (
        flights.where("minutes IS NOT NULL")
        .withWatermark("timestamp", "2 days")
        .groupBy(f.window("timestamp", "6 hours"), "airline")
        .agg(f.avg("minutes").alias("mean_delay"), f.count("*").alias("flights"))
    )


def stream_delays(spark: SparkSession, topic: str, address: str, *, folder: str) -> list[Row]:
    """Read the topic to its end in micro-batches; return the complete windows."""
    records = (
        spark.readStream.format("tidelog")
        .option("bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 15_000)
        .load()
    )
    query = (
        delays(records)
        .writeStream.format("memory")
        .queryName("delays")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    behind = sum(tidelog.spark.lag(query.lastProgress).values())
    print(f"{len(query.recentProgress)} batches, {behind} records behind")
    return spark.table("delays").orderBy(f.desc("mean_delay")).collect()


def main() -> None:
    """Run the example."""
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8433"
    topic = "spark-delays"
    print(f"produced {produce_flights(topic, address)} flights")
    builder = SparkSession.builder.master("local[2]").appName("delays")
    spark = tidelog.spark.session(builder)
    with tempfile.TemporaryDirectory() as folder:
        windows = stream_delays(spark, topic, address, folder=folder)
    print(f"{len(windows)} windows are complete; the worst were")
    for row in windows[:5]:
        print(f"  {row.window.start:%d %b %H:%M}  {row.airline}  {row.mean_delay:.0f} minutes")
    spark.stop()


if __name__ == "__main__":
    main()
