"""Exchange of one login: the messages of a mechanism, for programs with and without an event loop.

Pure: no clock, no I/O, no entropy.
"""

from collections.abc import Generator
from typing import Final, NamedTuple

from tidelog.wire.errors import AuthenticationFailedError
from tidelog.wire.messages.handshake import AuthenticateReply, AuthenticateRequest
from tidelog.wire.security.token import PREFIX, TOKEN

JWT: Final = "JWT"


class SaltPassword(NamedTuple):
    """Work of up to a second: `wire.security.scram.salted_password`."""

    salt: bytes
    iterations: int


LoginStep = AuthenticateRequest | SaltPassword
LoginSteps = Generator[LoginStep, AuthenticateReply | bytes, AuthenticateReply]
"""Yields requests, which take a reply, and salting, which takes a salted password."""


def login_by_token(token: str) -> LoginSteps:
    """Return the steps of a login by a token of tidelog, or by a JWT.

    The result is the broker's last reply.

    Raises:
        AuthenticationFailedError: The text can be no token.
    """
    if not token.isascii():
        raise AuthenticationFailedError(
            "the token has characters other than ASCII, which no token has; copy it again"
        )
    mechanism = TOKEN if token.startswith(PREFIX) else JWT
    reply = yield AuthenticateRequest(mechanism, token.encode())
    assert isinstance(reply, AuthenticateReply), "a request takes a reply"
    return reply


def login_by_password(user: str, nonce: bytes) -> LoginSteps:
    """Return the steps of a login by SCRAM-SHA-256, with a fresh random `nonce`.

    The result is the broker's last reply, which proves that the broker knows the user's keys.

    Raises:
        AuthenticationFailedError: The broker has not proved it.
    """
    # Not at the top: clients without passwords need no SCRAM.
    from tidelog.wire.security.scram import SCRAM_SHA_256, ScramLogin  # noqa: PLC0415

    login = ScramLogin(user, nonce)
    challenge = yield AuthenticateRequest(SCRAM_SHA_256, login.first())
    assert isinstance(challenge, AuthenticateReply), "a request takes a reply"
    salted = yield SaltPassword(*login.challenge(challenge.data))
    assert isinstance(salted, bytes), "salting takes a salted password"
    reply = yield AuthenticateRequest(SCRAM_SHA_256, login.proof(salted))
    assert isinstance(reply, AuthenticateReply), "a request takes a reply"
    login.check(reply.data)
    return reply
