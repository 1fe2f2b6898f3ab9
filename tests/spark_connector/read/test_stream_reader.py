"""Tests of the stream reader behind Spark's DataSource API."""

import json
import pickle

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.spark_connector.read.offset_ranges import METRICS
from tidelog.spark_connector.read.stream_reader import StreamReader


def reader(town: SparkFixture, **options: str) -> StreamReader:
    return StreamReader(town.options(True, startingOffsets="earliest", **options), ("value",))


def test_a_micro_batch_is_an_offset_range_that_another_reader_reads(
    town: SparkFixture,
) -> None:
    town.create()
    town.write([b"a", b"b", b"c"])
    planner = reader(town, maxOffsetsPerTrigger="2")

    start = json.loads(json.dumps(planner.initialOffset()))
    end = json.loads(json.dumps(planner.latestOffset(start, planner.getDefaultReadLimit())))
    (partition,) = planner.partitions(start, end)
    worker = pickle.loads(pickle.dumps(reader(town)))

    assert end[town.topic] == {"0": 2}
    assert [batch.to_pydict() for batch in worker.read(partition)] == [{"value": [b"a", b"b"]}]
    reported = planner.reportLatestOffset()
    assert reported is not None
    assert reported.pop(METRICS)["dataLosses"] == 0
    assert reported == {**end, town.topic: {"0": 3}}
    assert planner.partitions(end, end) == []
    planner.commit(end)
    planner.stop()


def test_available_now_ends_at_the_present_end_offsets(town: SparkFixture) -> None:
    town.create()
    town.write([b"a"])
    planner = reader(town)
    planner.prepareForTriggerAvailableNow()
    town.write([b"b"])

    start = planner.initialOffset()
    assert planner.latestOffset(start, ReadAllAvailable())[town.topic] == {"0": 1}


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "9"}, ReadMaxBytes(9)),
        ({"minOffsetsPerTrigger": "2"}, ReadMinRows(2)),
    ],
)
def test_the_default_read_limit_follows_the_options(
    town: SparkFixture, options: dict[str, str], limit: ReadLimit
) -> None:
    assert reader(town, **options).getDefaultReadLimit() == limit


def test_no_latest_offset_is_reported_before_the_first_request(town: SparkFixture) -> None:
    assert reader(town).reportLatestOffset() is None


def test_the_latest_offset_of_an_idle_stream_is_its_start(town: SparkFixture) -> None:
    town.create(12)
    town.write([b"a"], partition=10)
    planner = reader(town)
    start = planner.initialOffset()

    end = planner.latestOffset(start, ReadAllAvailable())
    text = json.dumps(end)
    assert text != json.dumps(start)

    # The text of the checkpoint, as another process has written it.
    for asked in (planner, reader(town)):
        for _ in range(2):
            assert json.dumps(asked.latestOffset(json.loads(text), ReadAllAvailable())) == text
    town.write([b"b"], partition=2)
    assert planner.latestOffset(json.loads(text), ReadAllAvailable())[town.topic]["2"] == 1
