"""Batch and stream writers of Spark's DataSource API: atomic, exactly once.

The transaction of a micro-batch is named by the query's id and the batch number. A batch job draws
a random name, unless `transactionalId` sets it. Tasks stage under that name, and Spark names the
task attempts that count.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.client.transactions.staged_places import StagedPlace
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.options import WriteOptions
from tidelog.spark_connector.write import transaction
from tidelog.spark_connector.write.rows import KeyPartitioner, row_batches, topics_of
from tidelog.wire.batch.compression import CODEC_NAMES
from tidelog.wire.errors import ConfigError, TransactionGoneError

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@final
@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """Places of the records that one task has staged."""

    name: str
    batch_id: int
    number: int
    """Number of the transaction; 0 if the batch was committed before."""
    places: tuple[StagedPlace, ...]
    row_count: int


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch job; with a `transactionalId` exactly once, even if the job runs again."""

    def __init__(self, options: WriteOptions) -> None:
        """Choose the name for copies in the tasks, and for the commit in the driver."""
        self._options = options
        self._name = options.transactional_id or f"spark-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:  # type: ignore[override]
        """Stage the rows of one task."""
        return stage(self._options, self._name, 0, batches=iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the records that these tasks have staged."""
        commit(self._options, messages, is_last=self._options.transactional_id is None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort unless committed: Spark also calls this after a commit."""
        abort(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a streaming query: each micro-batch exactly once."""

    def __init__(self, options: WriteOptions) -> None:
        """Create a writer; Spark sends copies to the tasks, and another instance commits."""
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:  # type: ignore[override]
        """Stage the rows of one task."""
        query_id, batch_id = self._query_and_batch()
        return stage(
            self._options, self._options.transactional_id or query_id, batch_id, batches=iterator
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the records that these tasks have staged; idempotent."""
        del batchId
        commit(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort unless committed: Spark also calls this after a commit."""
        del batchId
        abort(self._options, messages)

    @staticmethod
    def _query_and_batch() -> tuple[str, int]:
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        batch_id = None if context is None else context.getLocalProperty(_BATCH_ID)
        if not query_id or batch_id is None:
            raise ConfigError(
                "cannot write a stream: the task context of Spark has no query id or batch id"
            )
        return query_id, int(batch_id)


def stage(
    options: WriteOptions, name: str, batch_id: int, *, batches: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    """Stage the rows of a task, and return their places.

    Raises:
        TidelogError: A row cannot be written, or no broker answered; no row is visible.
    """
    with borrowed(options.connection) as cluster:
        task = transaction.StagingTask(
            cluster,
            name,
            batch_id,
            codec=CODEC_NAMES[options.compression],
            stage_timeout_ms=options.stage_timeout_ms,
        )
        row_count, known_keys = 0, KeyPartitioner()
        context = TaskContext.get()
        sticky = 0 if context is None else context.partitionId()
        for batch in batches:
            if not task.number or not batch.num_rows:
                continue  # A batch that was committed before is not written again.
            counts = task.partition_counts(topics_of(batch, options))
            task.stage(row_batches(batch, options, counts, sticky=sticky, known_keys=known_keys))
            row_count += batch.num_rows
            sticky += 1
        return TaskCommitMessage(name, batch_id, task.number, task.finish(), row_count)


def commit(
    options: WriteOptions,
    messages: Sequence[WriterCommitMessage | None],
    *,
    is_last: bool = False,
) -> None:
    """Commit the records of tasks, in the order of the tasks.

    `is_last` says that the name of the transaction was drawn for it.

    Raises:
        TransactionGoneError: The tasks have not staged for the same transaction.
        TidelogError: The commit was rejected, or its outcome is unknown.
    """
    staged = _staged(messages)
    numbers = {each.number for each in staged} - {0}
    if not staged:
        return
    if len(numbers) > 1:
        raise TransactionGoneError(
            f"batch {staged[0].batch_id} of {staged[0].name!r} was begun again while tasks staged"
            " for it; run it again"
        )
    places = [place for each in staged if each.number for place in each.places]
    with borrowed(options.connection) as cluster:
        number = numbers.pop() if numbers else 0
        transaction.commit(
            cluster,
            staged[0].name,
            staged[0].batch_id,
            number=number,
            places=places,
            is_last=is_last,
        )


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the transactions of tasks; committed ones stay."""
    with borrowed(options.connection) as cluster:
        for name, batch_id, number in {
            (each.name, each.batch_id, each.number): None for each in _staged(messages)
        }:
            if number:
                transaction.abort(cluster, name, batch_id, number=number)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommitMessage]:
    return [each for each in messages if isinstance(each, TaskCommitMessage)]
