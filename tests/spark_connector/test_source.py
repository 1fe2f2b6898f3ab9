"""The data source as Spark finds it: what is wrong is refused when a table is loaded."""

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


def test_it_reads_batches_and_streams_of_the_columns_that_are_wanted() -> None:
    source = TidelogSource(dict(OPTIONS))

    assert source.name() == "tidelog"
    assert source.schema().startswith("`key` binary, `value` binary")
    assert isinstance(source.reader(SOME), BatchReader)
    assert isinstance(source.streamReader(SOME), StreamReader)


def test_what_is_misspelt_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match="did you mean startingOffsets"):
        TidelogSource({**OPTIONS, "startingoffset": "earliest"}).schema()


def test_a_batch_and_a_stream_refuse_what_is_not_for_them() -> None:
    with pytest.raises(ConfigError, match="for streams"):
        TidelogSource({**OPTIONS, "maxoffsetspertrigger": "1"}).reader(SOME)
    with pytest.raises(ConfigError, match="a stream has no end"):
        TidelogSource({**OPTIONS, "endingoffsets": "latest"}).streamReader(SOME)


def test_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="column value is binary, not string"):
        TidelogSource(dict(OPTIONS)).reader(StructType().add("value", StringType()))
