"""Empty source and sink of Spark, which measure Spark's own transport.

The source yields one prepared Arrow batch repeatedly; the sink discards its rows. No source or sink
in Python can be faster.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bench.spark_records import SHAPES, Records
from tidelog.spark_connector.arrow.column_builders import ROWS_MAX
from tidelog.spark_connector.arrow.record_batch_builder import RecordBatchBuilder, arrow_schema
from tidelog.spark_connector.arrow.record_columns import GivenRecords
from tidelog.spark_connector.read.columns import COLUMN_TYPES, RECORD_COLUMNS, ddl

NAME: Final = "tidelog_ceiling"
_FIRST_MS: Final = 1_700_000_000_000


@cache  # Once in each worker process.
def one_batch(topic: str, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Return a batch like those of the connector for the records of a topic."""
    rows = RecordBatchBuilder(arrow_schema(columns, [COLUMN_TYPES[name] for name in columns]))
    (shape,) = (each for each in SHAPES if each.topic == topic)
    count = ROWS_MAX
    made = Records(shape).take(count)
    assert made.keys is not None
    assert made.values is not None
    deltas, headers = made.timestamp_deltas, [()] * count
    rows.add(
        GivenRecords(
            topic, 0, False, range(count), _FIRST_MS, deltas, made.keys, made.values, headers
        )
    )
    return rows.take()


class CeilingSource(DataSource):
    """Source with the options `topic`, `rows` (of each task) and `tasks`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> str:
        """Return all columns of a topic."""
        return ddl(RECORD_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _CeilingReader(dict(self.options), schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer that discards the rows of a batch."""
        del schema, overwrite
        return _BatchWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return a writer that discards the rows of a stream."""
        del schema, overwrite
        return _StreamWriter()


class _CeilingReader(DataSourceReader):
    def __init__(self, options: dict[str, str], columns: list[str]) -> None:
        self._topic = options["topic"]
        self._row_count = int(options["rows"])
        self._task_count = int(options["tasks"])
        self._columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._task_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        batch = one_batch(self._topic, self._columns)
        left = self._row_count
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


class _BatchWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        return _drop(iterator)


class _StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        return _drop(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


def _drop(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()
