"""Tests of the data source: invalid options are refused when a table is loaded."""

import pickle
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from tidelog.spark_connector.read.batch_reader import BatchReader
from tidelog.spark_connector.read.stream_reader import StreamReader
from tidelog.spark_connector.source import TidelogSource
from tidelog.wire.errors import ConfigError, ConnectError

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


def test_a_batch_takes_options_of_a_stream() -> None:
    batch = TidelogSource({**OPTIONS, "maxoffsetspertrigger": "1"}).reader(SOME)

    assert isinstance(batch, BatchReader)


def test_a_refused_option_of_a_stream_is_the_error_of_each_call_of_its_reader() -> None:
    refused = TidelogSource({**OPTIONS, "endingoffsets": "latest"}).streamReader(SOME)
    reader: Any = pickle.loads(pickle.dumps(refused))
    limit = ReadAllAvailable()
    calls: list[Callable[[], object]] = [
        reader.prepareForTriggerAvailableNow,
        reader.getDefaultReadLimit,
        reader.initialOffset,
        lambda: reader.latestOffset({}, limit),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(None)),
    ]

    for call in calls:
        with pytest.raises(ConfigError, match="a stream has no end"):
            call()


def test_a_schema_with_another_column_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="column value is binary, not string"):
        TidelogSource(dict(OPTIONS)).reader(StructType().add("value", StringType()))


@pytest.mark.parametrize("options", [{}, {**OPTIONS, "provider": "tidelog", "owner": "ann"}])
def test_a_table_of_the_catalog_is_refused_with_the_view_to_create_instead(
    options: dict[str, str],
) -> None:
    source = TidelogSource(options)

    for use in (source.schema, partial(source.reader, SOME), partial(source.writer, SOME, False)):
        with pytest.raises(ConfigError, match="CREATE TEMPORARY VIEW orders USING tidelog OPTIONS"):
            use()


def test_a_batch_write_says_soon_that_no_broker_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
    options = {"bootstrap.servers": address, "topic": "orders", "client.connect.timeout.ms": "50"}

    with pytest.raises(ConnectError, match="is the broker running"):
        TidelogSource(options).writer(SOME, overwrite=False)
