"""Tests of the settings of Kafka jobs: mapped, ignored with a reason, or refused with advice."""

import pytest

from tidelog.spark_connector.kafka_names import EQUIVALENTS, reason_to_ignore
from tidelog.spark_connector.options import WRITE_NAMES, GivenOptions
from tidelog.spark_connector.read.read_options import READ_NAMES
from tidelog.wire.errors import ConfigError


def given(name: str, value: str = "1") -> GivenOptions:
    return GivenOptions({name: value}, READ_NAMES)


def test_every_equivalent_is_an_option_of_the_source_or_the_sink() -> None:
    assert set(EQUIVALENTS.values()) <= {*READ_NAMES, *WRITE_NAMES}
    assert all(name == name.lower() for name in EQUIVALENTS)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("kafka.bootstrap.servers", "bootstrap.servers"),
        ("kafka.Client.Id", "client.id"),
        ("kafka.request.timeout.ms", "client.request.timeout.ms"),
        ("kafka.group.id", "groupId"),
        ("kafkaConsumer.pollTimeoutMs", "fetch.timeout.ms"),
    ],
)
def test_a_setting_with_an_equivalent_is_mapped(name: str, option: str) -> None:
    options = given(name, "7")

    assert options.text(option) == "7"
    assert not options.ignored


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("kafka.max.poll.records", "500", "it tunes Kafka's client"),
        ("kafka.SESSION.timeout.ms", "500", "it tunes Kafka's client"),
        ("kafka.security.protocol", "plaintext", "connections are plain without client.tls.ca"),
        ("kafka.compression.type", "lz4", "compression does not apply here"),
        ("kafka.acks", "all", "tidelog always writes so"),
    ],
)
def test_a_setting_without_an_effect_is_ignored_and_says_why(
    name: str, value: str, why: str
) -> None:
    assert given(name, value).ignored == [f"option {name!r} is ignored: {why}"]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("kafka.auto.offset.reset", "say startingOffsets"),
        ("kafka.security.protocol", "say client.tls.ca for TLS"),
        ("kafka.sasl.jaas.config", "say client.user and client.password, or client.token"),
        ("kafka.ssl.truststore.location", "say client.tls.ca"),
        ("kafka.value.deserializer", "leave it out"),
        ("kafka.transactional.id", "say transactionalId"),
        ("kafka.max.poll.record", r"did you mean kafka.max.poll.records\?"),
        ("kafka.something.else.entirely", "tidelog has no equivalent; leave it out"),
    ],
)
def test_a_setting_that_asks_for_more_is_refused_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{name}' is not known; {advice}"):
        given(name, "SASL_SSL")


def test_another_name_is_none_of_kafka() -> None:
    assert reason_to_ignore("subscribe", "orders", {}) is None
