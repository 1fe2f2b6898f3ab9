"""Addresses at which a front listens."""

import pytest

from tidelog.gateway.sqs.listen_address import ListenAddress, parse_listen
from tidelog.wire.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port", "is_local"),
    [
        ("127.0.0.1:9324", "127.0.0.1", 9324, True),
        ("127.0.0.1", "127.0.0.1", 9324, True),
        ("LocalHost:0", "LocalHost", 0, True),
        ("[::1]:9324", "::1", 9324, True),
        ("0.0.0.0:9324", "0.0.0.0", 9324, False),
        ("[::]:9324", "::", 9324, False),
        ("sqs.example.com", "sqs.example.com", 9324, False),
    ],
)
def test_an_address_is_read(text: str, host: str, *, port: int, is_local: bool) -> None:
    address = parse_listen(text)

    assert address == (host, port)
    assert address.is_local is is_local
    assert parse_listen(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "9324", ":9324", "a:b", "a:65536", "a:1:2", "::1", "http://a:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write HOST:PORT"):
        parse_listen(text)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert str(ListenAddress("::1", 9324)) == "[::1]:9324"
