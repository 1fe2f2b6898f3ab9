"""Tests of large messages: joined to one row, or read as chunks."""

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.spark_connector.arrow.record_batch_builder import BYTES_MAX, arrow_schema
from tidelog.spark_connector.read.data_loss import DataLossError
from tidelog.spark_connector.read.slice_reader import read_slice
from tidelog.wire.errors import RecordTooLargeError

LONG = bytes(range(256)) * 4096 * 3
"""3 MiB, above the limit of one record."""


def batches(town: SparkFixture, start: int, **options: str) -> list[pa.RecordBatch]:
    """Return offset and value of all records from an offset on."""
    (topic,) = town.client.admin.describe_topics([town.topic])
    end = topic.partitions[0].high_watermark
    schema = arrow_schema(["offset", "value"], ["bigint", "binary"])
    wanted = town.whole(topic.topic_id, end, start)
    return list(read_slice(town.options(**options), schema, wanted))


def rows(town: SparkFixture, start: int, **options: str) -> list[tuple[int, bytes | None]]:
    """Return the same as tuples."""
    return [
        (row["offset"], row["value"])
        for batch in batches(town, start, **options)
        for row in batch.to_pylist()
    ]


def with_a_large_one(town: SparkFixture) -> int:
    """Write a small message, a large one and a small one; return the offset of the large one."""
    town.client.admin.create_queue(town.topic, partitions=1)
    queue = town.client.queue(town.topic)
    queue.send(b"before")
    receipt = queue.send(LONG)
    queue.send(b"after")
    assert receipt.offset is not None
    return receipt.offset


@pytest.mark.statement("s12")
def test_a_large_message_is_one_row(town: SparkFixture) -> None:
    offset = with_a_large_one(town)

    assert rows(town, 0) == [(0, b"before"), (offset, LONG), (offset + 1, b"after")]


def test_large_messages_of_one_batch_are_not_in_memory_together(town: SparkFixture) -> None:
    town.client.admin.create_queue(town.topic, partitions=1)
    town.client.queue(town.topic).send_batch([LONG] * 8)

    found = batches(town, 0)

    assert [value for batch in found for value in batch.column("value").to_pylist()] == [LONG] * 8
    assert max(batch.nbytes for batch in found) < BYTES_MAX + 2 * len(LONG)


def test_chunks_may_lie_before_the_range_of_the_task(town: SparkFixture) -> None:
    offset = with_a_large_one(town)

    assert rows(town, offset) == [(offset, LONG), (offset + 1, b"after")]


def test_chunks_can_be_read_instead_of_the_large_message(town: SparkFixture) -> None:
    offset = with_a_large_one(town)

    parts = rows(town, 0, largeMessages="chunks")

    assert [number for number, _ in parts] == list(range(offset + 2))
    assert b"".join(value or b"" for _, value in parts[1:offset]) == LONG


def test_the_error_of_a_too_large_message_names_it(town: SparkFixture) -> None:
    offset = with_a_large_one(town)

    with pytest.raises(RecordTooLargeError, match=f"offset {offset} has {len(LONG)} bytes"):
        rows(town, 0, largeMessageMaxBytes="1000")


def test_a_large_message_with_deleted_chunks_is_data_loss(town: SparkFixture) -> None:
    offset = with_a_large_one(town)
    town.client.admin.delete_records(town.topic, 0, offset)

    assert rows(town, offset, failOnDataLoss="false") == [(offset + 1, b"after")]
    with pytest.raises(DataLossError):
        rows(town, offset)
