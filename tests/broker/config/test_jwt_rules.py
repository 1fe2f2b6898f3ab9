"""Settings about the tokens of an identity provider."""

import pytest

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.config.jwt_rules import JwtRules
from tidelog.wire.errors import ConfigError

ALL = {"jwt_issuer": "https://a/", "jwt_audience": "tidelog", "jwt_keys": "keys.json"}


def test_three_settings_are_enough() -> None:
    config = BrokerConfig(**ALL)  # type: ignore[arg-type]

    assert config.jwt_rules == JwtRules(
        "https://a/", "tidelog", frozenset({"RS256", "ES256"}), user_claim="sub"
    )


@pytest.mark.parametrize("missing", ALL)
def test_two_of_them_are_not(missing: str) -> None:
    given = {name: value for name, value in ALL.items() if name != missing}

    with pytest.raises(ConfigError, match=f"needs {missing} as well"):
        BrokerConfig(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithms", ["none", "HS256", "RS256,HS256", "", ","])
def test_only_signatures_by_a_private_key_are_allowed(algorithms: str) -> None:
    with pytest.raises(ConfigError, match=r"jwt_algorithms is .* must be some of RS256, "):
        BrokerConfig(**ALL, jwt_algorithms=algorithms)  # type: ignore[arg-type]


def test_spaces_between_algorithms_do_not_matter() -> None:
    config = BrokerConfig(**ALL, jwt_algorithms="RS256, Ed25519")  # type: ignore[arg-type]

    assert config.jwt_rules.algorithms == {"RS256", "Ed25519"}
