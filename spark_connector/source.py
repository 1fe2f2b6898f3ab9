"""The data source `tidelog` behind Spark's DataSource API.

The source checks options when a table is loaded, so that a misspelt option fails there and not only
when the first row is read.
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

from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.one_line import in_one_line
from tidelog.spark_connector.options import SERVERS, WriteOptions
from tidelog.spark_connector.read.batch_reader import BatchReader, Decode
from tidelog.spark_connector.read.columns import check_projection, columns_of, ddl
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.read.stream_reader import RefusedStreamReader, StreamReader
from tidelog.spark_connector.user_settings import with_user_settings
from tidelog.spark_connector.values.value_reader import ValueReader, decoded_columns
from tidelog.spark_connector.worker_process import keep_imports_out_of_collections
from tidelog.spark_connector.write.rows import check_columns
from tidelog.spark_connector.write.writer import BatchWriter, StreamWriter
from tidelog.wire.errors import ConfigError, TidelogError


class TidelogSource(DataSource):
    """Topics of a cluster as tables and streams: `spark.read.format("tidelog")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "tidelog"

    @in_one_line()
    def schema(self) -> str:
        """Return the columns; `.schema("value binary, offset long")` reads only these.

        Raises:
            ConfigError: An option is unknown, missing or invalid.
        """
        keep_imports_out_of_collections()
        options = self._read_options(is_stream=None)
        return ddl(decoded_columns(columns_of(options), options.values))

    @in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a batch.

        Raises:
            ConfigError: An option is invalid for a batch, or a column does not exist.
        """
        keep_imports_out_of_collections()
        options = self._read_options(is_stream=False)
        return BatchReader(options, *_columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader for a stream.

        If an option is invalid for a stream, or a column does not exist, each call of the reader
        raises `ConfigError`.
        """
        try:
            options = self._read_options(is_stream=True)
            return StreamReader(options, *_columns(schema, options))
        except TidelogError as error:
            return RefusedStreamReader(error)

    @in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer for a batch.

        Raises:
            ConfigError: An option or a column is invalid, or the mode is `overwrite`.
            ConnectError: No broker could be reached; one line. A stream waits for its brokers.
        """
        options = _write_options(self.options, schema, is_overwriting=overwrite)
        with borrowed(options.connection) as cluster:
            cluster.reach()
        return BatchWriter(options)

    @in_one_line()
    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        """Return a writer for a stream.

        Raises:
            ConfigError: An option or a column is invalid, or the output mode is `complete`.
        """
        return StreamWriter(_write_options(self.options, schema, is_overwriting=overwrite))

    def _read_options(self, *, is_stream: bool | None) -> ReadOptions:
        _refuse_tables(self.options)
        return ReadOptions.parse(with_user_settings(self.options), is_stream=is_stream)


def _refuse_tables(raw: Mapping[str, str]) -> None:
    """Refuse a table of Spark's catalog, whose reads and writes get no options (pyspark 4.3).

    `CREATE TABLE` passes the properties of the table. Later Spark passes nothing.
    """
    if not raw or "provider" in map(str.lower, raw):
        raise ConfigError(
            "Spark passes no options to a table of CREATE TABLE ... USING tidelog; say CREATE"
            f" TEMPORARY VIEW orders USING tidelog OPTIONS ('{SERVERS}' 'host:port', subscribe"
            " 'orders'), or give options to spark.read and write"
        )


def _write_options(
    raw: Mapping[str, str], schema: StructType, *, is_overwriting: bool
) -> WriteOptions:
    keep_imports_out_of_collections()
    _refuse_tables(raw)
    options = WriteOptions.parse(with_user_settings(raw))
    if is_overwriting:
        raise ConfigError(
            'a topic is only appended to: say .mode("append"), or .outputMode("append") for a'
            " stream"
        )
    check_columns([(each.name, each.dataType.simpleString()) for each in schema.fields], options)
    return options


def _columns(schema: StructType, options: ReadOptions) -> tuple[tuple[str, ...], Decode | None]:
    """Return the columns to read, and the decoder of their values, if any."""
    wanted = [(each.name, each.dataType.simpleString(), each.nullable) for each in schema.fields]
    if options.values.format == "raw":
        return check_projection(wanted, options), None
    types = {each.name: each.dataType.jsonValue() for each in schema.fields}
    columns, reader = ValueReader.plan(wanted, types.get("value"), options)
    return columns, None if reader is None else reader.decoded
