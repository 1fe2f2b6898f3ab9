"""Tests of the writers behind Spark's DataSource API: pickled, run in tasks, committed, aborted."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from tests.spark_connector.spark_fixture import SparkFixture
from tests.spark_connector.write.test_transaction import values
from tests.system.spark_trials.waiting import wait_until
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.options import WriteOptions
from tidelog.spark_connector.read.fetcher import RangeFetcher
from tidelog.spark_connector.write.writer import BatchWriter, StreamWriter, abort, commit, stage
from tidelog.wire.batch.record_batch import COLUMNAR_COUNT_MIN, FORMAT_COLUMNAR
from tidelog.wire.errors import ConfigError, StaleTransactionError, UnknownPartitionError
from tidelog.wire.messages.transactions import CommitTransactionRequest


def options(town: SparkFixture, **given: str) -> WriteOptions:
    return WriteOptions.parse({"bootstrap.servers": town.address, "topic": town.topic, **given})


def batches(*rows: list[str]) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": pa.array(values)}) for values in rows])


@pytest.mark.statement("s28", "s30")
def test_a_job_writes_the_rows_of_its_committed_task_attempts_once(town: SparkFixture) -> None:
    town.create()
    writer = BatchWriter(options(town))
    first, second = (pickle.loads(pickle.dumps(writer)) for _ in range(2))
    messages = [
        pickle.loads(pickle.dumps(first.write(batches(["a", "b"], ["c"])))),
        second.write(batches(["d"])),
        None,
    ]
    second.write(batches(["of a losing attempt"]))
    assert values(town) == []

    writer.commit(messages)
    writer.commit(messages)
    writer.abort(messages)

    assert values(town) == [b"a", b"b", b"c", b"d"]
    assert [message.row_count for message in messages if message] == [3, 1]


def batch_format(cluster: BlockingClusterClient) -> int:
    cluster.refresh(())
    return cluster.metadata.batch_format


def test_the_sink_writes_columns_of_bytes_that_a_reader_takes_as_they_are(
    town: SparkFixture,
) -> None:
    topic_id = town.create()
    written = [f"{number}" for number in range(COLUMNAR_COUNT_MIN)]
    with borrowed(options(town).connection) as cluster:  # It may be older than the feature level.
        wait_until(lambda: batch_format(cluster) == FORMAT_COLUMNAR, "brokers accept format 2")
    writer = BatchWriter(options(town))
    writer.commit([writer.write(batches(written))])

    with borrowed(town.connection) as cluster:
        fetcher = RangeFetcher(
            cluster,
            town.whole(topic_id, COLUMNAR_COUNT_MIN),
            fail_on_data_loss=True,
            timeout_ms=10_000,
        )
        columns = [batch.byte_column("values") for batch in fetcher.batches()]

    assert [None if column is None else list(column) for column in columns] == [
        [value.encode() for value in written]
    ]


def test_another_job_is_another_transaction_unless_it_has_the_same_transactional_id(
    town: SparkFixture,
) -> None:
    town.create()
    for _ in range(2):
        writer = BatchWriter(options(town))
        writer.commit([writer.write(batches(["x"]))])
    for _ in range(2):
        named = BatchWriter(options(town, transactionalId=f"job-of-{town.topic}"))
        named.commit([named.write(batches(["once"]))])

    assert values(town) == [b"x", b"x", b"once"]


def test_only_a_name_that_was_drawn_for_a_job_is_soon_forgotten(
    town: SparkFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[CommitTransactionRequest] = []
    call_any = BlockingClusterClient.call_any

    def noted(self: BlockingClusterClient, method: Any, request: object) -> object:  # noqa: ANN401
        if isinstance(request, CommitTransactionRequest):
            sent.append(request)
        return call_any(self, method, request)

    monkeypatch.setattr(BlockingClusterClient, "call_any", noted)
    town.create()
    for given in (
        {},
        {"transactionalId": f"named-{town.topic}"},
        {"client.request.timeout.ms": "600000"},
    ):
        writer = BatchWriter(options(town, **given))
        writer.commit([writer.write(batches(["x"]))])
    sink = options(town)
    for batch_id in range(2):
        commit(sink, [stage(sink, f"query-{town.topic}", batch_id, batches=batches(["x"]))])

    assert [(each.is_last, each.begins_next) for each in sent] == [
        (True, False),
        (False, True),
        (False, False),
        (False, True),
        (False, True),
    ]
    assert values(town) == [b"x"] * 5


def test_a_micro_batch_repeated_after_its_commit_changes_nothing(
    town: SparkFixture,
) -> None:
    town.create()
    sink = options(town)
    for value in ("first", "second"):
        commit(sink, [stage(sink, town.topic, 3, batches=batches([value]))])
    with pytest.raises(StaleTransactionError):
        stage(sink, town.topic, 2, batches=batches(["late"]))

    assert values(town) == [b"first"]


@pytest.mark.statement("s31")
def test_a_transactional_id_with_batch_ids_writes_each_batch_once(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    written = [(0, ["a"]), (1, ["b", "c"]), (1, ["b", "c"]), (2, ["d"])]
    for batch_id, rows in written:
        given = {"transactionalId": town.topic, "transactionalBatchId": str(batch_id)}
        writer = BatchWriter(options(town, **given))
        writer.commit([writer.write(batches(rows))])

    assert values(town) == [b"a", b"b", b"c", b"d"]
    (warning,) = caplog.messages
    assert warning.startswith(f"batch 1 of transactionalId '{town.topic}' was committed at 20")
    assert "so 2 rows are not written again" in warning
    early = BatchWriter(options(town, transactionalId=town.topic, transactionalBatchId="1"))
    with pytest.raises(
        StaleTransactionError, match=r"batch 1 .* or a higher transactionalBatchId$"
    ):
        early.write(batches(["late"]))


def test_a_new_query_with_a_used_transactional_id_is_told_that_nothing_is_written(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    named, unnamed = options(town, transactionalId=f"etl-{town.topic}"), options(town)
    for sink, name in ((named, f"etl-{town.topic}"), (unnamed, f"query-{town.topic}")):
        for rows in (["x"], ["y"], []):
            commit(sink, [stage(sink, name, 0, batches=batches(rows))])

    assert values(town) == [b"x", b"x"]
    (warning,) = caplog.messages
    assert warning.startswith(f"batch 0 of transactionalId 'etl-{town.topic}' was committed at ")
    assert "so 1 rows are not written again" in warning
    assert "need another transactionalId" in warning


def test_a_write_names_the_options_without_effect_once(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    sink = options(town, **{"kafka.acks": "all"})
    job, stream = BatchWriter(sink), StreamWriter(sink)

    job.commit([job.write(batches(["x"]))])
    for batch_id in range(3):
        name = f"{town.topic}-query"
        stream.commit([stage(sink, name, batch_id, batches=batches(["y"]))], batch_id)

    assert values(town) == [b"x", b"y", b"y", b"y"]
    line = "option 'kafka.acks' is ignored: tidelog always writes so"
    assert caplog.messages == [line, line]


def test_a_stream_refuses_to_number_its_batches(town: SparkFixture) -> None:
    sink = options(town, transactionalId="etl", transactionalBatchId="7")

    with pytest.raises(ConfigError, match="Spark numbers the micro-batches"):
        StreamWriter(sink)


def test_a_failed_job_leaves_no_records(town: SparkFixture) -> None:
    town.create()
    sink = options(town)
    message = stage(sink, town.topic, 0, batches=batches(["a"]))
    wrong = pa.record_batch({"value": ["b"], "partition": pa.array([1], pa.int32())})
    with pytest.raises(UnknownPartitionError):
        stage(sink, town.topic, 0, batches=iter([wrong]))
    abort(sink, [message, None])
    abort(sink, [])
    commit(sink, [])

    assert values(town) == []


def test_a_stream_write_needs_the_query_id_and_batch_id_of_spark(town: SparkFixture) -> None:
    with pytest.raises(ConfigError, match="no query id or batch id"):
        StreamWriter(options(town)).write(batches(["a"]))
