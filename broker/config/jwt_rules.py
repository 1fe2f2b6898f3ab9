"""Rules about the JSON Web Tokens that a broker accepts, from its settings.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
"""Algorithms that a token may have: signatures alone. `none` proves nothing, and an algorithm with
a shared secret (`HS256`) would take the public key for that secret."""
DEFAULT_ALGORITHMS: Final = "RS256,ES256"


@final
@dataclass(frozen=True, slots=True)
class JwtRules:
    """What a token must have, and how it names its user."""

    issuer: str
    """The claim `iss`, exactly."""
    audience: str
    """Among the claim `aud`."""
    algorithms: frozenset[str]
    user_claim: str
    """Claim with the name of the user; dots lead into objects if no claim has the whole name."""
    roles_claim: str = ""
    """Claim with names of roles; empty for none."""
    user_prefix: str = ""
    """Put before the name of the user."""


def parse_algorithms(text: str) -> frozenset[str]:
    """Return the algorithms in a list with commas."""
    return frozenset(each.strip() for each in text.split(",") if each.strip())


def jwt_problems(issuer: str, audience: str, keys: str, *, algorithms: str) -> Sequence[str]:
    """Return the problems of the settings `jwt_*`, none if all are well or none are set."""
    problems: list[str] = []
    needed = {"jwt_issuer": issuer, "jwt_audience": audience, "jwt_keys": keys}
    missing = [name for name, value in needed.items() if not value]
    if missing and len(missing) < len(needed):
        given = next(name for name, value in needed.items() if value)
        problems.append(f"{given} needs {' and '.join(missing)} as well")
    found = parse_algorithms(algorithms)
    wrong = sorted(found - {*ALGORITHMS})
    if wrong or not found:
        problems.append(
            f"jwt_algorithms is {algorithms!r}, it must be some of {', '.join(ALGORITHMS)}: only"
            " signatures by a private key prove an identity"
        )
    return problems
