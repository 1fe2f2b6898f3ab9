"""Identities of connections: a proven principal, and how long the proof holds (Kafka: session).

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, final

from tidelog.wire.security.principal import ANONYMOUS, Principal

CERTIFICATE: Final = "CERTIFICATE"
"""Mechanism of users whose certificate the handshake of TLS has checked."""
IMPERSONATED: Final = "ACCESS-KEY"
"""Mechanism of users for which a gateway acts."""


def _always() -> bool:
    return True


@final
@dataclass(frozen=True, slots=True)
class Impersonation:
    """A gateway acts for a user that has an access key."""

    actor: "ClientIdentity"
    """The identity that the gateway has proved."""
    expires_at_ms: int
    """Unix milliseconds after which it acts for the user no more, without a renewal."""
    is_allowed: Callable[["ClientIdentity"], bool] = field(repr=False, compare=False)
    """Returns whether the access key is enabled, and a gateway with this identity may impersonate.
    """


@final
@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The identity of the client at the other end of a connection."""

    principal: Principal
    roles: tuple[str, ...] = ()
    """Roles that the credentials give, beside those in the metadata."""
    expires_at_ms: int | None = None
    """Unix milliseconds after which no request is served; `None` for no end."""
    how: str = ""
    """Name of the mechanism, such as `TOKEN`; empty for an anonymous client."""
    is_current: Callable[[], bool] = field(default=_always, repr=False, compare=False)
    """Returns whether the metadata still have the credentials: not after a revocation."""
    impersonation: Impersonation | None = None
    """How a gateway acts for the principal; `None` for the principal itself."""

    @property
    def proved(self) -> "ClientIdentity":
        """The identity that the client has proved: that of a gateway, or this one."""
        return self if self.impersonation is None else self.impersonation.actor

    @property
    def is_anonymous(self) -> bool:
        """Whether the client has not authenticated."""
        return self.principal is ANONYMOUS


def impersonated(principal: Principal, impersonation: Impersonation) -> ClientIdentity:
    """Return the identity of a gateway that acts for a principal; it ends with both."""
    actor = impersonation.actor
    ends = [impersonation.expires_at_ms]
    if actor.expires_at_ms is not None:
        ends.append(actor.expires_at_ms)
    return ClientIdentity(
        principal,
        expires_at_ms=min(ends),
        how=IMPERSONATED,
        is_current=lambda: actor.is_current() and impersonation.is_allowed(actor),
        impersonation=impersonation,
    )


ANONYMOUS_IDENTITY: Final = ClientIdentity(ANONYMOUS)
