"""A source of Spark that yields one Arrow batch, made beforehand, again and again.

What is left of a read then is Spark's own transport, which no source in Python can be faster than.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_connector.arrow import ROWS_MAX, ArrowRows, arrow_schema
from spark_connector.columns import COLUMN_TYPES, RECORD_COLUMNS, ddl
from spark_connector.record_columns import GivenRecords

VALUE = bytes(100)


def one_batch(columns: list[str]) -> pa.RecordBatch:
    """Return a batch as the connector makes them."""
    rows = ArrowRows(arrow_schema(columns, [COLUMN_TYPES[name] for name in columns]))
    count = ROWS_MAX
    keys, values = [None] * count, [VALUE] * count
    rows.add(GivenRecords("spark", 0, False, range(count), 0, None, keys, values, [()] * count))
    return rows.take()


class CeilingSource(DataSource):
    """Takes the options `rows`, of each task, and `tasks`."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "tidelog_ceiling"

    def schema(self) -> str:
        """Return all columns of a topic."""
        return ddl(RECORD_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads."""
        return _CeilingReader(int(self.options["rows"]), int(self.options["tasks"]), schema.names)


class _CeilingReader(DataSourceReader):
    def __init__(self, row_count: int, task_count: int, columns: list[str]) -> None:
        self._row_count = row_count
        self._task_count = task_count
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._task_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        batch = one_batch(self._columns)
        left = self._row_count
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows
