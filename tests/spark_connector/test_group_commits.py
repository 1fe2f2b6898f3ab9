"""Tests of the listener that commits what progress reports of Spark say is written."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.group_commits import GroupCommits, written_positions
from tidelog.spark_connector.lag import lag
from tidelog.spark_connector.read.stream_reader import StreamReader
from tidelog.wire.errors import ConfigError


def progress(*sources: dict[str, Any]) -> dict[str, Any]:
    """Return a progress report as Spark writes it."""
    numbers = {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    start = {"description": "PythonMicroBatchStream", "startOffset": None, **numbers}
    return {
        "id": "6f6d8d1c-1b0f-4a51-9a44-0c6b6c1e6a36",
        "runId": "0a9f1d0e-7b57-4c73-8f0b-0b3c3f0a9b11",
        "name": None,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "batchId": 0,
        "batchDuration": 1,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": [{**start, **source} for source in sources],
        "sink": {"description": "noop", "numOutputRows": 0},
        **numbers,
    }


def event(found: dict[str, Any]) -> QueryProgressEvent:
    return QueryProgressEvent(StreamingQueryProgress.fromJson(found))


def source_of(reader: StreamReader) -> dict[str, Any]:
    """Return what Spark reports of a reader after a batch to the end."""
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    return {"startOffset": start, "endOffset": end, "latestOffset": reader.reportLatestOffset()}


def test_the_end_of_a_batch_is_committed_to_the_group_of_its_stream(town: SparkFixture) -> None:
    town.create(2)
    town.write([b""] * 5)
    group = f"{town.topic}-lag"
    reader = StreamReader(town.options(True, startingOffsets="earliest", groupId=group), ("value",))
    found = progress(source_of(reader))
    town.write([b""] * 2, partition=1)

    GroupCommits({}).onQueryProgress(event(found))

    partitions = town.client.admin.describe_group(group).partitions
    assert [(each.offset, each.lag_records) for each in partitions] == [(5, 0), (0, 2)]
    assert lag(json.dumps(found)) == {
        TopicPartition(town.topic, 0): 0,
        TopicPartition(town.topic, 1): 0,
    }


def test_sources_without_a_group_and_of_others_are_left_out(town: SparkFixture) -> None:
    town.create()
    town.write([b""])
    reader = StreamReader(town.options(True, startingOffsets="earliest"), ("value",))
    of_kafka = {"endOffset": {"orders": {"0": 1}}, "latestOffset": {"orders": {"0": 1}}}
    of_a_rate = {"endOffset": 7, "latestOffset": 7}
    before_a_batch = {"endOffset": None, "latestOffset": None}

    found = progress(source_of(reader), of_kafka, of_a_rate, before_a_batch)

    assert list(written_positions(json.dumps(found))) == []


def test_a_failed_commit_is_a_line_in_the_log(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    town.write([b""])
    options = town.options(True, startingOffsets="earliest", groupId=f"{town.topic}-lag")
    found = progress(source_of(StreamReader(options, ("value",))))
    town.client.admin.delete_topic(town.topic)

    GroupCommits({}).onQueryProgress(event(found))

    assert "the offsets of a group were not committed" in caplog.text


@pytest.mark.parametrize("option", ["subscribe", "groupId", "client.tokn"])
def test_only_options_of_the_connection_are_taken(option: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{option}' is not known"):
        GroupCommits({option: "x"})
