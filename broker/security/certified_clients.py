"""Clients with certificates: the principal of a certificate, and the session of its user.

A certificate proves a name, and the metadata say whether there is such a user. So `tidelog user
remove` is the revocation of all certificates of a user.
"""

from collections.abc import Callable
from typing import final

from tidelog.broker.requests.identity import CERTIFICATE, ClientIdentity
from tidelog.broker.requests.response import RequestContext
from tidelog.broker.security.sessions import ClientSessions
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.env.env import Certificate
from tidelog.wire.security.principal import Principal, PrincipalKind


@final
class CertifiedClients:
    """Begins the sessions of users by certificate."""

    def __init__(
        self,
        principal_of: Callable[[Certificate], Principal],
        sessions: ClientSessions,
        security: Callable[[], SecurityState],
    ) -> None:
        """Read certificates by `principal_of`, and the users of `security`.

        `security` raises `RetriableError` while the metadata are not known.
        """
        self._principal_of = principal_of
        self._sessions = sessions
        self._security = security

    def identify(self, certificate: Certificate, context: RequestContext) -> Principal:
        """Return the principal of a certificate, and begin its session if it is a user.

        The session ends with the certificate, or with the user. The gate refuses the requests of a
        user that does not exist: the metadata may be unknown yet, and a request can be answered.

        Raises:
            HandshakeFailedError: The certificate is of another cluster, or has expired.
        """
        principal = self._principal_of(certificate)
        if principal.kind is PrincipalKind.USER:
            identity = ClientIdentity(
                principal,
                expires_at_ms=certificate.expires_at_ms,
                how=CERTIFICATE,
                is_current=lambda: principal.name in self._security().users,
            )
            self._sessions.begin(context, identity)
        return principal
