"""Batch reader of Spark's DataSource API."""

from collections.abc import Callable, Generator, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark_connector.arrow.record_batch_builder import arrow_schema
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.one_line import in_one_line
from tidelog.spark_connector.read.batch_plan import plan
from tidelog.spark_connector.read.columns import COLUMN_TYPES
from tidelog.spark_connector.read.history_reader import read_history
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.read.slice_reader import read_slice
from tidelog.spark_connector.worker_process import keep_imports_out_of_collections

Decode = Callable[[Generator[pa.RecordBatch, None, None]], Iterator[pa.RecordBatch]]
"""Decodes the values of batches."""


class BatchReader(DataSourceReader):
    """Reader of the records that existed when Spark planned the query.

    It accepts no filters: Spark would pass it the filters of another query that shares its
    `load()`, and rows would be missing (pyspark 4.3).
    """

    def __init__(
        self, options: ReadOptions, columns: Sequence[str], decode: Decode | None = None
    ) -> None:
        """Create a reader of these columns; Spark sends copies to the tasks."""
        self._options = options
        self._columns = tuple(columns)
        self._decode = decode

    @in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task; see `spark_connector.read.batch_plan`."""
        with borrowed(self._options.connection) as cluster:
            return [InputPartition(part) for part in plan(cluster, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; without partitions Spark calls it once, with `None`."""
        return read_partition(self._options, self._columns, partition, decode=self._decode)


def read_partition(
    options: ReadOptions,
    columns: Sequence[str],
    partition: InputPartition | None,
    *,
    decode: Decode | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition; none for a partition that is not a `Slice`."""
    keep_imports_out_of_collections()
    wanted = None if partition is None else partition.value
    if isinstance(wanted, Slice):
        schema = arrow_schema(columns, [COLUMN_TYPES[name] for name in columns])
        read = read_slice if options.selection.history_of is None else read_history
        batches = read(options, schema, wanted)
        with in_one_line():
            yield from batches if decode is None else decode(batches)
