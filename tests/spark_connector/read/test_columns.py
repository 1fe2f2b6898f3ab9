"""Tests of the columns: those of Spark's Kafka source, and errors for all others."""

import pytest

from tidelog.spark_connector.read.columns import check_projection, columns_of, ddl
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.wire.errors import ConfigError


def options(**given: str) -> ReadOptions:
    given.setdefault("subscribe", "orders")
    return ReadOptions.parse({"bootstrap.servers": "here:1", **given}, is_stream=False)


def test_a_topic_has_the_columns_of_a_kafka_topic() -> None:
    assert ddl(columns_of(options())) == (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint,"
        " `timestamp` timestamp, `timestampType` int"
    )
    with_headers = ddl(columns_of(options(includeHeaders="true")))
    assert with_headers.endswith(", `headers` array<struct<key:string,value:binary>>")


def test_dead_letters_have_origin_columns() -> None:
    given = ReadOptions.parse(
        {"bootstrap.servers": "here:1", "queueDeadLetters": "pay"}, is_stream=False
    )

    assert list(columns_of(given))[7:] == [
        "originQueue", "originTopic", "originPartition", "originOffset", "receiveCount",
        "firstReceived", "lastReceived", "firstSent", "reason",
    ]  # fmt: skip


def test_a_history_has_its_own_columns() -> None:
    given = ReadOptions.parse(
        {"bootstrap.servers": "here:1", "queueHistory": "pay"}, is_stream=False
    )

    assert list(columns_of(given))[:6] == [
        "timestamp", "event", "queue", "partition", "offset", "holder",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="there is no column 'headers'"):
        check_projection([("headers", "array<struct<key:string,value:binary>>", True)], given)


def test_a_projection_keeps_the_order_of_the_schema() -> None:
    wanted = [("offset", "bigint", True), ("value", "binary", True)]

    assert check_projection(wanted, options()) == ("offset", "value")


@pytest.mark.statement("s35")
@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([("value", "string", True)], "column value is binary, not string"),
        ([("values", "binary", True)], "there is no column 'values'"),
        ([("Value", "binary", True)], "there is no column 'Value'"),
        ([("value", "binary", False)], "cannot be NOT NULL"),
        ([("value", "binary", True)] * 2, "twice"),
        ([("reason", "string", True)], "there is no column 'reason'"),
        ([], "no column"),
    ],
)
def test_an_invalid_schema_is_refused(wanted: list[tuple[str, str, bool]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_projection(wanted, options())


def test_the_option_chooses_columns_in_its_order_and_headers_too() -> None:
    given = options(columns="offset, VALUE,headers")

    assert columns_of(given) == {
        "offset": "bigint",
        "value": "binary",
        "headers": "array<struct<key:string,value:binary>>",
    }
    wanted = [(name, kind, True) for name, kind in columns_of(given).items()]
    assert check_projection(wanted, given) == ("offset", "value", "headers")


def test_the_option_names_a_column_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"^columns: there is no column 'values'; there are key"):
        columns_of(options(columns="values"))


def test_a_schema_and_the_option_must_agree() -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        check_projection([("key", "binary", True)], options(columns="value"))
