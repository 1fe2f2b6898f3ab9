"""SCRAM-SHA-256, the client's end (RFC 5802, RFC 7677): a password is proved and never sent.

Pure: no clock, no I/O, no entropy. The salted password takes most of a second to compute and is all
that a proof needs besides the exchange, so the caller computes it in a thread and keeps it.

    client                                          broker
        n,,n=USER,r=NONCE                      ───▶
                                               ◀─── r=NONCE+MORE,s=SALT,i=ITERATIONS
        c=biws,r=NONCE+MORE,p=PROOF            ───▶
                                               ◀─── v=SIGNATURE, which proves the broker as well
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final, NamedTuple, final

from tidelog.wire.errors import AuthenticationFailedError, ConfigError

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 600_000
"""Iterations of new passwords (OWASP, PBKDF2-HMAC-SHA256)."""
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 24
_ITERATIONS_MIN: Final = 4_096
_ITERATIONS_MAX: Final = 10_000_000
"""A broker that asks for more, or for fewer, is no broker with the password."""
_DIGEST: Final = "sha256"
_NO_BINDING: Final = "biws"
"""Base64 of `n,,`: no channel binding."""


class PasswordKeys(NamedTuple):
    """What a broker keeps of a password: enough to check a proof, not to make one."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class SaltedBy(NamedTuple):
    """How a password is salted; names the salted password in a cache."""

    salt: bytes
    iterations: int


def salted_password(password: str, by: SaltedBy) -> bytes:
    """Return the salted password, after about 0.3 s of work outside of the interpreter's lock.

    Raises:
        ConfigError: The password is empty, or has characters that RFC 4013 prohibits.
    """
    return hashlib.pbkdf2_hmac(_DIGEST, _prepared(password), by.salt, by.iterations)


def password_keys(salted: bytes, by: SaltedBy) -> PasswordKeys:
    """Return the keys that a broker keeps of a salted password."""
    stored_key = hashlib.sha256(_mac(salted, b"Client Key")).digest()
    return PasswordKeys(by.salt, by.iterations, stored_key, _mac(salted, b"Server Key"))


@final
class ScramLogin:
    """The client's end of one exchange."""

    def __init__(self, user: str, nonce: bytes) -> None:
        """Prove to be `user`, with a fresh random `nonce`."""
        self._user = user
        self._nonce = b64encode(nonce).decode()
        self._first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._challenge = ""
        self._both_nonces = ""
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return b"n,," + self._first.encode()

    def challenge(self, message: bytes) -> SaltedBy:
        """Return how to salt the password for the answer to the broker's first message.

        Raises:
            AuthenticationFailedError: The message is none of SCRAM, or of another exchange.
        """
        fields = _fields(message)
        nonce, digits = fields.get("r", ""), fields.get("i", "")
        salt = _decoded(fields.get("s", ""))
        iterations = int(digits) if digits.isascii() and digits.isdecimal() else 0
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt:
            raise AuthenticationFailedError(
                f"the broker's SCRAM message for user {self._user} belongs to another exchange;"
                " check the address of the broker"
            )
        if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise AuthenticationFailedError(
                f"the broker asks for {digits[:20] or 'no'} iterations of SCRAM, which must be"
                f" {_ITERATIONS_MIN:,} to {_ITERATIONS_MAX:,}; check the address of the broker"
            )
        self._challenge, self._both_nonces = message.decode(), nonce
        return SaltedBy(salt, iterations)

    def proof(self, salted: bytes) -> bytes:
        """Return the second message, from the salted password."""
        unproven = f"c={_NO_BINDING},r={self._both_nonces}"
        exchange = f"{self._first},{self._challenge},{unproven}".encode()
        client_key = _mac(salted, b"Client Key")
        client_signature = _mac(hashlib.sha256(client_key).digest(), exchange)
        self._signature = _mac(_mac(salted, b"Server Key"), exchange)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        return f"{unproven},p={b64encode(proof).decode()}".encode()

    def check(self, message: bytes) -> None:
        """Check the broker's last message: it proves that the broker has the user's keys.

        Raises:
            AuthenticationFailedError: The broker has no keys of the user.
        """
        signature = _decoded(_fields(message).get("v", ""))
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise AuthenticationFailedError(
                f"the broker has not proved to know user {self._user}; another server may answer"
                " at its address: check the address"
            )


def _prepared(password: str) -> bytes:
    # Not at the top: it takes 30 ms to load, and few programs have passwords.
    from scramp import ScramException  # noqa: PLC0415
    from scramp.utils import saslprep  # noqa: PLC0415

    try:
        prepared = saslprep(password)
    except ScramException as error:
        raise ConfigError(
            "the password has characters that no password may have (RFC 4013), such as control"
            " characters; choose another password"
        ) from error
    if not prepared:
        raise ConfigError("the password is empty; give one with at least one character")
    return prepared.encode()


def _fields(message: bytes) -> dict[str, str]:
    """Return the attributes of a message; none of a message that is no SCRAM."""
    try:
        parts = [each.partition("=") for each in message.decode().split(",")]
    except UnicodeDecodeError:
        return {}
    return {name: value for name, _, value in parts}


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _DIGEST)
