"""Tests of the listener that reports the metrics of streams after each batch."""

import logging
from collections.abc import Mapping

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.spark_connector.spark_fixture import SparkFixture
from tests.spark_connector.test_group_commits import event, progress
from tidelog.spark_connector.lag import lag, metrics
from tidelog.spark_connector.progress_listener import ProgressListener
from tidelog.spark_connector.read.stream_reader import StreamReader

VALUE = bytes(1000)
Told = list[tuple[str, Mapping[str, float]]]


def batch_of(reader: StreamReader, rows: int) -> dict[str, object]:
    """Return what Spark reports of a reader after a batch of at most so many rows."""
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(rows))
    latest = reader.reportLatestOffset()
    return {"startOffset": start, "endOffset": end, "latestOffset": latest, "numInputRows": rows}


def test_metrics_have_the_names_of_kafkas_source(town: SparkFixture) -> None:
    town.create(2)
    town.write([VALUE] * 30, partition=0)
    town.write([VALUE] * 10, partition=1)
    reader = StreamReader(town.options(True, startingOffsets="earliest"), ("value",))

    found = metrics(progress(batch_of(reader, 8)))

    assert found["minOffsetsBehindLatest"] == 8
    assert found["maxOffsetsBehindLatest"] == 24
    assert found["avgOffsetsBehindLatest"] == 16
    assert found["inputRows"] == 8
    assert found["estimatedInputBytes"] == pytest.approx(8 * 1000, rel=0.2)
    assert found["estimatedTotalBytesBehindLatest"] == pytest.approx(32 * 1000, rel=0.2)
    assert found["dataLosses"] == 0


def test_losses_that_are_passed_over_are_counted(town: SparkFixture) -> None:
    town.create()
    town.write([VALUE] * 3)
    given = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    reader = StreamReader(town.options(True, **given), ("value",))
    start = reader.initialOffset()
    town.client.admin.delete_records(town.topic, 0, 2)

    end = reader.latestOffset(start, ReadMaxRows(10))
    source = {"startOffset": start, "endOffset": end, "latestOffset": reader.reportLatestOffset()}

    assert metrics(progress(source))["dataLosses"] == 1


def test_other_sources_have_no_metrics_and_reports_without_them_are_read() -> None:
    of_kafka = {"endOffset": {"orders": {"0": 1}}, "latestOffset": {"orders": {"0": 4}}}
    of_an_earlier_version = {
        "endOffset": {"orders": {"0": 1}, "@ids": {"orders": "00" * 16}},
        "latestOffset": {"orders": {"0": 4}, "@ids": {"orders": "00" * 16}},
    }

    assert metrics(progress(of_kafka)) == {}
    assert metrics(progress(of_kafka, of_an_earlier_version))["maxOffsetsBehindLatest"] == 3
    assert sum(lag(progress(of_kafka, of_an_earlier_version)).values()) == 3


def test_each_batch_is_reported_and_an_error_of_the_report_stops_no_query(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    town.write([VALUE] * 3)
    reader = StreamReader(town.options(True, startingOffsets="earliest"), ("value",))
    found = event({**progress(batch_of(reader, 2)), "name": "orders"})
    told: Told = []

    def fail(query: str, metrics: Mapping[str, float]) -> None:
        told.append((query, metrics))
        raise ValueError("the gauge is broken")

    ProgressListener(fail).onQueryProgress(found)
    ProgressListener(fail).onQueryProgress(event(progress()))

    assert [(query, each["maxOffsetsBehindLatest"]) for query, each in told] == [("orders", 1)]
    assert "the gauge is broken" in caplog.text


def test_lines_of_the_log_are_information_until_data_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    ids = {"@ids": {"orders": "00" * 16}}
    listener = ProgressListener(None)

    for losses in (0, 1, 1):
        latest = {"orders": {"0": 4}, **ids, "@metrics": {"dataLosses": losses}}
        source = {"endOffset": {"orders": {"0": 1}, **ids}, "latestOffset": latest}
        listener.onQueryProgress(event({**progress(source), "name": "orders"}))

    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]
    assert "query orders: 0 rows, about 0 bytes; 3 to 3 offsets behind" in caplog.text
