"""Verification of JSON Web Tokens (RFC 7519, RFC 8725): the user of a token, and its end.

Pure: no clock, no I/O. The settings list the algorithms, never the token. The kind of a key limits
them further, so that a public key is never taken for a shared secret. Nothing in the header of a
token is followed: no address, no certificate, no key.
"""

import warnings
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from enum import StrEnum
from typing import Any, Final, NoReturn, cast

import msgspec
from joserfc import jws
from joserfc.util import urlsafe_b64decode

from tidelog.broker.config.jwt_rules import JwtRules
from tidelog.broker.security.jwt.verification_keys import PublicKey, VerificationKeys
from tidelog.broker.security.mechanism import Authenticated
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.security.principal import check_name, user_principal

TOKEN_BYTES_MAX: Final = 16 << 10
CLOCK_SKEW_S: Final = 60
"""Difference of the clocks of provider and broker that is allowed."""
ROLES_MAX: Final = 100
_PARTS: Final = 3
"""Header, claims and signature; an encrypted token has more."""
_TYPES: Final = (None, "jwt", "at+jwt", "application/at+jwt")
_KID_CHARS_MAX: Final = 256
_SECONDS_MAX: Final = 1 << 40


class JwtProblem(StrEnum):
    """Why a token is refused, for the log of the broker."""

    SIZE = "it is longer than 16 KiB"
    FORM = "it is no signed JWT"
    ALGORITHM = "its algorithm is not in jwt_algorithms"
    HEADER = "its header has a critical extension, or another type than JWT"
    KEY = "no key of jwt_keys has its kid and algorithm"
    SIGNATURE = "its signature is wrong"
    ISSUER = "its iss is not jwt_issuer"
    AUDIENCE = "its aud does not have jwt_audience"
    EXPIRED = "its exp has passed, or is missing"
    NOT_YET = "its nbf has not come yet"
    USER = "jwt_user_claim has no legal name of a user"


class JwtRefusedError(Exception):
    """A token is refused."""

    def __init__(self, problem: JwtProblem) -> None:
        """Refuse a token because of `problem`."""
        super().__init__(str(problem))
        self.problem = problem


def verify_jwt(
    token: bytes, rules: JwtRules, keys: VerificationKeys, *, now_ms: int
) -> Authenticated:
    """Return the identity that a token proves.

    The identity ends at `exp` and the allowed difference of clocks, as the token does.

    Raises:
        JwtRefusedError: The token proves nothing here. With `KEY`, later keys may know it.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise JwtRefusedError(JwtProblem.SIZE)
    header = _header(token)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        raise JwtRefusedError(JwtProblem.ALGORITHM)
    kind = header.get("typ")
    if "crit" in header or not (kind is None or isinstance(kind, str)):
        raise JwtRefusedError(JwtProblem.HEADER)
    if (kind and kind.lower()) not in _TYPES:
        raise JwtRefusedError(JwtProblem.HEADER)
    kid = header.get("kid")
    if not (kid is None or (isinstance(kid, str) and len(kid) <= _KID_CHARS_MAX)):
        raise JwtRefusedError(JwtProblem.KEY)
    key = keys.find(kid, algorithm)
    if key is None:
        raise JwtRefusedError(JwtProblem.KEY)
    claims = _verified_claims(token, key, algorithm)
    return _identity(claims, rules, now_ms)


def _header(token: bytes) -> Mapping[str, object]:
    parts = token.split(b".")
    if len(parts) != _PARTS or not all(parts):
        raise JwtRefusedError(JwtProblem.FORM)
    try:
        return _object(urlsafe_b64decode(parts[0]))
    except ValueError as error:
        raise JwtRefusedError(JwtProblem.FORM) from error


def _verified_claims(token: bytes, key: PublicKey, algorithm: str) -> Mapping[str, object]:
    try:
        with warnings.catch_warnings() if algorithm == "EdDSA" else nullcontext():
            # EdDSA has another name by now (RFC 9864), which many providers do not use yet.
            if algorithm == "EdDSA":
                warnings.simplefilter("ignore")
            found = jws.deserialize_compact(token, key, algorithms=[algorithm])
    except Exception as error:
        # A library raises many errors for what strangers write. Each of them means: not verified.
        raise JwtRefusedError(JwtProblem.SIGNATURE) from error
    return _object(found.payload)


def _object(data: bytes) -> Mapping[str, object]:
    with suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        found: object = msgspec.json.decode(data)
        if isinstance(found, dict):
            return cast("dict[str, object]", found)
    raise JwtRefusedError(JwtProblem.FORM)


def _identity(claims: Mapping[str, object], rules: JwtRules, now_ms: int) -> Authenticated:
    if claims.get("iss") != rules.issuer:
        raise JwtRefusedError(JwtProblem.ISSUER)
    audience = claims.get("aud")
    audiences = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    if rules.audience not in audiences:
        raise JwtRefusedError(JwtProblem.AUDIENCE)
    expires_at_ms = _end_ms(claims.get("exp"))
    if expires_at_ms <= now_ms:
        raise JwtRefusedError(JwtProblem.EXPIRED)
    begin_s = _seconds(claims["nbf"]) if "nbf" in claims else 0.0
    if begin_s is None or (begin_s - CLOCK_SKEW_S) * 1000 > now_ms:
        raise JwtRefusedError(JwtProblem.NOT_YET)
    name = _claim(claims, rules.user_claim)
    if not isinstance(name, str):
        _refuse_user()
    try:
        principal = user_principal(rules.user_prefix + name)
    except InvalidRequestError as error:
        raise JwtRefusedError(JwtProblem.USER) from error
    return Authenticated(principal, expires_at_ms, _roles(claims, rules.roles_claim))


def _end_ms(value: object) -> int:
    """Return when a token ends, in Unix milliseconds.

    Raises:
        JwtRefusedError: It has no end.
    """
    seconds = _seconds(value)
    if seconds is None:
        raise JwtRefusedError(JwtProblem.EXPIRED)
    return int((seconds + CLOCK_SKEW_S) * 1000)


def _seconds(value: object) -> float | None:
    """Return a time in a claim in Unix seconds, `None` if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _SECONDS_MAX else None


def _refuse_user() -> NoReturn:
    raise JwtRefusedError(JwtProblem.USER)


def _roles(claims: Mapping[str, object], path: str) -> tuple[str, ...]:
    """Return the legal names of roles in a claim: a list, or a text with spaces."""
    found = _claim(claims, path) if path else None
    names = found.split() if isinstance(found, str) else found
    if not isinstance(names, list):
        return ()
    legal: dict[str, None] = {}
    for name in cast("list[object]", names)[:ROLES_MAX]:
        with suppress(InvalidRequestError):
            if isinstance(name, str):
                check_name(name, of="role")
                legal[name] = None
    return tuple(legal)


def _claim(claims: Mapping[str, Any], path: str) -> object:
    """Return a claim by its name, or by names with dots between them that lead into objects."""
    if path in claims:
        return claims[path]
    found: object = claims
    for name in path.split("."):
        if not isinstance(found, dict):
            return None
        found = cast("dict[str, object]", found).get(name)
    return found
