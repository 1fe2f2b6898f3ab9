"""Identity providers of tests: keys, key sets, and tokens, right ones and forged ones."""

import json
import warnings
from base64 import urlsafe_b64encode
from typing import Any, Final, final

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from tidelog.broker.config.jwt_rules import JwtRules

ISSUER: Final = "https://login.example.com/"
AUDIENCE: Final = "tidelog"
NOW_S: Final = 1_800_000_000
RULES: Final = JwtRules(
    ISSUER,
    AUDIENCE,
    frozenset({"RS256", "PS256", "ES256", "EdDSA", "Ed25519"}),
    user_claim="sub",
)
Key = RSAKey | ECKey | OKPKey
RSA: Final = RSAKey.generate_key(2048)
EC: Final = ECKey.generate_key("P-256")
ED: Final = OKPKey.generate_key("Ed25519")


def encoded(part: object) -> str:
    """Return a part of a token; bytes as they are, all else as JSON."""
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return urlsafe_b64encode(data).decode().rstrip("=")


def claims(**changes: object) -> dict[str, Any]:
    """Return the claims of a right token; a change to `None` removes one."""
    all_claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": NOW_S + 600,
        "nbf": NOW_S - 5,
        "iat": NOW_S - 5,
        **changes,
    }
    return {name: value for name, value in all_claims.items() if value is not None}


def signed(content: object, header: dict[str, Any], key: Key) -> bytes:
    """Return a token with any header, signed as its `alg` says."""
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    algorithm = jws.JWSRegistry.algorithms[header["alg"]]
    head = f"{encoded(header)}.{encoded(payload)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        signature = algorithm.sign(head.encode(), key)
    return f"{head}.{encoded(signature)}".encode()


@final
class Provider:
    """An identity provider with one key of each kind."""

    def __init__(self) -> None:
        """Publish the keys `rsa`, `ec` and `ed`."""
        self.keys: dict[str, Key] = {"rsa": RSA, "ec": EC, "ed": ED}

    def token(self, kid: str = "ec", alg: str = "ES256", **changes: object) -> bytes:
        """Return a token that the provider issues."""
        header = {"alg": alg, "kid": kid, "typ": "JWT"}
        return signed(claims(**changes), header, self.keys[kid])

    def jwks(self) -> bytes:
        """Return the key set that the provider publishes."""
        return json.dumps({"keys": [published(*each) for each in self.keys.items()]}).encode()


def published(named: str, key: Key, **changes: object) -> dict[str, Any]:
    """Return a key of a key set; a change to `None` removes a field."""
    fields = {**key.as_dict(private=False), "kid": named, "use": "sig", **changes}
    return {name: value for name, value in fields.items() if value is not None}
