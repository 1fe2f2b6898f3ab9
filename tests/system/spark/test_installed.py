"""Test of the installed wheel in Spark, beside modules with our rooms' names."""

import os
from pathlib import Path

from tests.system.installed import install_wheel
from tests.system.spark.world import World

READ = """
import sys

import broker, client, logstore, wire
from pyspark.sql import SparkSession
from pyspark_tidelog import prepare_java

prepare_java()
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
rows = (
    spark.read.format("tidelog")
    .option("bootstrap.servers", sys.argv[1])
    .option("subscribe", sys.argv[2])
    .load()
)

def origin(batches):
    import client, pyarrow, tidelog.client.client
    for batch in batches:
        names = [client.OWNER, tidelog.client.client.__file__]
        columns = [pyarrow.array([name] * batch.num_rows) for name in names]
        yield pyarrow.RecordBatch.from_arrays([batch["value"], *columns], ["value", "own", "file"])

found = rows.mapInArrow(origin, "value binary, own string, file string").collect()
print("rows:", sorted(bytes(row.value) for row in found))
print("driver:", client.OWNER, "site-packages" in __import__("tidelog").__file__)
print("workers:", *sorted({f"{row.own} {'site-packages' in row.file}" for row in found}))
spark.stop()
"""


def test_spark_and_its_workers_use_the_wheel_beside_modules_of_the_same_names(
    world: World, tmp_path: Path
) -> None:
    world.create(2)
    world.write([b"one", b"two"])
    world.write([b"three"], partition=1)
    installation = install_wheel(tmp_path)
    program = installation.write("read.py", READ)
    java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}

    output = installation.run(program, world.address, world.topic, **java)

    assert "rows: [b'one', b'three', b'two']" in output
    assert "driver: user True" in output
    assert "workers: user True" in output
