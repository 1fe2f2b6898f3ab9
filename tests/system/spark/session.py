"""Small Spark session: two tasks at a time, no web UI."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.paths import ROOT


@contextmanager
def session(
    folder: Path, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> Generator[SparkSession, None, None]:
    """Run a session while the block runs; its files are in `folder`.

    `master` may be `connect`: a session of Spark Connect then, whose server runs in local mode.
    """
    builder = SparkSession.builder
    given = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.driver.memory": "1g",
        # No session lives long enough to earn back what the optimizing compiler costs.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        **(settings or {}),
    }
    if master.startswith("local-cluster"):  # Spark starts executors from there.
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    is_connect = master == "connect"
    builder = builder.remote("local[2]") if is_connect else builder.master(master)
    for name, value in given.items():
        builder = builder.config(name, value)
    spark = builder.appName("tidelog-tests").getOrCreate()
    if not is_connect:
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
