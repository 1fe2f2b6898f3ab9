"""Tests of the history of a queue: exact events, also in a slice that begins in the middle."""

from typing import Any

import pytest

pytest.importorskip("pyarrow")

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.queue_layer.state import snapshots
from tidelog.spark_connector.arrow.record_batch_builder import arrow_schema
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.batch_plan import plan
from tidelog.spark_connector.read.columns import HISTORY_COLUMNS
from tidelog.spark_connector.read.data_loss import DataLossError
from tidelog.spark_connector.read.history_reader import read_history
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.spark_connector.read.partition_bounds import look
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.wire.errors import ConfigError, UnknownQueueError

SCHEMA = arrow_schema(list(HISTORY_COLUMNS), list(HISTORY_COLUMNS.values()))
Row = dict[str, Any]


def planned(options: ReadOptions) -> list[Slice]:
    with borrowed(options.connection) as cluster:
        return plan(cluster, options)


def rows(options: ReadOptions, *slices: Slice) -> list[Row]:
    wanted = slices or planned(options)
    return [
        row
        for each in wanted
        for batch in read_history(options, SCHEMA, each)
        for row in batch.to_pylist()
    ]


def events(found: list[Row]) -> list[tuple[str, int | None, int | None]]:
    return [(row["event"], row["offset"], row["receiveCount"]) for row in found]


def test_every_receive_and_settle_is_a_row(town: SparkFixture) -> None:
    town.client.admin.create_queue(f"{town.topic}-dead")
    town.client.admin.create_queue(town.topic, dead_letter_queue=f"{town.topic}-dead")
    queue = town.client.queue(town.topic)
    for value in (b"a", b"b", b"c"):
        queue.send(value)
    first, second, third = queue.receive(max_messages=10, wait=5)
    first.delete()
    second.release()
    third.reject("no number")
    (again,) = queue.receive(max_messages=10, visibility_timeout=60, wait=5)
    again.extend(90)

    found = [row for row in rows(town.history()) if row["event"] != "moved"]

    assert events(found) == [
        ("seek", None, None),
        ("receive", 0, 1),
        ("receive", 1, 1),
        ("receive", 2, 1),
        ("delete", 0, 1),
        ("release", 1, 1),
        ("dead-letter", 2, 1),
        ("receive", 1, 2),
        ("extend", 1, 2),
    ]
    by_event = {row["event"]: row for row in found}
    assert by_event["dead-letter"]["reason"] == "no number"
    assert by_event["dead-letter"]["targetTopic"] == f"{town.topic}-dead"
    assert by_event["dead-letter"]["targetPartition"] == 0
    assert by_event["seek"]["belowOffset"] == 0
    extended = by_event["extend"]
    assert (extended["queue"], extended["partition"]) == (town.topic, 0)
    assert 80 < (extended["visibleAt"] - extended["timestamp"]).total_seconds() <= 90
    assert extended["leaseId"] == found[-2]["leaseId"]
    assert [row["journalOffset"] for row in found] == sorted(row["journalOffset"] for row in found)


def work_through(town: SparkFixture, count: int) -> None:
    """Receive and release each message; then receive and delete it."""
    queue = town.client.queue(town.topic)
    with town.client.producer() as producer:
        producer.send_many(town.topic, [b"%d" % number for number in range(count)], partition=0)
    for message in queue.receive(max_messages=count, wait=5):
        message.release()
    for message in queue.receive(max_messages=count, wait=5):
        message.delete()


def test_slices_of_a_history_have_the_events_of_the_whole(
    town: SparkFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 500)
    town.client.admin.create_queue(town.topic, receive_acks="all")
    work_through(town, 40)
    (whole,) = planned(town.history())
    expected = rows(town.history(), whole)
    assert [row["receiveCount"] for row in expected if row["event"] == "delete"] == [2] * 40

    for size in (1, 7, whole.size // 2):
        parts = [
            whole.between(start, min(start + size, whole.end))
            for start in range(whole.start, whole.end, size)
        ]
        assert rows(town.history(), *parts) == expected


def test_deleted_journal_entries_are_data_loss_or_skipped(
    town: SparkFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 500)
    town.client.admin.create_queue(town.topic)
    work_through(town, 10)
    (early,) = planned(town.history())
    town.client.admin.alter_queue(town.topic, set={"history_retention_ms": "0"})
    work_through(town, 10)
    (late,) = planned(town.history())
    assert late.start > early.start
    wanted = early.between(0, late.end)

    with pytest.raises(DataLossError, match=rf"offsets \[0, {late.start}\) are gone"):
        rows(town.history(), wanted)

    options = town.history(failOnDataLoss="false")
    assert rows(options, wanted) == rows(options, late)


def test_the_start_of_a_history_is_a_journal_offset_or_a_time(town: SparkFixture) -> None:
    town.client.admin.create_queue(town.topic)
    work_through(town, 3)
    (whole,) = planned(town.history())
    all_rows = rows(town.history())
    middle = all_rows[4]
    time_ms = int(middle["timestamp"].timestamp() * 1000)

    by_offset = town.history(startingOffsets=f'{{"queue@{town.topic}":{{"0":3}}}}')
    by_time = town.history(startingTimestamp=str(time_ms))

    assert planned(by_offset) == [whole.between(3, whole.end)]
    (found,) = planned(by_time)
    assert found.start <= middle["journalOffset"]
    late = {"startingTimestamp": str(time_ms + 3_600_000)}
    assert planned(town.history(**late)) == []
    with pytest.raises(ConfigError, match="no record as young"):
        planned(town.history(**late, startingOffsetsByTimestampStrategy="error"))


def test_the_error_of_a_missing_queue_names_it(town: SparkFixture) -> None:
    with pytest.raises(UnknownQueueError, match=rf"there is no queue '{town.topic}'"):
        planned(town.history(**{"fetchOffset.numRetries": "0"}))


def test_all_partitions_are_read(town: SparkFixture) -> None:
    town.client.admin.create_queue(town.topic, partitions=3)
    options = town.history()
    with borrowed(options.connection) as cluster:
        ranges = look(cluster, options.selection)

    assert [(at.topic, at.partition) for at in ranges] == [
        (f"queue@{town.topic}", number) for number in range(3)
    ]
    assert all(bounds.is_known for bounds in ranges.values())


def test_a_history_with_a_projection_has_only_its_columns(town: SparkFixture) -> None:
    town.client.admin.create_queue(town.topic)
    work_through(town, 1)
    schema = arrow_schema(["offset", "event"], ["bigint", "string"])
    (whole,) = planned(town.history())

    (batch,) = read_history(town.history(), schema, whole)

    assert batch.column(1).to_pylist()[-4:] == ["receive", "release", "receive", "delete"]
    assert batch.schema == schema
