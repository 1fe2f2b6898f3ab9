"""Addresses that other machines reach, and the refusal to serve them without protection."""

import pytest

from tests.advice import part_of
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.config.exposure import check_exposure, is_local, open_addresses
from tidelog.wire.errors import ConfigError


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1:8433", "127.8.9.1:1", "[::1]:8433", "::1", "[::ffff:127.0.0.1]:1"),
        *("localhost:8433", "LOCALHOST"),
    ],
)
def test_only_this_machine_reaches_loopback(address: str) -> None:
    assert is_local(address)
    check_exposure(BrokerConfig(listen=address))


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0:8433", "[::]:8433", "10.0.0.1:8433", "[::ffff:10.0.0.1]:1", "[fe80::1]:1"),
        *("broker-1:8433", "localhost.example.com:8433", "127.0.0.1.example.com:1", "0:1"),
    ],
)
@pytest.mark.parametrize("name", ["listen", "advertised"])
def test_another_address_is_refused_with_both_ways_out(name: str, address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_exposure(BrokerConfig(**{name: address}))  # type: ignore[arg-type]

    said = str(refused.value)
    assert said.startswith(f"{name} is {address}, which other machines reach")
    assert part_of(said, r"(`tidelog cluster init-tls [^`]*`)")
    setting, value = part_of(said, r'\((\w+ = "on")\)').replace('"', "").split(" = ")
    assert "\n" not in said
    check_exposure(BrokerConfig(**{name: address, setting: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "tls = require and authentication = required"),
        ({"tls_directory": "tls", "tls": "require"}, "authentication = required"),
        ({"authentication": "required"}, "tls = require"),
        (
            {"tls_directory": "tls", "tls": "accept", "authentication": "required"},
            "tls = require",
        ),
    ],
)
def test_tls_and_authentication_are_needed_together(settings: dict[str, str], missing: str) -> None:
    exposed = {"listen": "10.0.0.1:8433", **settings}
    with pytest.raises(ConfigError, match=f"other machines reach, without {missing}: "):
        check_exposure(BrokerConfig(**exposed))  # type: ignore[arg-type]


def test_with_both_a_broker_serves_other_machines() -> None:
    secured = BrokerConfig(
        listen="10.0.0.1:8433", tls="require", tls_directory="tls", authentication="required"
    )

    check_exposure(secured)
    assert open_addresses(secured) == {}


def test_pages_without_records_need_no_protection() -> None:
    check_exposure(BrokerConfig(http_listen="0.0.0.0:8480"))


def test_an_embedded_broker_listens_where_its_program_says() -> None:
    assert BrokerConfig(listen="0.0.0.0:0").insecure_listen == "off"
