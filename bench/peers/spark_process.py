"""Process with a Spark session, which executes one order per line of JSON.

`python -m bench.peers.spark_process PATH DIRECTORY`: the class path of Spark's source for Kafka,
and the directory of checkpoints. It ends with its standard input.
"""

import json
import os
import sys
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.machine import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(path: str, directory: str) -> None:
    """Execute the order of every line."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (there may be none)

    os.environ["PYTHONPATH"] = str(ROOT)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("tidelog-bench-peers")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", directory)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraClassPath", path)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    numbers = count()
    for line in sys.stdin:
        order = json.loads(line)
        read = _batch if order["kind"] == "batch" else _stream
        place = Path(directory, f"checkpoint-{next(numbers)}")
        print(json.dumps(read(spark, order, place)), flush=True)


def _batch(spark: "SparkSession", order: dict[str, Any], place: Path) -> dict[str, float]:
    from pyspark.sql import Observation  # noqa: PLC0415
    from pyspark.sql.functions import count as rows_of  # noqa: PLC0415
    from pyspark.sql.functions import lit  # noqa: PLC0415

    del place
    seen = Observation()
    began = perf_counter()
    table = spark.read.format(order["format"]).options(**order["options"]).load()
    counted = table.observe(seen, rows_of(lit(1)).alias("rows"))
    counted.write.format("noop").mode("overwrite").save()
    return {"seconds": perf_counter() - began, "rows": seen.get["rows"]}


def _stream(spark: "SparkSession", order: dict[str, Any], place: Path) -> dict[str, float]:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(order["rows"])}
    began = perf_counter()
    table = spark.readStream.format(order["format"]).options(**options, **order["options"]).load()
    query = (
        table.writeStream.format("noop")
        .option("checkpointLocation", str(place))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = perf_counter() - began
    return {"seconds": seconds, "rows": sum(each["numInputRows"] for each in query.recentProgress)}


if __name__ == "__main__":
    main(*sys.argv[1:])
