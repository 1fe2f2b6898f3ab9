"""A batch as Spark asks for it: planned once, pickled, read in tasks."""

import pickle

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import InputPartition

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.spark_connector.read.batch_reader import BatchReader, read_partition


def test_the_tasks_together_read_all_rows_once(town: SparkFixture) -> None:
    town.create(2)
    town.write([b"%d" % number for number in range(10)], partition=0)
    town.write([b"x"], partition=1)
    reader = BatchReader(town.options(maxRecordsPerPartition="3"), ("value", "offset"))

    partitions = reader.partitions()
    again = pickle.loads(pickle.dumps((reader, list(partitions))))
    rows = [
        row
        for partition in again[1]
        for batch in again[0].read(partition)
        for row in batch.to_pylist()
    ]

    assert len(partitions) == 5
    assert [row["value"] for row in rows] == [b"%d" % number for number in range(10)] + [b"x"]
    assert list(rows[0]) == ["value", "offset"]


def test_the_plan_stays_what_it_was(town: SparkFixture) -> None:
    town.create()
    town.write([b"a"])
    reader = BatchReader(town.options(), ("value",))
    (partition,) = reader.partitions()
    town.write([b"b"])

    assert [batch.num_rows for batch in reader.read(partition)] == [1]
    assert len(reader.partitions()) == 1


def test_nothing_to_read_is_no_partition_and_what_spark_asks_then_has_no_rows(
    town: SparkFixture,
) -> None:
    town.create()
    reader = BatchReader(town.options(), ("value",))

    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []
    assert list(read_partition(town.options(), ("value",), None)) == []
