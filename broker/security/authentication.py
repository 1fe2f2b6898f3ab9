"""AUTHENTICATE: clients prove their identity, or renew it (Kafka: SaslAuthenticate, KIP-368).

Shell: owns a task for each request. Strangers are bounded: each connection has one exchange at a
time and three failures, each address waits after its failures, and few attempts wait at once.
"""

from collections import Counter
from dataclasses import replace
from typing import Final, final
from weakref import WeakKeyDictionary

import trio

from tidelog.broker.audit.event import OK, AuditEvent, AuditKind
from tidelog.broker.requests.identity import ClientIdentity, impersonated
from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.broker.security.failed_attempts import DELAY_S, FailedAttempts
from tidelog.broker.security.mechanism import Authenticated, Exchange, Mechanisms
from tidelog.broker.security.sessions import ClientSessions
from tidelog.wire.env.env import Env
from tidelog.wire.env.sites import site_of
from tidelog.wire.errors import (
    AuthenticationFailedError,
    BrokerError,
    InvalidRequestError,
    OverloadedError,
)
from tidelog.wire.messages.handshake import AuthenticateReply, AuthenticateRequest
from tidelog.wire.security.loopback import host_of, is_loopback
from tidelog.wire.security.principal import NAME_CHARS_MAX

FAILURES_MAX: Final = 3
"""Failed attempts after which a connection ends."""
_WAITING_MAX: Final = 32
"""Attempts of one address that wait at a time; further ones are refused at once."""


@final
class Attempts:
    """The attempts of one connection."""

    __slots__ = ("__weakref__", "exchange", "failure_count", "is_busy", "mechanism")

    def __init__(self) -> None:
        """Start without an exchange."""
        self.mechanism = ""
        self.exchange: Exchange | None = None
        self.is_busy = False
        self.failure_count = 0


@final
class AuthenticationHandler:
    """Answers AUTHENTICATE on all connections."""

    def __init__(
        self, env: Env, nursery: trio.Nursery, mechanisms: Mechanisms, *, sessions: ClientSessions
    ) -> None:
        """Prove identities by `mechanisms`, which may grow, and tell `sessions` about them."""
        self._env = env
        self._nursery = nursery
        self.mechanisms = mechanisms
        self._sessions = sessions
        self._attempts: WeakKeyDictionary[RequestContext, Attempts] = WeakKeyDictionary()
        self._failed = FailedAttempts()
        self._waiting: Counter[str] = Counter()

    def authenticate(self, request: AuthenticateRequest, response: ResponseHandle) -> None:
        """Answer one message of a client, in a task.

        Raises:
            AuthenticationFailedError: The bytes of the connection can be read by others.
            InvalidRequestError: The client is a node, or an earlier request is not answered.
        """
        context = response.context
        if context.node_id is not None:
            raise InvalidRequestError("a node has its identity; only clients send AUTHENTICATE")
        if not context.is_encrypted and not is_loopback(host_of(context.peer)):
            raise AuthenticationFailedError(
                "this broker takes credentials over TLS or from its own machine only; turn TLS on"
                " at the broker and in the client"
            )
        attempts = self._attempts.setdefault(context, Attempts())
        if attempts.is_busy:
            raise InvalidRequestError("one AUTHENTICATE at a time; wait for the last reply")
        attempts.is_busy = True
        self._nursery.start_soon(self._answer, request, response, attempts)

    async def _answer(
        self, request: AuthenticateRequest, response: ResponseHandle, attempts: Attempts
    ) -> None:
        context = response.context
        with response:
            try:
                reply = await self._step(request, context, attempts)
            except AuthenticationFailedError as error:
                await self._note_failure(request.mechanism, context, attempts)
                response.fail(error)
                if attempts.failure_count >= FAILURES_MAX:
                    context.give_up(f"{FAILURES_MAX} failed authentications")
            except BrokerError:
                attempts.exchange = None
                raise
            else:
                response.reply(reply)
            finally:
                attempts.is_busy = False

    async def _step(
        self, request: AuthenticateRequest, context: RequestContext, attempts: Attempts
    ) -> AuthenticateReply:
        if attempts.exchange is None or attempts.mechanism != request.mechanism:
            start = self.mechanisms.get(request.mechanism)
            if start is None:
                names = ", ".join(self.mechanisms)
                raise InvalidRequestError(
                    f"the broker has no mechanism {request.mechanism[:64]!r}; it has {names}"
                )
            await self._wait(context, attempts)
            attempts.mechanism, attempts.exchange = request.mechanism, start()
        step = await attempts.exchange.step(request.data)
        if step.result is None:
            return AuthenticateReply(step.data, is_complete=False)
        identity = self._identity(step.result, request.mechanism, context)
        attempts.exchange, attempts.failure_count = None, 0
        self._sessions.begin(context, identity)
        _audit(context, OK, {"mechanism": request.mechanism})
        end_ms = identity.expires_at_ms
        return AuthenticateReply(
            step.data,
            is_complete=True,
            principal=str(step.result.principal),
            expires_at_ms=end_ms,
            lifetime_ms=None if end_ms is None else max(0, end_ms - self._env.clock.now_ms()),
        )

    def _identity(self, found: Authenticated, how: str, context: RequestContext) -> ClientIdentity:
        """Return a proven identity.

        Raises:
            AuthenticationFailedError: The connection has another principal already.
        """
        before, impersonation = context.identity.proved, context.identity.impersonation
        is_bound = before.how in self.mechanisms or impersonation is not None
        if is_bound and before.principal != found.principal:
            raise AuthenticationFailedError(
                f"the connection belongs to {before.principal}; open another one for"
                f" {found.principal}"
            )
        identity = ClientIdentity(found.principal, found.roles, found.expires_at_ms, how)
        if found.is_current is not None:
            identity = replace(identity, is_current=found.is_current)
        if impersonation is None:
            return identity
        # A gateway renews its own identity: the connection never acts for it in between.
        renewed = impersonated(context.identity.principal, replace(impersonation, actor=identity))
        if not renewed.is_current():
            raise AuthenticationFailedError(
                f"{found.principal} may not act for {renewed.principal} any more; open another"
                " connection"
            )
        return renewed

    async def _wait(self, context: RequestContext, attempts: Attempts) -> None:
        """Wait as long as the failures of an address say.

        A renewal waits for no failures of others, but for those of its own connection: a user must
        not guess the credentials of another one more quickly than a stranger.

        Raises:
            OverloadedError: Many attempts of the address wait already.
        """
        address = site_of(host_of(context.peer))
        delay_s = self._failed.delay_s(address, trio.current_time())
        is_renewal = context.identity.proved.how in self.mechanisms and not attempts.failure_count
        if not delay_s or is_renewal:
            return
        if self._waiting[address] >= _WAITING_MAX:
            raise OverloadedError(
                f"{_WAITING_MAX} authentications from {address} wait after failed ones; try again"
            )
        self._waiting[address] += 1
        try:
            await self._sleep(delay_s)
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]

    async def _note_failure(
        self, mechanism: str, context: RequestContext, attempts: Attempts
    ) -> None:
        """Count a failure, and delay its answer: its time tells nothing about the reason."""
        claimed = "" if attempts.exchange is None else attempts.exchange.claimed
        attempts.exchange = None
        attempts.failure_count += 1
        self._failed.add(host_of(context.peer), trio.current_time())
        _audit(
            context,
            AuthenticationFailedError.code.name,
            {"mechanism": mechanism},
            claimed=claimed,
        )
        context.note_refused(f"an authentication by {mechanism} failed")
        await self._sleep(DELAY_S)

    async def _sleep(self, mean_s: float) -> None:
        await trio.sleep(mean_s * self._env.random.uniform(0.75, 1.25))


def _audit(
    context: RequestContext, result: str, detail: dict[str, object], *, claimed: str = ""
) -> None:
    resource = f"user:{claimed[:NAME_CHARS_MAX]}" if claimed else ""
    context.audit.note(
        AuditEvent(
            AuditKind.AUTHENTICATION,
            "authenticate",
            result,
            context.origin,
            resource,
            detail=detail,
        )
    )
