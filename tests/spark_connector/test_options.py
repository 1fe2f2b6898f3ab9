"""Tests of option parsing: an invalid option is an error of one line with the valid form."""

import pickle

import pytest

from tidelog.client.cluster.address import Address
from tidelog.spark_connector.options import (
    CONNECTION_NAMES,
    ConnectionOptions,
    GivenOptions,
    WriteOptions,
    parse_object,
)
from tidelog.wire.errors import ConfigError

NAMES = ("count", "isOn", "delay", "shape", *CONNECTION_NAMES)
SERVERS = {"bootstrap.servers": "here:1"}


def given(**options: str) -> GivenOptions:
    return GivenOptions({**options, **SERVERS}, NAMES)


def test_option_names_are_case_insensitive() -> None:
    options = given(ISON="TRUE", COUNT="7")

    assert options.flag("isOn", default=False)
    assert options.number("count") == 7
    assert "isOn" in options
    assert options.given(("delay", "count")) == ["count"]


@pytest.mark.statement("s6")
@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("isof", "isOn"),
        ("counts", "count"),
        ("client.request.timeout", "client.request.timeout.ms"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("bootstrap.server", "bootstrap.servers"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"did you mean {nearest}\?"):
        GivenOptions({name: "1"}, NAMES)


@pytest.mark.statement("s6")
@pytest.mark.parametrize("name", ["header", "format", "kafka", "x"])
def test_a_name_that_resembles_none_gets_no_senseless_hint(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^option '{name}' is not known; leave it out$"):
        GivenOptions({name: "1"}, NAMES)


@pytest.mark.parametrize(
    ("name", "advice"),
    [("topic", "subscribe names the topics"), ("checkpointLocation", "it is for writeStream")],
)
def test_an_option_of_the_other_direction_is_refused_with_the_right_name(
    name: str, advice: str
) -> None:
    with pytest.raises(ConfigError, match=advice):
        GivenOptions({name: "1"}, NAMES)


def test_a_path_is_refused_because_topics_have_none() -> None:
    with pytest.raises(ConfigError, match="no paths"):
        GivenOptions({"path": "orders"}, NAMES)


def test_two_spellings_of_one_option_are_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        GivenOptions({"kafka.bootstrap.servers": "a:1", "bootstrap.servers": "b:1"}, NAMES)


@pytest.mark.parametrize("text", ["1.5", "true", "", " ", "0x10", "1e3", "٣", str(1 << 63), "0"])
def test_a_count_must_be_a_positive_whole_number(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^count must"):
        given(count=text).number("count")


def test_at_least_zero_permits_zero() -> None:
    assert given(count="0").number("count", at_least=0) == 0
    with pytest.raises(ConfigError, match="at least 0, not -1"):
        given(count="-1").number("count", at_least=0)


@pytest.mark.parametrize("text", ["yes", "1", "", "tru"])
def test_a_flag_must_be_true_or_false(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^isOn must"):
        given(isOn=text).flag("isOn", default=True)


def test_a_choice_accepts_only_its_values() -> None:
    assert given(shape="ROUND").choice("shape", ("round", "flat"), default="flat") == "round"
    assert given().choice("shape", ("round", "flat"), default="flat") == "flat"
    with pytest.raises(ConfigError, match="round or flat, not 'square'"):
        given(shape="square").choice("shape", ("round", "flat"), default="flat")


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("1 hour", 3_600_000),
        ("1 week", 604_800_000),
        ("500", 500),
    ],
)
def test_a_duration_has_a_unit_or_is_in_milliseconds(text: str, expected_ms: int) -> None:
    assert given(delay=text).duration_ms("delay", default=1) == expected_ms


@pytest.mark.parametrize("text", ["0s", "-1s", "1.5s", "1 month", "soon", "1s1s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^delay (must be above 0|is .*, it must be a duration)"):
        given(delay=text).duration_ms("delay", default=1)


@pytest.mark.parametrize("text", ["[]", "1", "{", '{"a":1,"a":2}', "[" * 100_000])
def test_json_must_be_an_object_without_duplicate_keys(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^startingOffsets"):
        parse_object("startingOffsets", text)


def test_connection_options_have_addresses_and_timeouts() -> None:
    options = ConnectionOptions.parse(
        GivenOptions({"kafka.bootstrap.servers": "a,b:2", "client.request.timeout.ms": "5s"}, NAMES)
    )

    assert options.addresses == (Address("a", 8433), Address("b", 2))
    assert options.request_timeout_ms == 5000
    assert pickle.loads(pickle.dumps(options)) == options
    assert len({options, ConnectionOptions(addresses=(Address("a", 8433),))}) == 2


@pytest.mark.parametrize("servers", [{}, {"bootstrap.servers": "a:b"}, {"bootstrap.servers": ","}])
def test_missing_bootstrap_servers_are_refused(servers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"host:port|a broker address"):
        ConnectionOptions.parse(GivenOptions(servers, NAMES))


def test_a_sink_accepts_options_that_spark_adds() -> None:
    options = WriteOptions.parse(
        {**SERVERS, "topic": "orders", "checkpointlocation": "checkpoints"}
    )

    assert (options.topic, options.compression, options.transactional_id) == (
        "orders",
        "none",
        None,
    )
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_sink_names_the_settings_of_kafka_without_effect() -> None:
    given = {
        "kafka.bootstrap.servers": "here:1",
        "kafka.acks": "all",
        "kafka.compression.type": "lz4",
    }
    options = WriteOptions.parse({**given, "kafka.group.id": "billing"})

    assert (options.compression, options.connection.addresses[0].host) == ("lz4", "here")
    assert options.ignored == (
        "option 'kafka.acks' is ignored: tidelog always writes so",
        "option 'kafka.group.id' is ignored: groupId does not apply here",
    )
    with pytest.raises(ConfigError, match=r"subscribe.*topic names the topic to write"):
        WriteOptions.parse({**SERVERS, "subscribe": "orders"})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("subscribe", "orders", "not known"),
        ("compression", "gzip", "none or lz4 or zstd"),
        ("topic", "", "must not be empty"),
        ("transactionalId", " ", "must not be empty"),
        ("stage.timeout.ms", "0", "above 0"),
        ("transactionalBatchId", "0", 'say .option\\("transactionalId"'),
    ],
)
def test_a_sink_refuses_unknown_and_invalid_options(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WriteOptions.parse({**SERVERS, name: text})


def test_a_transactional_id_may_number_its_writes() -> None:
    options = WriteOptions.parse({**SERVERS, "transactionalid": "etl", "transactionalbatchid": "7"})

    assert (options.transactional_id, options.transactional_batch_id) == ("etl", 7)
