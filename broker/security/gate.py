"""Gate before the handlers: requests need a known principal whose proof holds, and access.

Pure, except for the clock: it decides at once and keeps nothing.
"""

from typing import Final, Protocol, final

from tidelog.broker.requests.identity import CERTIFICATE
from tidelog.broker.requests.response import RequestContext
from tidelog.wire.env.env import Clock
from tidelog.wire.errors import (
    AuthenticationExpiredError,
    AuthenticationFailedError,
    AuthenticationRequiredError,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.security.principal import ANONYMOUS

_OPEN: Final = frozenset(int(each.key) for each in (api.HELLO, api.AUTHENTICATE, api.PROVE_NODE))
"""APIs of every peer: a client cannot have a principal before it has asked them."""


class AccessCheck(Protocol):
    """Decides what a principal may do."""

    def check(self, request: Request, context: RequestContext) -> None:
        """Return if the principal of a connection may send a request.

        Raises:
            BrokerError: It may not.
        """
        ...


@final
class RequestGate:
    """Checks every request of a client; see `broker.dispatch.Gate`."""

    def __init__(self, clock: Clock, *, is_authentication_required: bool) -> None:
        """Check expiry by `clock`; refuse anonymous clients if authentication is required."""
        self._clock = clock
        self._is_required = is_authentication_required
        self.access: AccessCheck | None = None
        """Asked after the principal is known to be valid; `None` allows everything."""

    def check(self, request: Request, context: RequestContext) -> None:
        """Return if the request may be carried out.

        Raises:
            AuthenticationRequiredError: The client has not authenticated, and must.
            AuthenticationExpiredError: The proof of its identity does not hold any more.
            AuthenticationFailedError: Its certificate is of a user that does not exist.
            BrokerError: The principal has no access.
        """
        if request.api_key in _OPEN:
            return
        identity = context.identity
        if identity.principal is ANONYMOUS:
            if self._is_required:
                raise AuthenticationRequiredError(
                    "this broker serves authenticated clients only (authentication = required);"
                    " set user and password, a token, or a client certificate"
                )
        else:
            expires_at_ms = identity.expires_at_ms
            if expires_at_ms is not None and expires_at_ms <= self._clock.now_ms():
                raise AuthenticationExpiredError(
                    f"the credentials of {identity.principal} are no longer valid; authenticate"
                    " again with fresh ones"
                )
            # Other mechanisms have checked it, and their sessions end with the credentials.
            if identity.how == CERTIFICATE and not identity.is_current():
                name = identity.principal.name
                raise AuthenticationFailedError(
                    f"the certificate of this client is of {identity.principal}, which does not"
                    f" exist; an administrator runs: tidelog user create {name} --no-password"
                )
        if self.access is not None:
            self.access.check(request, context)
