"""Tests of history events as Arrow columns with the types of the Spark schema."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyarrow")

from tidelog.client.queue.inspect.history import EventKind, HistoryEvent
from tidelog.spark_connector.arrow.column_builders import ROWS_MAX
from tidelog.spark_connector.arrow.history_batch_builder import HistoryBatchBuilder
from tidelog.spark_connector.arrow.record_batch_builder import arrow_schema
from tidelog.spark_connector.read.columns import HISTORY_COLUMNS

SCHEMA = arrow_schema(list(HISTORY_COLUMNS), list(HISTORY_COLUMNS.values()))
TIME_MS = 1_700_000_000_123


def history_rows() -> HistoryBatchBuilder:
    return HistoryBatchBuilder(SCHEMA, "orders", 3, name_of=lambda topic_id: topic_id.decode())


def test_an_event_of_one_message_fills_its_columns() -> None:
    rows = history_rows()
    target = (b"orders-dead", 1)
    rows.add(
        HistoryEvent(
            5, TIME_MS, EventKind.DEAD_LETTER, 17, None, "w-1", 4, 9, TIME_MS, "why", target
        )
    )

    (row,) = rows.take().to_pylist()

    time = datetime.fromtimestamp(TIME_MS / 1000, UTC)
    assert row == {
        "timestamp": time,
        "event": "dead-letter",
        "queue": "orders",
        "partition": 3,
        "offset": 17,
        "holder": "w-1",
        "receiveCount": 4,
        "leaseId": 9,
        "visibleAt": time,
        "reason": "why",
        "belowOffset": None,
        "messageCount": 1,
        "targetTopic": "orders-dead",
        "targetPartition": 1,
        "journalOffset": 5,
    }
    assert rows.row_count == 0


def test_unknown_fields_of_an_event_are_null() -> None:
    rows = history_rows()
    rows.add(HistoryEvent(5, TIME_MS, EventKind.PURGE, below_offset=20, message_count=0))
    rows.add(HistoryEvent(6, TIME_MS, EventKind.DEAD_LETTER, 17, target=(b"", 0)))

    purge, kept = rows.take().to_pylist()

    assert (purge["belowOffset"], purge["messageCount"]) == (20, 0)
    of_one = ("offset", "holder", "receiveCount", "leaseId", "visibleAt", "reason", "targetTopic")
    assert {purge[name] for name in of_one} == {None}
    assert (kept["targetTopic"], kept["targetPartition"], kept["receiveCount"]) == (None, None, 0)


def test_a_history_batch_has_the_row_limit_of_record_batches() -> None:
    rows = history_rows()
    event = HistoryEvent(5, TIME_MS, EventKind.DELETE, 17)
    while not rows.is_full:
        rows.add(event)

    assert rows.take().num_rows == ROWS_MAX
