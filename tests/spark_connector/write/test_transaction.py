"""Tests of transactions over blocking sockets, against a real broker."""

import pytest

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.write import transaction
from tidelog.spark_connector.write.rows import RowBatch
from tidelog.spark_connector.write.transaction import StagingTask
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns
from tidelog.wire.errors import StaleTransactionError, TransactionGoneError, UnknownTopicError


def task_of(
    town: SparkFixture, cluster: BlockingClusterClient, transaction_id: int = 0
) -> StagingTask:
    return StagingTask(
        cluster, town.topic, transaction_id, codec=Codec.ZSTD, stage_timeout_ms=30_000
    )


def row_batch(town: SparkFixture, partition: int, *values: bytes) -> RowBatch:
    return RowBatch(town.topic, partition, Columns(len(values), values=list(values)))


def values(town: SparkFixture) -> list[bytes | None]:
    with town.client.consumer(town.topic, auto_offset_reset="earliest") as consumer:
        records = list(consumer.records(consumer.end_offsets()))
    return [each.value for each in sorted(records, key=lambda each: (each.partition, each.offset))]


def test_staged_records_are_visible_once_after_the_commit(town: SparkFixture) -> None:
    town.create(2)
    with borrowed(town.options().connection) as cluster:
        task = task_of(town, cluster)
        assert task.partition_counts([town.topic]) == {town.topic: 2}
        task.stage(
            [
                row_batch(town, 0, b"a", b"b"),
                row_batch(town, 1, b"c"),
                row_batch(town, 0, b"d"),
            ]
        )
        task.stage([row_batch(town, 0, b"e")])
        task.finish()
        assert values(town) == []

        for _ in range(2):
            transaction.commit(cluster, town.topic, 0, number=task.number, places=task.finish())

        assert values(town) == [b"a", b"b", b"d", b"e", b"c"]
        assert transaction.abort(cluster, town.topic, 0, number=task.number)
        assert task_of(town, cluster).number == 0
        another = f"{town.topic}-another"
        town.client.admin.create_topic(another)
        with pytest.raises(TransactionGoneError, match="committed while"):
            task.partition_counts([another])


def test_the_records_of_an_aborted_transaction_are_never_visible(town: SparkFixture) -> None:
    town.create()
    with borrowed(town.options().connection) as cluster:
        task = task_of(town, cluster, 3)
        task.partition_counts([town.topic])
        task.stage([row_batch(town, 0, b"a")])
        places = task.finish()
        assert not transaction.abort(cluster, town.topic, 3, number=task.number)

        task.stage([row_batch(town, 0, b"b")])
        for _ in range(2):
            with pytest.raises(TransactionGoneError):
                task.finish()
        with pytest.raises(TransactionGoneError):
            transaction.commit(cluster, town.topic, 3, number=task.number, places=places)
        newer = task_of(town, cluster, 4)
        transaction.commit(cluster, town.topic, 4, number=newer.number, places=[])
        with pytest.raises(StaleTransactionError):
            task_of(town, cluster, 3)
        assert values(town) == []


def test_staging_for_an_unknown_topic_is_refused(town: SparkFixture) -> None:
    town.create()
    with borrowed(town.options().connection) as cluster, pytest.raises(UnknownTopicError):
        task_of(town, cluster).partition_counts(["nowhere"])


def test_a_staging_round_is_retried_after_a_lost_connection(town: SparkFixture) -> None:
    town.create()
    with borrowed(town.options().connection) as cluster:
        task = task_of(town, cluster)
        task.partition_counts([town.topic])
        task.stage([row_batch(town, 0, b"a")])
        cluster.close()
        task.stage([row_batch(town, 0, b"b")])
        transaction.commit(cluster, town.topic, 0, number=task.number, places=task.finish())

        assert values(town) == [b"a", b"b"]


def test_another_topic_and_another_batch_wait_for_the_round_in_flight(town: SparkFixture) -> None:
    town.create(2)
    other = town.topic + "-other"
    town.client.admin.create_topic(other)
    with borrowed(town.options().connection) as cluster:
        task = task_of(town, cluster)
        for number in range(5):
            task.partition_counts([town.topic])
            task.stage([row_batch(town, number % 2, b"%d" % number)])
            task.partition_counts([town.topic, other])
            task.stage([RowBatch(other, 0, Columns(1, values=[b"%d" % number]))])
        transaction.commit(cluster, town.topic, 0, number=task.number, places=task.finish())

        assert values(town) == [b"0", b"2", b"4", b"1", b"3"]
        assert cluster.is_idle


def test_small_batches_of_many_partitions_share_requests_and_keep_their_order(
    town: SparkFixture,
) -> None:
    town.create(4)
    size = 300_000
    written = [b"%02d" % number + b"x" * size for number in range(16)]
    with borrowed(town.options().connection) as cluster:
        task = StagingTask(cluster, town.topic, 0, codec=Codec.NONE, stage_timeout_ms=30_000)
        task.partition_counts([town.topic])
        sent_before = cluster.sent_count
        for number, value in enumerate(written):
            task.stage([row_batch(town, number % 4, value)])
        places = task.finish()
        sent_count = cluster.sent_count - sent_before
        transaction.commit(cluster, town.topic, 0, number=task.number, places=places)

        assert sent_count <= 8, "four partitions in one request, plus the request of a producer id"
        assert values(town) == [written[number] for at in range(4) for number in range(at, 16, 4)]
