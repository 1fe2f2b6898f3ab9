"""Tests of a queue's history, as a table and as a stream."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.system.spark.world import World
from tidelog.spark_connector.read.columns import HISTORY_COLUMNS


def work_through(world: World, count: int) -> None:
    """Receive and delete each message."""
    world.write([b"%d" % number for number in range(count)])
    messages = world.client.queue(world.topic).receive(max_messages=count, wait=5)
    assert len(messages) == count
    for message in messages:
        message.delete()


def test_a_history_is_a_table_of_holders_and_receive_counts(world: World) -> None:
    world.client.admin.create_queue(world.topic)
    work_through(world, 3)

    table = world.load(queueHistory=world.topic)
    found = table.where("event <> 'seek'").orderBy("journalOffset", "offset").collect()

    assert [(each.name, each.dataType.simpleString()) for each in table.schema.fields] == list(
        HISTORY_COLUMNS.items()
    )
    assert [(row.event, row.offset, row.receiveCount) for row in found] == [
        *(("receive", offset, 1) for offset in range(3)),
        *(("delete", offset, 1) for offset in range(3)),
    ]
    assert {(row.queue, row.partition) for row in found} == {(world.topic, 0)}
    held = table.where("event = 'delete'").select("holder").distinct().collect()
    assert [row.holder for row in held] == [found[0].holder]


def test_a_stream_of_a_history_resumes_with_its_earlier_state(world: World, tmp_path: Path) -> None:
    world.client.admin.create_queue(world.topic, receive_acks="all")
    queue = world.client.queue(world.topic)
    seen: list[tuple[str, int, int]] = []

    def take(batch: DataFrame, _: int) -> None:
        rows = batch.where("offset is not null").orderBy("journalOffset", "offset").collect()
        seen.extend((row.event, row.offset, row.receiveCount) for row in rows)

    def run() -> None:
        stream = world.stream(queueHistory=world.topic, maxOffsetsPerTrigger="2")
        writer = stream.writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    queue.send(b"a")
    (message,) = queue.receive(max_messages=1, wait=5)
    message.release()
    (message,) = queue.receive(max_messages=1, wait=5)
    run()
    assert seen == [("receive", 0, 1), ("release", 0, 1), ("receive", 0, 2)]

    message.delete()
    run()

    assert seen[3:] == [("delete", 0, 2)]


def test_an_invalid_option_of_a_history_is_refused_at_load(world: World) -> None:
    with pytest.raises(PySparkException, match="includeHeaders cannot be used here"):
        world.load(queueHistory=world.topic, includeHeaders="true")
