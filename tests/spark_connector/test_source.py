"""Tests of the data source: invalid options are refused when a table is loaded."""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from tidelog.spark_connector.read.batch_reader import BatchReader
from tidelog.spark_connector.read.stream_reader import StreamReader
from tidelog.spark_connector.source import TidelogSource
from tidelog.wire.errors import ConfigError

OPTIONS = {"bootstrap.servers": "here:1", "subscribe": "orders"}
SOME = StructType().add("value", BinaryType()).add("offset", LongType())


def test_the_source_creates_batch_and_stream_readers_of_the_schema() -> None:
    source = TidelogSource(dict(OPTIONS))

    assert source.name() == "tidelog"
    assert source.schema().startswith("`key` binary, `value` binary")
    assert isinstance(source.reader(SOME), BatchReader)
    assert isinstance(source.streamReader(SOME), StreamReader)


def test_a_misspelt_option_is_refused_before_any_read() -> None:
    with pytest.raises(ConfigError, match="did you mean startingOffsets"):
        TidelogSource({**OPTIONS, "startingoffset": "earliest"}).schema()


def test_a_batch_takes_options_of_a_stream_and_a_stream_refuses_an_end() -> None:
    batch = TidelogSource({**OPTIONS, "maxoffsetspertrigger": "1"}).reader(SOME)

    assert isinstance(batch, BatchReader)
    with pytest.raises(ConfigError, match="a stream has no end"):
        TidelogSource({**OPTIONS, "endingoffsets": "latest"}).streamReader(SOME)


def test_a_schema_with_another_column_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="column value is binary, not string"):
        TidelogSource(dict(OPTIONS)).reader(StructType().add("value", StringType()))
