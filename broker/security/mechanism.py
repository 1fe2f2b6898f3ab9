"""Interface of the mechanisms by which clients prove their identity (SASL: mechanism).

Pure: declarations.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn, Protocol

from tidelog.wire.errors import AuthenticationFailedError
from tidelog.wire.security.principal import Principal


class Authenticated(NamedTuple):
    """A proven identity."""

    principal: Principal
    expires_at_ms: int | None = None
    """Unix milliseconds; `None` for no end."""
    roles: tuple[str, ...] = ()
    """Roles that the credentials give, beside those in the metadata."""
    is_current: Callable[[], bool] | None = None
    """Returns whether the metadata still have the credentials; `None` if they never had."""


class Step(NamedTuple):
    """The broker's answer to one message of a client."""

    data: bytes
    result: Authenticated | None
    """`None` while the exchange goes on."""


class Exchange(Protocol):
    """One proof on one connection."""

    @property
    def claimed(self) -> str:
        """Name that the client claims, not proved, for the audit; empty before it is known."""
        ...

    async def step(self, data: bytes) -> Step:
        """Answer the next message of the client.

        Raises:
            AuthenticationFailedError: The proof is wrong.
            RetriableError: It cannot be checked now.
        """
        ...


Mechanisms = dict[str, Callable[[], Exchange]]
"""Starts an exchange, by the name of the mechanism on the wire."""

_FAILED: Final = "authentication failed; check user and password, or the token"


def fail(cause: BaseException | None = None) -> NoReturn:
    """Refuse a proof, with the same text for every reason: it helps no guesses.

    Raises:
        AuthenticationFailedError: Always.
    """
    raise AuthenticationFailedError(_FAILED) from cause
