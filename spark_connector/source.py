"""The data source `tidelog`, as Spark finds it.

Options are checked when a table is loaded, so that what is misspelt is refused there and not only
when the first row is wanted.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from tidelog.spark_connector.options import WriteOptions
from tidelog.spark_connector.read.batch_reader import BatchReader
from tidelog.spark_connector.read.columns import check_projection, columns_of, ddl
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.read.stream_reader import StreamReader
from tidelog.spark_connector.write.rows import check_columns
from tidelog.spark_connector.write.writer import BatchWriter, StreamWriter
from tidelog.wire.errors import ConfigError


class TidelogSource(DataSource):
    """Topics of a cluster as tables and streams: `spark.read.format("tidelog")`."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "tidelog"

    def schema(self) -> str:
        """Return the columns; `.schema("value binary, offset long")` reads some of them only.

        Raises:
            ConfigError: An option is unknown, missing or not legal.
        """
        return ddl(columns_of(ReadOptions.parse(self.options, is_stream=None)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch.

        Raises:
            ConfigError: An option makes no sense for a batch, or there is no such column.
        """
        options = ReadOptions.parse(self.options, is_stream=False)
        return BatchReader(options, _columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads a stream.

        Raises:
            ConfigError: An option makes no sense for a stream, or there is no such column.
        """
        options = ReadOptions.parse(self.options, is_stream=True)
        return StreamReader(options, _columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what writes a batch.

        Raises:
            ConfigError: An option or a column makes no sense, or rows are to be overwritten.
        """
        return BatchWriter(_write_options(self.options, schema, is_overwriting=overwrite))

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        """Return what writes a stream.

        Raises:
            ConfigError: An option or a column makes no sense, or the output mode is `complete`.
        """
        return StreamWriter(_write_options(self.options, schema, is_overwriting=overwrite))


def _write_options(
    raw: Mapping[str, str], schema: StructType, *, is_overwriting: bool
) -> WriteOptions:
    options = WriteOptions.parse(raw)
    if is_overwriting:
        raise ConfigError(
            'a topic is only appended to: say .mode("append"), or .outputMode("append") for a'
            " stream"
        )
    check_columns([(each.name, each.dataType.simpleString()) for each in schema.fields], options)
    return options


def _columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    wanted = [(each.name, each.dataType.simpleString(), each.nullable) for each in schema.fields]
    return check_projection(wanted, options)
