"""Tests of streams: rows are read once, and losses are reported."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import tidelog.spark
from pyspark_tidelog import lag
from tests.paths import ROOT
from tests.system.spark.world import World
from tests.system.spark_trials.waiting import wait_until
from tidelog.wire.errors import UnknownGroupError


class Sink:
    """Rows of each batch, and a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[bytes]] = {}
        self.progress: list[Any] = []

    def take(self, batch: DataFrame, batch_id: int) -> None:
        """Record the rows of a batch."""
        rows = batch.orderBy("topic", "partition", "offset").collect()
        self.batches[batch_id] = [bytes(row.value) for row in rows]

    def run(self, stream: DataFrame, **trigger: bool) -> None:
        """Read until a query ends by itself."""
        writer = stream.writeStream.foreachBatch(self.take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        query.awaitTermination()
        self.progress = list(query.recentProgress)

    @property
    def values(self) -> list[bytes]:
        """All rows, in the order of batches."""
        return [value for batch in sorted(self.batches) for value in self.batches[batch]]


def numbers(*bounds: int) -> list[bytes]:
    return [b"%d" % number for number in range(*bounds)]


@pytest.mark.statement("s22")
def test_batches_are_limited_and_later_records_wait_for_the_next_run(
    world: World, tmp_path: Path
) -> None:
    world.create()
    world.write(numbers(10))
    sink = Sink(tmp_path)
    take = sink.take

    def take_and_write(batch: DataFrame, batch_id: int) -> None:
        take(batch, batch_id)
        world.write([b"late"])

    sink.take = take_and_write  # type: ignore[method-assign]
    sink.run(world.stream(maxOffsetsPerTrigger="4"))

    assert sink.batches == {0: numbers(4), 1: numbers(4, 8), 2: numbers(8, 10)}
    assert sum(lag(sink.progress[0]).values()) >= 6
    sink.take = take  # type: ignore[method-assign]
    sink.run(world.stream())
    assert sink.values == [*numbers(10), b"late", b"late", b"late"]


def group_lag(world: World, group: str) -> int:
    """Return the lag of a group in records over all partitions, -1 if there is no such group."""
    try:
        partitions = world.client.admin.describe_group(group).partitions
    except UnknownGroupError:
        return -1
    return sum(each.lag_records or 0 for each in partitions)


def test_the_lag_of_a_group_is_zero_once_an_available_now_query_has_written_all(
    world: World, tmp_path: Path
) -> None:
    world.create(2)
    world.write(numbers(10))
    group = f"{world.topic}-lag"
    lags: list[int] = []
    sink = Sink(tmp_path)
    take = sink.take

    def take_and_look(batch: DataFrame, batch_id: int) -> None:
        if batch_id:
            lags.append(group_lag(world, group))
        take(batch, batch_id)

    sink.take = take_and_look  # type: ignore[method-assign]
    sink.run(world.stream(groupId=group, maxOffsetsPerTrigger="4"))

    assert sink.values == numbers(10)
    assert lags == [6, 2], "the lag counts what is not written yet"
    assert group_lag(world, group) == 0


def test_a_listener_commits_the_last_batch_before_a_stop_and_of_a_single_batch(
    world: World, tmp_path: Path
) -> None:
    world.create(2)
    world.write(numbers(10))
    group = f"{world.topic}-lag"
    stream = world.stream(groupId=group, maxOffsetsPerTrigger="4")
    listener = tidelog.spark.commit_each_batch(world.spark)
    sink = Sink(tmp_path)
    try:
        writer = stream.writeStream.foreachBatch(sink.take)
        writer = writer.option("checkpointLocation", str(sink.checkpoint))
        query = writer.trigger(processingTime="1 hour").start()
        wait_until(lambda: query.lastProgress is not None, "the first batch")
        query.stop()
        wait_until(lambda: group_lag(world, group) == 6, "the commit of the first batch")
        sink.run(stream, once=True)
        wait_until(lambda: group_lag(world, group) == 0, "the commit of the single batch")
    finally:
        world.spark.streams.removeListener(listener)
    assert sink.values == numbers(10)


def test_each_batch_of_a_stream_is_reported_with_its_lag(world: World, tmp_path: Path) -> None:
    world.create(2)
    world.write(numbers(10))
    told: list[tuple[str, Mapping[str, float]]] = []
    listener = tidelog.spark.watch(world.spark, lambda query, found: told.append((query, found)))
    sink = Sink(tmp_path)
    try:
        sink.run(world.stream(maxOffsetsPerTrigger="4"))
        wait_until(lambda: len(told) >= len(sink.progress), "the reports of all batches")
    finally:
        world.spark.streams.removeListener(listener)

    found = [each for _, each in told]
    reported = [each.numInputRows for each in sink.progress]
    assert [each["inputRows"] for each in found] == reported
    assert all(rows > 0 for rows in reported[:3])
    assert [each["maxOffsetsBehindLatest"] for each in found[:3]] == [6, 2, 0]
    assert [each["avgOffsetsBehindLatest"] for each in found[:3]] == [3, 1, 0]
    assert all(each["estimatedInputBytes"] > 0 for each in found[:3])
    assert found[0] == tidelog.spark.metrics(sink.progress[0])


@pytest.mark.statement("s23")
def test_a_query_that_is_triggered_once_reads_everything_at_once(
    world: World, tmp_path: Path
) -> None:
    world.create()
    world.write(numbers(10))
    sink = Sink(tmp_path)

    sink.run(world.stream(maxOffsetsPerTrigger="2"), once=True)

    assert sink.batches == {0: numbers(10)}


@pytest.mark.statement("s15")
def test_retention_past_a_checkpoint_ends_the_query_or_is_skipped(
    world: World, tmp_path: Path
) -> None:
    world.create()
    world.write(numbers(2))
    sink = Sink(tmp_path)
    sink.run(world.stream())
    for value in numbers(2, 6):
        world.write([value])
    world.client.admin.delete_records(world.topic, 0, 4)

    with pytest.raises(PySparkException, match=rf"{world.topic}/0: offsets \[2, 4\) are gone"):
        sink.run(world.stream())
    sink.run(world.stream(failOnDataLoss="false"))
    assert sink.values == [*numbers(2), *numbers(4, 6)]


@pytest.mark.statement("s16")
def test_a_recreated_topic_ends_the_query_or_is_read_from_its_first_record(
    world: World, tmp_path: Path
) -> None:
    world.create()
    world.write(numbers(3))
    sink = Sink(tmp_path)
    sink.run(world.stream())
    world.client.admin.delete_topic(world.topic)
    world.create()
    world.write([b"new"])

    with pytest.raises(PySparkException, match="was deleted, and another one of that name"):
        sink.run(world.stream())
    sink.run(world.stream(failOnDataLoss="false"))
    assert sink.values == [*numbers(3), b"new"]


@pytest.mark.statement("s25")
def test_a_stream_from_latest_begins_at_its_first_start(world: World, tmp_path: Path) -> None:
    world.create()
    world.write([b"before"])
    sink = Sink(tmp_path)
    sink.run(world.stream(startingOffsets="latest"))
    world.write([b"after"])
    sink.run(world.stream(startingOffsets="latest"))

    assert sink.values == [b"after"]


def test_a_stream_refuses_an_end(world: World, tmp_path: Path) -> None:
    world.create()

    with pytest.raises(PySparkException, match="a stream has no end") as raised:
        Sink(tmp_path).run(world.stream(endingOffsets="latest"))

    assert "Traceback" not in str(raised.value)
    assert "UnboundLocalError" not in str(raised.value)


KILLED = """
import os, signal, sys
from collections.abc import Mapping
from pathlib import Path
from tests.system.spark.session import session
address, topic, folder = sys.argv[1:]
with session(Path(folder)) as spark:
    def take(batch, batch_id):
        rows = [row.value.decode() for row in batch.orderBy("offset").collect()]
        Path(folder, f"batch-{batch_id}").write_text(" ".join(rows))
        if batch_id == 1:
            os.kill(spark._jvm.ProcessHandle.current().pid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
    stream = spark.readStream.format("tidelog").options(**{
        "bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "3"}).load()
    stream.writeStream.foreachBatch(take).option(
        "checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(
    ).awaitTermination()
"""


@pytest.mark.statement("s26")
def test_a_batch_has_the_same_rows_after_a_kill_of_the_driver(world: World, tmp_path: Path) -> None:
    world.create()
    world.write(numbers(10))

    killed = subprocess.run(
        [sys.executable, "-c", KILLED, world.address, world.topic, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    world.write(numbers(10, 14))
    sink = Sink(tmp_path)
    sink.run(world.stream(maxOffsetsPerTrigger="100"))

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "batch-0").read_text() == "0 1 2"
    assert (tmp_path / "batch-1").read_text() == "3 4 5"
    assert sink.batches == {1: numbers(3, 6), 2: numbers(6, 14)}
    assert json.loads((sink.checkpoint / "offsets" / "1").read_text().splitlines()[-1])[
        world.topic
    ] == {"0": 6}
