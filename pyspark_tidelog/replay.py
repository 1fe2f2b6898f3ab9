"""A replay with Spark, in a process of its own.

    python -m pyspark_tidelog.replay ADDRESS TOPIC QUEUE

Shell: `tidelog demo` starts it and reads one line of JSON: what Spark has found, or, as `missing`,
what it needs. What Spark says besides goes to standard error.
"""

import json
import signal
import sys
import tempfile
import time
from types import FrameType

from pyspark_tidelog import failure, prepare_java, register
from spark_connector.java import JavaMissingError

_ENDED_BY_SIGNAL = 128 + signal.SIGTERM


def replay(address: str, topic: str, queue: str) -> dict[str, object]:
    """Return what Spark finds in a topic and in the history of a queue, or what is missing."""
    if failure is not None:
        return {"missing": f"Spark is not installed ({failure}); pip install 'tidelog[spark]'"}
    try:
        prepare_java()
    except JavaMissingError as missing:
        return {"missing": str(missing)}
    with tempfile.TemporaryDirectory(prefix="tidelog-demo-spark-") as folder:
        return _replay(address, topic, queue, folder)


def _replay(address: str, topic: str, queue: str, folder: str) -> dict[str, object]:
    # It is installed, as is known by now.
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
        source = spark.read.format("tidelog").option("bootstrap.servers", address)
        started = time.monotonic()
        (rows,) = (
            source.option("subscribe", topic)
            .schema("value binary")
            .load()
            .selectExpr("count(*) AS count", "sum(crc32(value)) AS checksum")
            .collect()
        )
        replayed = time.monotonic()
        history = source.options(subscribe=None, queueHistory=queue).schema("event string").load()
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


def _end(number: int, frame: FrameType | None) -> None:
    """Leave nothing behind when the demo is interrupted."""
    del number, frame
    sys.exit(_ENDED_BY_SIGNAL)


def main() -> None:
    """Do it, and print what was found."""
    signal.signal(signal.SIGTERM, _end)
    address, topic, queue = sys.argv[1:]
    sys.stdout.write(json.dumps(replay(address, topic, queue)) + "\n")


if __name__ == "__main__":
    main()
