"""Batch and stream writers of Spark's DataSource API: atomic, exactly once.

The transaction of a micro-batch is named by the query's id and the batch number. A batch job draws
a random name, unless `transactionalId` sets it, and `transactionalBatchId` its number. Tasks stage
under that name, and Spark names the task attempts that count.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.client.transactions.staged_places import StagedPlace
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.one_line import in_one_line
from tidelog.spark_connector.options import WriteOptions
from tidelog.spark_connector.worker_process import keep_imports_out_of_collections
from tidelog.spark_connector.write import transaction
from tidelog.spark_connector.write.rows import KeyPartitioner, row_batches, topics_of
from tidelog.wire.batch.compression import CODEC_NAMES
from tidelog.wire.errors import (
    ConfigError,
    StaleTransactionError,
    TidelogError,
    TransactionGoneError,
)

_log: Final = logging.getLogger(__name__)
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_REMEDY: Final = (
    "rows that are new, as after a new checkpoint, need another transactionalId, or a higher"
    " transactionalBatchId"
)
"""Advice for a batch whose number is used, or too low."""


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
    """Rows of the task; none of them is staged if `number` is 0."""


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch job; with a `transactionalId` exactly once, even if the job runs again."""

    def __init__(self, options: WriteOptions) -> None:
        """Choose the name for copies in the tasks, and for the commit in the driver."""
        self._options = options
        self._name = options.transactional_id or f"spark-{uuid.uuid4()}"

    @in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:  # type: ignore[override]
        """Stage the rows of one task."""
        batch_id = self._options.transactional_batch_id or 0
        return stage(self._options, self._name, batch_id, batches=iterator)

    @in_one_line()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the records that these tasks have staged."""
        commit(self._options, messages, is_last=self._options.transactional_id is None)
        _tell_ignored(self._options)

    @in_one_line()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort unless committed: Spark also calls this after a commit."""
        abort(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a streaming query: each micro-batch exactly once."""

    def __init__(self, options: WriteOptions) -> None:
        """Create a writer; Spark sends copies to the tasks, and another instance commits.

        Raises:
            ConfigError: The options number the batches, as Spark does.
        """
        if options.transactional_batch_id is not None:
            raise ConfigError(
                "transactionalBatchId is for batches, as in foreachBatch; Spark numbers the"
                " micro-batches of a stream, so leave it out"
            )
        self._options = options

    @in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:  # type: ignore[override]
        """Stage the rows of one task."""
        query_id, batch_id = self._query_and_batch()
        return stage(
            self._options, self._options.transactional_id or query_id, batch_id, batches=iterator
        )

    @in_one_line()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the records that these tasks have staged; idempotent."""
        commit(self._options, messages)
        if batchId == 0:  # Each batch has a process of its own, which knows of no other.
            _tell_ignored(self._options)

    @in_one_line()
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
        StaleTransactionError: The name has a higher batch.
        TidelogError: A row cannot be written, or no broker answered; no row is visible.
    """
    keep_imports_out_of_collections()
    with borrowed(options.connection) as cluster:
        try:
            task = transaction.StagingTask(
                cluster,
                name,
                batch_id,
                codec=CODEC_NAMES[options.compression],
                stage_timeout_ms=options.stage_timeout_ms,
            )
        except StaleTransactionError as error:
            if options.transactional_id is None:
                raise
            raise StaleTransactionError(
                f"batch {batch_id} cannot be written: {error}; {_REMEDY}"
            ) from error
        row_count, known_keys = 0, KeyPartitioner()
        context = TaskContext.get()
        sticky = 0 if context is None else context.partitionId()
        for batch in batches:
            row_count += batch.num_rows
            if not task.number or not batch.num_rows:
                continue  # A batch that was committed before is not written again.
            counts = task.partition_counts(topics_of(batch, options))
            task.stage(row_batches(batch, options, counts, sticky=sticky, known_keys=known_keys))
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
        if options.transactional_id is not None and any(not each.number for each in staged):
            _warn_of_skipped(cluster, staged)


def _warn_of_skipped(cluster: BlockingClusterClient, staged: Sequence[TaskCommitMessage]) -> None:
    """Say that rows are not written, because their batch was committed before.

    That is right for a batch that Spark repeats. For other rows under a used number it loses them,
    and no broker can tell the two cases apart.
    """
    row_count = sum(each.row_count for each in staged)
    if not row_count:
        return
    name, batch_id = staged[0].name, staged[0].batch_id
    when = "before"
    with suppress(TidelogError):  # The write has succeeded.
        committed_at_ms = transaction.committed_at_ms(cluster, name, batch_id)
        if committed_at_ms is not None:
            at = datetime.fromtimestamp(committed_at_ms / 1000, UTC)
            when = f"at {at.isoformat(timespec='seconds')}"
    _log.warning(
        "batch %d of transactionalId %r was committed %s, so %d rows are not written again; %s",
        *(batch_id, name, when, row_count, _REMEDY),
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


def _tell_ignored(options: WriteOptions) -> None:
    for line in options.ignored:
        _log.warning("%s", line)
