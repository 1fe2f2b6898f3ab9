"""Tokens of an identity provider: what they prove, and the attacks that they must not survive."""

import hmac
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OKPKey

from tests.broker.security.jwt.providers import (
    AUDIENCE,
    EC,
    ISSUER,
    NOW_S,
    RSA,
    RULES,
    Provider,
    claims,
    encoded,
    published,
    signed,
)
from tidelog.broker.config.jwt_rules import ALGORITHMS, JwtRules, jwt_problems
from tidelog.broker.security.jwt.jwt_verifier import (
    CLOCK_SKEW_S,
    TOKEN_BYTES_MAX,
    JwtProblem,
    JwtRefusedError,
    verify_jwt,
)
from tidelog.broker.security.jwt.verification_keys import JwksError, VerificationKeys, parse_jwks
from tidelog.broker.security.mechanism import Authenticated
from tidelog.wire.security.principal import user_principal

PROVIDER = Provider()
KEYS = parse_jwks(PROVIDER.jwks())


def verified(
    token: bytes,
    rules: JwtRules = RULES,
    keys: VerificationKeys = KEYS,
    *,
    now_s: float = NOW_S,
) -> Authenticated:
    return verify_jwt(token, rules, keys, now_ms=int(now_s * 1000))


def problem_of(
    token: bytes,
    rules: JwtRules = RULES,
    keys: VerificationKeys = KEYS,
    *,
    now_s: float = NOW_S,
) -> JwtProblem:
    """Return why a token is refused."""
    with pytest.raises(JwtRefusedError) as refused:
        verified(token, rules, keys, now_s=now_s)
    return refused.value.problem


def keys_of(*listed: object) -> VerificationKeys:
    return parse_jwks(json.dumps({"keys": listed}).encode())


def with_rules(**changes: object) -> JwtRules:
    return replace(RULES, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kid", "alg"),
    [("rsa", "RS256"), ("rsa", "PS256"), ("ec", "ES256"), ("ed", "EdDSA"), ("ed", "Ed25519")],
)
def test_a_token_proves_its_user_until_its_end(kid: str, alg: str) -> None:
    found = verified(PROVIDER.token(kid, alg))

    assert found.principal == user_principal("alice")
    assert found.expires_at_ms == (NOW_S + 600 + CLOCK_SKEW_S) * 1000
    assert found.roles == ()


# Attacks.


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", "nOnE"):
        head = encoded({"alg": algorithm, "kid": "ec"})
        assert problem_of(f"{head}.{encoded(claims())}.".encode()) is JwtProblem.FORM
        assert problem_of(f"{head}.{encoded(claims())}.AA".encode()) is JwtProblem.ALGORITHM


def test_the_public_key_is_no_shared_secret() -> None:
    for secret in (RSA.as_pem(private=False), json.dumps(published("rsa", RSA)).encode()):
        for algorithm, digest in (("HS256", "sha256"), ("HS384", "sha384"), ("HS512", "sha512")):
            head = f"{encoded({'alg': algorithm, 'kid': 'rsa'})}.{encoded(claims())}"
            mac = encoded(hmac.digest(secret, head.encode(), digest))
            assert problem_of(f"{head}.{mac}".encode()) is JwtProblem.ALGORITHM


@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS384", "HS512", "hs256", "RSA-OAEP", ""])
def test_settings_take_no_algorithm_without_a_private_key(algorithm: str) -> None:
    problems = jwt_problems("i", "a", "k", algorithms=f"RS256,{algorithm}" if algorithm else "")

    assert len(problems) == 1
    assert "only signatures by a private key" in problems[0]
    assert jwt_problems("i", "a", "k", algorithms=",".join(ALGORITHMS)) == []


def test_a_key_of_one_kind_checks_no_algorithm_of_another() -> None:
    swapped = signed(claims(), {"alg": "RS256", "kid": "ec"}, RSA)
    assert problem_of(swapped) is JwtProblem.KEY
    renamed = PROVIDER.token("ec").split(b".")
    renamed[0] = encoded({"alg": "RS256", "kid": "rsa"}).encode()
    assert problem_of(b".".join(renamed)) is JwtProblem.SIGNATURE


def test_an_algorithm_that_the_settings_do_not_list_is_refused() -> None:
    rules = with_rules(algorithms=frozenset({"RS256"}))

    assert problem_of(PROVIDER.token("ec", "ES256"), rules) is JwtProblem.ALGORITHM
    assert problem_of(PROVIDER.token("rsa", "PS256"), rules) is JwtProblem.ALGORITHM
    assert verified(PROVIDER.token("rsa", "RS256"), rules)


def test_the_key_of_another_provider_is_refused() -> None:
    for kid in ("ec", "unknown"):
        forged = signed(claims(), {"alg": "ES256", "kid": kid}, ECKey.generate_key("P-256"))
        wanted = JwtProblem.SIGNATURE if kid == "ec" else JwtProblem.KEY
        assert problem_of(forged) is wanted


@pytest.mark.parametrize("field", ["jwk", "jku", "x5u", "x5c", "x5t"])
def test_a_key_or_an_address_in_the_header_is_not_used(field: str) -> None:
    own = ECKey.generate_key("P-256")
    value: object = own.as_dict(private=False) if field == "jwk" else "https://evil.example/"
    header = {"alg": "ES256", "kid": "ec", field: value}

    assert problem_of(signed(claims(), header, own)) is JwtProblem.SIGNATURE


@pytest.mark.parametrize(
    "kid",
    ["../../etc/passwd", "/dev/null", "ec\0", "ec' OR '1'='1", "EC", "k" * 300, "", 7, ["ec"], {}],
)
def test_a_key_id_is_a_name_and_nothing_else(kid: object) -> None:
    token = signed(claims(), {"alg": "ES256", "kid": kid}, EC)

    assert problem_of(token) is JwtProblem.KEY


def test_a_token_without_a_key_id_needs_a_single_key() -> None:
    token = signed(claims(), {"alg": "ES256"}, EC)
    other = published("other", ECKey.generate_key("P-256"))

    assert verified(token)
    assert problem_of(token, keys=keys_of(published("ec", EC), other)) is JwtProblem.KEY
    assert verified(token, keys=keys_of(published("ec", EC, kid=None)))


def test_two_keys_of_one_id_verify_nothing() -> None:
    twice = keys_of(published("ec", EC), published("ec", ECKey.generate_key("P-256")))

    assert problem_of(PROVIDER.token("ec"), keys=twice) is JwtProblem.KEY


@pytest.mark.parametrize("critical", [["exp"], ["b64"], ["http://example.com/x"], [], "b64", None])
def test_a_critical_extension_is_not_understood(critical: object) -> None:
    header = {"alg": "ES256", "kid": "ec", "crit": critical, "b64": True, "exp": 1}

    assert problem_of(signed(claims(), header, EC)) is JwtProblem.HEADER


@pytest.mark.parametrize("kind", ["JOSE", "secevent+jwt", "dpop+jwt", "id", 5, ["JWT"]])
def test_a_token_for_another_purpose_is_refused(kind: object) -> None:
    header = {"alg": "ES256", "kid": "ec", "typ": kind}

    assert problem_of(signed(claims(), header, EC)) is JwtProblem.HEADER


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_access_tokens_have_a_type_of_their_own(kind: str) -> None:
    assert verified(signed(claims(), {"alg": "ES256", "kid": "ec", "typ": kind}, EC))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"iss": "https://evil.example.com/"}, JwtProblem.ISSUER),
        ({"iss": ISSUER.rstrip("/")}, JwtProblem.ISSUER),
        ({"iss": ISSUER + "x"}, JwtProblem.ISSUER),
        ({"iss": [ISSUER]}, JwtProblem.ISSUER),
        ({"iss": None}, JwtProblem.ISSUER),
        ({"aud": "tidelog-2"}, JwtProblem.AUDIENCE),
        ({"aud": ["a", "b"]}, JwtProblem.AUDIENCE),
        ({"aud": {"tidelog": 1}}, JwtProblem.AUDIENCE),
        ({"aud": [[AUDIENCE]]}, JwtProblem.AUDIENCE),
        ({"aud": []}, JwtProblem.AUDIENCE),
        ({"aud": None}, JwtProblem.AUDIENCE),
        ({"exp": NOW_S - CLOCK_SKEW_S}, JwtProblem.EXPIRED),
        ({"exp": None}, JwtProblem.EXPIRED),
        ({"exp": str(NOW_S + 600)}, JwtProblem.EXPIRED),
        ({"exp": True}, JwtProblem.EXPIRED),
        ({"exp": -1}, JwtProblem.EXPIRED),
        ({"exp": 1e300}, JwtProblem.EXPIRED),
        ({"exp": 10**400}, JwtProblem.EXPIRED),
        ({"exp": [NOW_S + 600]}, JwtProblem.EXPIRED),
        ({"nbf": NOW_S + CLOCK_SKEW_S + 1}, JwtProblem.NOT_YET),
        ({"nbf": "now"}, JwtProblem.NOT_YET),
        ({"sub": None}, JwtProblem.USER),
        ({"sub": ""}, JwtProblem.USER),
        ({"sub": "a b"}, JwtProblem.USER),
        ({"sub": "node:1"}, JwtProblem.USER),
        ({"sub": "a" * 129}, JwtProblem.USER),
        ({"sub": ["alice"]}, JwtProblem.USER),
        ({"sub": 5}, JwtProblem.USER),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(
    changes: dict[str, object], problem: JwtProblem
) -> None:
    token = signed(
        {
            **claims(**dict.fromkeys(changes)),
            **{k: v for k, v in changes.items() if v is not None},
        },
        {"alg": "ES256", "kid": "ec"},
        EC,
    )

    assert problem_of(token) is problem


def test_clocks_may_differ_by_a_minute() -> None:
    token = PROVIDER.token(exp=NOW_S, nbf=NOW_S)

    assert verified(token, now_s=NOW_S + CLOCK_SKEW_S - 1)
    assert problem_of(token, now_s=NOW_S + CLOCK_SKEW_S) is JwtProblem.EXPIRED
    assert verified(token, now_s=NOW_S - CLOCK_SKEW_S)
    assert problem_of(token, now_s=NOW_S - CLOCK_SKEW_S - 1) is JwtProblem.NOT_YET


def test_times_may_have_fractions_and_a_token_need_not_say_from_when_it_holds() -> None:
    assert verified(PROVIDER.token(exp=NOW_S + 1.5, nbf=None)).expires_at_ms == (
        NOW_S * 1000 + 1500 + CLOCK_SKEW_S * 1000
    )


def test_the_audience_is_one_of_a_list() -> None:
    assert verified(PROVIDER.token(aud=["other", AUDIENCE, 5, None]))


@pytest.mark.parametrize(
    "token",
    [
        *(b"", b".", b"..", b"...", b"a.b", b"a.b.c.d", b"a.b.c.d.e", b"\xff.\xfe.\xfd"),
        *(b"e30.e30.e30", b"bnVsbA.e30.e30", b"W10.e30.e30", b"!.e30.e30", b" e30.e30.e30"),
        encoded(b"[" * 9_000).encode() + b".e30.e30",
        encoded(b'{"a":' * 2_000).encode() + b".e30.e30",
    ],
)
def test_other_bytes_are_refused(token: bytes) -> None:
    assert problem_of(token) in (JwtProblem.FORM, JwtProblem.ALGORITHM)


def test_a_huge_token_is_refused_before_it_is_read() -> None:
    token = PROVIDER.token(filler="x" * TOKEN_BYTES_MAX)

    assert problem_of(token) is JwtProblem.SIZE
    assert problem_of(b"." * (TOKEN_BYTES_MAX + 1)) is JwtProblem.SIZE


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"\xff", b"[" * 5_000, b'{"exp":NaN}'])
def test_signed_bytes_that_are_no_claims_are_refused(content: bytes) -> None:
    token = signed(content, {"alg": "ES256", "kid": "ec"}, EC)

    assert problem_of(token) is JwtProblem.FORM


@given(st.data())
def test_a_flipped_bit_anywhere_is_refused(data: st.DataObject) -> None:
    token = bytearray(PROVIDER.token("ec"))
    position = data.draw(st.integers(0, len(token) - 1))
    token[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = verified(bytes(token))
    except JwtRefusedError:
        return
    # The last character of a part has bits that no decoder looks at.
    assert found == verified(PROVIDER.token("ec"))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    problem_of(data)
    problem_of(b".".join((encoded(data).encode(), b"e30", b"AA")))
    problem_of(signed(data, {"alg": "ES256", "kid": "ec"}, EC))


# Claims of users and roles.


def test_the_user_has_the_claim_and_prefix_of_the_settings() -> None:
    rules = with_rules(user_claim="email", user_prefix="corp/")

    found = verified(PROVIDER.token(email="alice@example.com"), rules)

    assert str(found.principal) == "user:corp/alice@example.com"
    assert problem_of(PROVIDER.token(), rules) is JwtProblem.USER


def test_roles_are_a_list_or_a_text_at_a_place_of_the_settings() -> None:
    nested = PROVIDER.token(realm_access={"roles": ["writers", "admin"]})
    flat = PROVIDER.token(**{"https://example.com/roles": "readers writers"})

    assert verified(nested, with_rules(roles_claim="realm_access.roles")).roles == (
        *("writers", "admin"),
    )
    assert verified(flat, with_rules(roles_claim="https://example.com/roles")).roles == (
        *("readers", "writers"),
    )
    assert verified(nested).roles == ()


@pytest.mark.parametrize(
    ("value", "roles"),
    [
        (None, ()),
        (5, ()),
        ({"admin": True}, ()),
        (["ok", 5, None, "a b", "", ["admin"], "ok", "x" * 129], ("ok",)),
        ([f"r{number}" for number in range(500)], tuple(f"r{number}" for number in range(100))),
    ],
)
def test_what_is_no_role_is_skipped(value: object, roles: tuple[str, ...]) -> None:
    token = PROVIDER.token(roles=value)

    assert verified(token, with_rules(roles_claim="roles")).roles == roles


# Key sets.


def test_a_key_may_leave_out_its_use() -> None:
    bare = published("ec", EC, use=None)

    assert verified(PROVIDER.token("ec"), keys=keys_of(bare))
    assert verified(PROVIDER.token("ec"), keys=keys_of({**bare, "key_ops": ["verify"]}))


@pytest.mark.parametrize(
    "useless",
    [
        published("ec", EC, use="enc"),
        published("ec", EC, use=["sig"]),
        published("ec", EC, key_ops=["encrypt"]),
        published("ec", EC, key_ops="verify"),
        published("ec", EC, alg="ES384"),
        published("ec", EC, alg="HS256"),
        published("ec", EC, kid=5),
        published("ec", EC, crv="P-384"),
        published("ec", EC, crv="secp256k1"),
        published("ec", EC, crv=None),
        published("ec", EC, x=None),
        published("ec", EC, x="AA"),
        published("ec", EC, x="!" * 43),
        published("ec", EC, y=EC.as_dict()["x"]),
        {**EC.as_dict(private=True), "kid": "ec"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "ec"},
        {"kty": "RSA", "n": "AQ", "e": "AQAB", "kid": "ec"},
        {"kty": "RSA", "n": encoded((1 << 1023 | 1).to_bytes(128)), "e": "AQAB", "kid": "ec"},
        published("ec", OKPKey.generate_key("X25519")),
        {"kty": ["EC"]},
        {},
        *(None, 5, "EC", ["EC"], True),
    ],
)
def test_a_key_of_no_use_is_skipped(useless: object) -> None:
    keys = keys_of(useless, published("rsa", RSA))

    assert (keys.kids, keys.skipped_count) == (["rsa"], 1)
    assert problem_of(PROVIDER.token("ec"), keys=keys) is JwtProblem.KEY
    assert verified(PROVIDER.token("rsa", "RS256"), keys=keys)
    with pytest.raises(JwksError, match="none of 1 keys verifies signatures"):
        keys_of(useless)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"null", b"[]", b"{}", b'{"keys": 5}', b'{"keys": {}}', b'{"keys": []}', b"\xff"),
        *(b"<html>login</html>", b"[" * 100_000, b'{"keys": [' + b" " * (256 << 10) + b"]}"),
    ],
)
def test_a_document_that_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(JwksError):
        parse_jwks(data)
