"""SCRAM-SHA-256: the client against the vectors of RFC 7677 and against another implementation."""

from base64 import b64decode, b64encode

import pytest
from scramp import ScramException, ScramMechanism

from tidelog.wire.errors import AuthenticationFailedError, ConfigError
from tidelog.wire.security.scram import (
    SaltedBy,
    ScramLogin,
    password_keys,
    salted_password,
)

NONCE = b64decode("rOprNGfwEbeRWgbNEkqO")
"""RFC 7677, section 3."""
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def challenged() -> tuple[ScramLogin, bytes]:
    """Return an exchange after the challenge, and the salted password."""
    login = ScramLogin("user", NONCE)
    return login, salted_password("pencil", login.challenge(CHALLENGE))


def test_the_messages_are_those_of_rfc_7677() -> None:
    assert ScramLogin("user", NONCE).first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    login, salted = challenged()
    assert login.proof(salted) == PROOF
    login.check(SIGNATURE)


def test_the_keys_of_a_broker_are_those_of_rfc_7677() -> None:
    by = SaltedBy(b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    keys = password_keys(salted_password("pencil", by), by)
    _, stored_key, server_key, _ = ScramMechanism("SCRAM-SHA-256").make_auth_info(  # type: ignore[attr-defined]
        "pencil", 4096, by.salt
    )
    assert (keys.stored_key, keys.server_key) == (stored_key, server_key)
    assert b64encode(keys.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="


@pytest.mark.parametrize("password", ["pencil", "pass word", "I\u00adX", "\u2168", "\u00aa"])
@pytest.mark.parametrize("user", ["alice", "a=b", "user@example.com"])
def test_another_implementation_accepts_the_proof(user: str, password: str) -> None:
    """Passwords of RFC 4013, section 3 are among them."""
    by = SaltedBy(b"sixteen bytes ..", 4096)
    keys = password_keys(salted_password(password, by), by)
    asked: list[str] = []

    def keys_of(name: str) -> tuple[bytes, bytes, bytes, int]:
        asked.append(name)
        return keys.salt, keys.stored_key, keys.server_key, keys.iterations

    server = ScramMechanism("SCRAM-SHA-256").make_server(keys_of, s_nonce="another")
    login = ScramLogin(user, b"a nonce")
    server.set_client_first(login.first().decode())
    salted = salted_password(password, login.challenge(server.get_server_first().encode()))
    server.set_client_final(login.proof(salted).decode())
    login.check(server.get_server_final().encode())
    assert asked == [user]


def test_another_implementation_refuses_the_proof_of_another_password() -> None:
    by = SaltedBy(b"sixteen bytes ..", 4096)
    keys = password_keys(salted_password("right", by), by)
    server = ScramMechanism("SCRAM-SHA-256").make_server(
        lambda _: (keys.salt, keys.stored_key, keys.server_key, 4096), s_nonce="another"
    )
    login = ScramLogin("alice", b"a nonce")
    server.set_client_first(login.first().decode())
    by = login.challenge(server.get_server_first().encode())
    with pytest.raises(ScramException):
        server.set_client_final(login.proof(salted_password("wrong", by)).decode())


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff\xfe",
        b"e=other-error",
        CHALLENGE.replace(b"r=rOpr", b"r=another"),
        CHALLENGE.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        CHALLENGE.replace(b"s=W22Z", b"s=~~~~"),
        CHALLENGE.replace(b",s=W22ZaJ0SNY7soEsUEjb6gQ==", b""),
        *(CHALLENGE.replace(b"i=4096", b"i=" + each) for each in (b"1", b"4095", b"-1", b"", b"x")),
        CHALLENGE.replace(b"i=4096", b"i=10000001"),
    ],
)
def test_a_challenge_that_would_weaken_or_stall_the_client_is_refused(challenge: bytes) -> None:
    with pytest.raises(AuthenticationFailedError, match="check the address of the broker"):
        ScramLogin("user", NONCE).challenge(challenge)


def test_every_cut_and_every_flipped_bit_of_a_challenge_is_refused_or_gives_another_proof() -> None:
    for at in range(len(CHALLENGE)):
        for changed in (
            CHALLENGE[:at],
            CHALLENGE[:at] + bytes([CHALLENGE[at] ^ 1]) + CHALLENGE[at + 1 :],
        ):
            login = ScramLogin("user", NONCE)
            try:
                login.challenge(changed)
            except AuthenticationFailedError:
                continue
            assert login.proof(bytes(32)) != challenged()[0].proof(bytes(32))


@pytest.mark.parametrize("signature", [b"", b"v=", b"v=AAAA", b"e=invalid-proof", PROOF, b"\xff"])
def test_a_broker_that_does_not_know_the_password_is_refused(signature: bytes) -> None:
    login, salted = challenged()
    login.proof(salted)
    with pytest.raises(AuthenticationFailedError, match="has not proved to know user user"):
        login.check(signature)


def test_no_signature_counts_before_the_proof() -> None:
    login, _ = challenged()
    with pytest.raises(AuthenticationFailedError):
        login.check(b"v=")


@pytest.mark.parametrize(
    ("password", "why"), [("", "is empty"), ("\u00ad", "is empty"), ("a\x07b", "no password may")]
)
def test_a_password_that_cannot_be_one_is_refused_without_its_text(password: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        salted_password(password, SaltedBy(b"sixteen bytes ..", 4096))
    assert not password or password not in str(raised.value)
