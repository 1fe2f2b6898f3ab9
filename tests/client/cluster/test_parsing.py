"""Addresses and durations, in the notations of users and brokers."""

import pytest

from tidelog.client.cluster.address import Address, parse_addresses
from tidelog.client.cluster.durations import milliseconds_of, seconds_of
from tidelog.wire.errors import ConfigError, WireFormatError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9000", Address("localhost", 9000)),
        ("localhost", Address("localhost", 8433)),
        ("10.0.0.1:1", Address("10.0.0.1", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        ("[fe80::1]", Address("fe80::1", 8433)),
    ],
)
def test_an_address_is_a_host_and_maybe_a_port(text: str, address: Address) -> None:
    assert parse_addresses(text) == [address]


def test_several_addresses_are_separated_by_commas() -> None:
    found = parse_addresses(" a:1, b ,c:3,")

    assert found == [Address("a", 1), Address("b", 8433), Address("c", 3)]


@pytest.mark.parametrize("address", [Address("a", 1), Address("::1", 8433)])
def test_a_printed_address_parses_to_the_same_address(address: Address) -> None:
    assert parse_addresses(str(address)) == [address]


@pytest.mark.parametrize(
    "text", ["::1", "a:b:1", ":1", "[::1", "[::1]x", "http://a:1", "a:0", "a:65536", "a:-1", "a:²"]
)
def test_an_invalid_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a broker address"):
        parse_addresses(text)


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_an_empty_address_list_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="write host:port, for instance localhost:8433"):
        parse_addresses(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("250ms", 0.25), ("1500", 1.5), ("30s", 30), ("2 min", 120), ("1H", 3600)],
)
def test_units_are_those_of_settings(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "none", "1 fortnight", "-1s", "1.5s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(WireFormatError, match="is not a duration"):
        seconds_of(text)


@pytest.mark.parametrize("seconds", [-0.001, float("inf"), float("nan")])
def test_a_negative_or_infinite_duration_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="delay must be a number of seconds from 0 on"):
        milliseconds_of("delay", seconds)
