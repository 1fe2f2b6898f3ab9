"""IMPERSONATE: a gateway acts for a user on a connection of its own (PostgreSQL: SET ROLE).

Shell. The gateway needs the action `impersonate` of the cluster, and a signing key of the user,
which it got with a request that the user had signed. From then on the connection has the grants and
quotas of the user, and nothing of the gateway's. It ends with the identity of the gateway, with its
action, with the access key and with the user.
"""

from collections.abc import Callable
from typing import Protocol, final

from tidelog.broker.audit.event import OK, AuditEvent, AuditKind
from tidelog.broker.requests.identity import (
    IMPERSONATED,
    ClientIdentity,
    Impersonation,
    impersonated,
)
from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.broker.security.access_keys import AccessKeys, require_private
from tidelog.broker.security.sessions import ClientSessions
from tidelog.coordinator.security.records import AccessKeySet
from tidelog.wire.env.env import Clock
from tidelog.wire.errors import AuthenticationFailedError, InvalidRequestError
from tidelog.wire.messages.access_keys import ImpersonateReply, ImpersonateRequest
from tidelog.wire.security.access_key import SigningScope, scope_end_ms
from tidelog.wire.security.principal import user_principal


class GatewayAccess(Protocol):
    """Decides which principals may act for users."""

    def check_impersonation(self, actor: ClientIdentity, context: RequestContext) -> None:
        """Return if a gateway may act for users; note it if not.

        Raises:
            NotAuthorizedError: It may not.
        """
        ...

    def may_impersonate(self, actor: ClientIdentity) -> bool:
        """Return whether a gateway may act for users."""
        ...


@final
class ImpersonationHandler:
    """Answers IMPERSONATE on all connections."""

    def __init__(
        self,
        keys: AccessKeys,
        clock: Clock,
        sessions: ClientSessions,
        *,
        access: Callable[[], GatewayAccess | None],
    ) -> None:
        """Check proofs by `keys`, and gateways by `access`; `None` lets each act for users."""
        self._keys = keys
        self._clock = clock
        self._sessions = sessions
        self._access = access

    def impersonate(self, request: ImpersonateRequest, response: ResponseHandle) -> None:
        """Answer a gateway.

        Raises:
            AuthenticationFailedError: The proof is wrong, or the connection acts for another user.
            InvalidRequestError: The client is a node.
            NotAuthorizedError: The gateway may not act for users.
        """
        context = response.context
        if context.node_id is not None:
            raise InvalidRequestError("a node acts for itself; only clients send IMPERSONATE")
        actor, access = context.identity.proved, self._access()
        if access is not None:
            access.check_impersonation(actor, context)
        require_private(context)
        try:
            known = self._keys.check_proof(request)
            identity = self._identity(known, request, context)
        except AuthenticationFailedError as error:
            _audit(context, request, error.code.name)
            raise
        self._sessions.begin(context, identity)
        _audit(context, request, OK)
        end_ms = identity.impersonation.expires_at_ms if identity.impersonation else 0
        response.reply(
            ImpersonateReply(str(identity.principal), max(0, end_ms - self._clock.now_ms()))
        )

    def _identity(
        self, known: AccessKeySet, request: ImpersonateRequest, context: RequestContext
    ) -> ClientIdentity:
        """Return the identity of a connection that acts for the user of an access key.

        Raises:
            AuthenticationFailedError: The connection acts for another user.
        """
        principal, before = user_principal(known.user), context.identity
        if before.impersonation is not None and before.principal != principal:
            raise AuthenticationFailedError(
                f"the connection acts for {before.principal}; open another one for {principal}"
            )
        actor, keys, access = before.proved, self._keys, self._access
        end_ms = scope_end_ms(SigningScope(request.date, request.region, request.service))
        assert end_ms is not None, "the proof has a date"

        def is_allowed(by: ClientIdentity) -> bool:
            decider = access()
            return keys.is_current(known) and (decider is None or decider.may_impersonate(by))

        return impersonated(principal, Impersonation(actor, end_ms, is_allowed))


def _audit(context: RequestContext, request: ImpersonateRequest, result: str) -> None:
    detail = {"mechanism": IMPERSONATED, "access_key_id": request.access_key_id}
    context.audit.note(
        AuditEvent(AuditKind.AUTHENTICATION, "impersonate", result, context.origin, detail=detail)
    )
