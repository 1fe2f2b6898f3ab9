"""A broker process and clients whose tokens come from an identity provider."""

from pathlib import Path

import pytest
import trio

import tidelog
from tests.broker.security.jwt.providers import AUDIENCE, ISSUER, Provider
from tests.system.integration.processes import serving
from tidelog.broker.security.jwt.jwt_verifier import CLOCK_SKEW_S
from tidelog.wire.env.real.real_env import RealClock
from tidelog.wire.errors import NotAuthorizedError

SETTINGS = f"""\
authentication = "required"
authorization = "enforce"
jwt_issuer = "{ISSUER}"
jwt_audience = "{AUDIENCE}"
jwt_keys = "keys.json"
jwt_user_prefix = "corp/"
jwt_roles_claim = "roles"
"""


def token(provider: Provider, lasts_s: float, **claims: object) -> str:
    now_s = RealClock().now_ms() / 1000
    return provider.token("ec", "ES256", exp=now_s + lasts_s, nbf=now_s, **claims).decode()


async def topics_seen(address: str, token: str) -> list[str]:
    async with tidelog.connect(address, token=token) as client:
        return await client.admin.list_topics()


async def test_roles_of_tokens_decide_and_fresh_tokens_keep_a_connection(tmp_path: Path) -> None:
    provider = Provider()
    (tmp_path / "keys.json").write_bytes(provider.jwks())
    settings = tmp_path / "tidelog.toml"
    text = SETTINGS.replace("keys.json", str(tmp_path / "keys.json"))
    settings.write_text(text, encoding="utf-8")
    drawn: list[str] = []

    def fresh() -> str:
        # With the allowed difference of clocks, it ends in two seconds.
        drawn.append(token(provider, 2 - CLOCK_SKEW_S, roles=["admin"]))
        return drawn[-1]

    async with serving(tmp_path / "data", "--config", str(settings)) as broker:
        async with tidelog.connect(broker.address, token=fresh) as client:
            await client.admin.create_topic("orders")
            ends_at = trio.current_time() + 5
            while trio.current_time() < ends_at:
                assert await client.admin.list_topics() == ["orders"]
            assert len(drawn) >= 3
        stranger = token(provider, 60, sub="bob")
        async with tidelog.connect(broker.address, token=stranger) as client:
            assert await client.admin.list_topics() == []
            with pytest.raises(NotAuthorizedError, match="user:corp/bob"):
                await client.admin.create_topic("mine")
        wrong = token(provider, 60, aud="another", roles=["admin"])
        with pytest.raises(tidelog.AuthenticationFailedError):
            await topics_seen(broker.address, wrong)

    assert "jwt_keys_fetched" in broker.names()
    assert not [each for each in broker.events if stranger in str(each) or drawn[0] in str(each)]
