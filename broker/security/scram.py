"""SCRAM-SHA-256, the broker's end: users by password (RFC 5802, RFC 7677).

Pure, except for entropy. The broker knows keys that check a proof and that make none. An unknown
user gets a made-up salt, the same on all nodes of a cluster and after each restart, and the same
work: answers and times do not tell which users exist.
"""

import hmac
from base64 import b64encode
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Final, final

from tidelog.broker.security.mechanism import Authenticated, Step, fail
from tidelog.coordinator.security.records import ScramCredential
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.security.principal import user_principal
from tidelog.wire.security.scram import ITERATIONS, NONCE_BYTES, SALT_BYTES, SCRAM_SHA_256

_MESSAGE_BYTES_MAX: Final = 1024
"""Longer messages are none of SCRAM: a name has up to 128 characters, a proof 44."""


def load_scram() -> ModuleType:
    """Return the library of the exchange, which takes some 50 ms to load at first."""
    # Not at the top: most brokers of tests have no passwords.
    import scramp  # noqa: PLC0415

    return scramp


@final
class ScramUsers:
    """The passwords of a cluster's users, with made-up ones for all other names."""

    def __init__(
        self, security: Callable[[], SecurityState], random: Random, *, secret: bytes
    ) -> None:
        """Read the users of `security`; `secret` is that of the cluster.

        `security` raises `RetriableError` while the metadata are not known.
        """
        self._security = security
        self._random = random
        self._key = hmac.digest(secret, b"tidelog/unknown-user", "sha256")

    def start(self) -> "ScramExchange":
        """Return an exchange with a fresh nonce."""
        nonce = b64encode(self._random.randbytes(NONCE_BYTES)).decode()
        return ScramExchange(self, nonce)

    def credential(self, name: str) -> tuple[ScramCredential, bool]:
        """Return the keys of a user, and whether there is such a user with a password.

        Raises:
            RetriableError: The metadata are not known yet.
        """
        # Made up for known users as well, so that the times of both are the same.
        made_up = ScramCredential(
            self._digest(b"salt", name)[:SALT_BYTES],
            ITERATIONS,
            self._digest(b"stored", name),
            self._digest(b"server", name),
        )
        user = self._security().users.get(name)
        known = None if user is None else user.credential
        return (made_up, False) if known is None else (known, True)

    def has(self, name: str, stored_key: bytes) -> bool:
        """Return whether a user still has the password of `stored_key`."""
        credential, is_known = self.credential(name)
        return is_known and credential.stored_key == stored_key

    def _digest(self, purpose: bytes, name: str) -> bytes:
        return hmac.digest(self._key, purpose + b" " + name.encode(), "sha256")


@final
class ScramExchange:
    """One proof of a password; see `broker.security.mechanism.Exchange`."""

    def __init__(self, users: ScramUsers, nonce: str) -> None:
        """Check against `users`; `nonce` is fresh and random, so that no proof can be replayed."""
        self._users = users
        scramp = load_scram()
        self._refusal = scramp.ScramException
        mechanism = scramp.ScramMechanism(SCRAM_SHA_256)
        self._server = mechanism.make_server(self._keys_of, s_nonce=nonce)
        self._stored_key = b""
        self._is_known = False
        self._is_challenged = False
        self._name = ""

    @property
    def claimed(self) -> str:
        """See `broker.security.mechanism.Exchange`."""
        return self._name

    async def step(self, data: bytes) -> Step:
        """See `broker.security.mechanism.Exchange`."""
        if len(data) > _MESSAGE_BYTES_MAX:
            fail()
        # Made up or not: what keeps the users from being read must not look like a wrong proof.
        self._users.credential("")
        try:
            return self._step(data.decode())
        except (self._refusal, UnicodeDecodeError) as error:
            fail(error)

    def _step(self, message: str) -> Step:
        if not self._is_challenged:
            self._server.set_client_first(message)
            self._is_challenged = True
            return Step(self._server.get_server_first().encode(), None)
        self._server.set_client_final(message)
        if not self._is_known or not self._users.has(self._name, self._stored_key):
            fail()
        name, stored_key = self._name, self._stored_key
        return Step(
            self._server.get_server_final().encode(),
            Authenticated(
                user_principal(name), is_current=lambda: self._users.has(name, stored_key)
            ),
        )

    def _keys_of(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name[:_MESSAGE_BYTES_MAX]
        found, self._is_known = self._users.credential(name)
        self._stored_key = found.stored_key
        return found.salt, found.stored_key, found.server_key, found.iterations
