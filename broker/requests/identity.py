"""Identities of connections: a proven principal, and how long the proof holds (Kafka: session).

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, final

from tidelog.wire.security.principal import ANONYMOUS, Principal

CERTIFICATE: Final = "CERTIFICATE"
"""Mechanism of users whose certificate the handshake of TLS has checked."""


def _always() -> bool:
    return True


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

    @property
    def is_anonymous(self) -> bool:
        """Whether the client has not authenticated."""
        return self.principal is ANONYMOUS


ANONYMOUS_IDENTITY: Final = ClientIdentity(ANONYMOUS)
