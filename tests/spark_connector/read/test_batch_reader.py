"""Tests of the batch reader: planned once, pickled, read in tasks that yield batches of rows."""

import pickle

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import InputPartition

from tests.spark_connector.spark_fixture import SparkFixture, close_idle
from tidelog.spark_connector.arrow.column_builders import ROWS_MAX
from tidelog.spark_connector.arrow.record_batch_builder import arrow_schema
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.batch_reader import BatchReader, read_partition
from tidelog.spark_connector.read.columns import RECORD_COLUMNS
from tidelog.spark_connector.read.slice_reader import read_slice


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


def test_a_plan_does_not_include_later_records(town: SparkFixture) -> None:
    town.create()
    town.write([b"a"])
    reader = BatchReader(town.options(), ("value",))
    (partition,) = reader.partitions()
    town.write([b"b"])

    assert [batch.num_rows for batch in reader.read(partition)] == [1]
    assert len(reader.partitions()) == 1


def test_an_empty_topic_has_no_partitions_and_a_read_of_none_has_no_rows(
    town: SparkFixture,
) -> None:
    town.create()
    reader = BatchReader(town.options(), ("value",))

    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []
    assert list(read_partition(town.options(), ("value",), None)) == []


SCHEMA = arrow_schema(list(RECORD_COLUMNS), list(RECORD_COLUMNS.values()))


def test_all_rows_come_once_in_batches_of_limited_size(town: SparkFixture) -> None:
    topic_id = town.create()
    count = 40_000
    for first in range(0, count, 500):
        town.write([b"%d" % number for number in range(first, first + 500)])

    batches = list(read_slice(town.options(), SCHEMA, town.whole(topic_id, count)))

    assert [value for batch in batches for value in batch.column(1).to_pylist()] == [
        b"%d" % number for number in range(count)
    ]
    assert [value for batch in batches for value in batch.column(4).to_pylist()] == list(
        range(count)
    )
    assert all(ROWS_MAX <= batch.num_rows < 2 * ROWS_MAX for batch in batches[:-1])


def test_an_empty_slice_has_no_batch(town: SparkFixture) -> None:
    topic_id = town.create()

    assert list(read_slice(town.options(), SCHEMA, town.whole(topic_id, 0))) == []


@pytest.mark.statement("s39")
def test_a_closed_reader_stops_fetching(town: SparkFixture) -> None:
    close_idle()
    topic_id = town.create()
    for _ in range(40):
        town.write([bytes(1_000_000)])

    rows = read_slice(town.options(), SCHEMA, town.whole(topic_id, 40))
    assert next(rows).num_rows < 20
    rows.close()

    with borrowed(town.connection) as cluster:
        assert cluster.is_idle
