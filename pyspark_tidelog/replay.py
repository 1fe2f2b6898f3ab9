"""A program that replays a topic with Spark in its own process.

    python -m pyspark_tidelog.replay ADDRESS TOPIC QUEUE

Shell: `tidelog demo` starts it and reads one line of JSON: the results of the replay, or a missing
requirement under `missing`. Spark's own output goes to standard error.
"""

import json
import signal
import sys
import tempfile
import time
from types import FrameType
from typing import TYPE_CHECKING

from pyspark_tidelog import failure, prepare_java, register
from tidelog.spark_connector.java import JavaMissingError
from tidelog.spark_connector.options import SERVERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENDED_BY_SIGNAL = 128 + signal.SIGTERM


def replay(address: str, topic: str, queue: str) -> dict[str, object]:
    """Return row counts of a topic and of a queue's history, or the missing requirement."""
    if failure is not None:
        return {"missing": f"Spark is not installed ({failure}); pip install 'tidelog[spark]'"}
    try:
        prepare_java()
    except JavaMissingError as missing:
        return {"missing": str(missing)}
    with tempfile.TemporaryDirectory(prefix="tidelog-demo-spark-") as folder:
        try:
            return _replay(address, topic, queue, folder=folder)
        except Exception as error:  # noqa: BLE001 (the demo shows any error of Spark)
            lines = str(error).split("\n")
            why = next((line for line in lines if "Error: " in line), lines[0])
            return {"missing": f"Spark failed: {why.strip()}"}


def _replay(address: str, topic: str, queue: str, *, folder: str) -> dict[str, object]:
    # `failure` is None, so pyspark is installed.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    began = time.monotonic()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("tidelog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", folder)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    try:
        register(spark)
        started = time.monotonic()
        records = _load(spark, "value binary", {SERVERS: address, "subscribe": topic})
        (rows,) = records.selectExpr("count(*) AS count", "sum(crc32(value)) AS checksum").collect()
        replayed = time.monotonic()
        history = _load(spark, "event string", {SERVERS: address, "queueHistory": queue})
        events = {row["event"]: row["count"] for row in history.groupBy("event").count().collect()}
    finally:
        spark.stop()
    return {
        "rows": rows["count"],
        "checksum": rows["checksum"],
        "events": events,
        "start_seconds": started - began,
        "replay_seconds": replayed - started,
    }


def _load(spark: "SparkSession", schema: str, options: dict[str, str]) -> "DataFrame":
    # A DataFrameReader keeps its options, so each table needs its own reader.
    return spark.read.format("tidelog").schema(schema).options(**options).load()


def _end(number: int, frame: FrameType | None) -> None:
    """Exit so that temporary files are removed when the demo is interrupted."""
    del number, frame
    sys.exit(_ENDED_BY_SIGNAL)


def main() -> None:
    """Replay the topic and print the results as JSON."""
    signal.signal(signal.SIGTERM, _end)
    address, topic, queue = sys.argv[1:]
    sys.stdout.write(json.dumps(replay(address, topic, queue)) + "\n")


if __name__ == "__main__":
    main()
