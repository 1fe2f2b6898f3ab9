"""Sessions: authenticated connections, which end with their credentials (Kafka: KIP-368).

Shell: owns the task that ends connections. A long poll outlives no token: a connection with waiting
requests ends when its credentials expire. Another one refuses requests for up to a second, in which
its client may renew them. A revocation ends every connection at once.
"""

from typing import Final, final

import trio

from tidelog.broker.requests.deadlines import Deadlines
from tidelog.broker.requests.identity import ClientIdentity
from tidelog.broker.requests.response import RequestContext
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.env.env import Clock

_LOOK_S: Final = 0.25
"""Seconds between two looks at the wall clock, which may jump."""
_GRACE_MS: Final = 1_000
"""Time after the end of the credentials in which a client may renew them."""


@final
class Session:
    """One authenticated connection; it is among those that its connection drops at its end."""

    def __init__(self, context: RequestContext, sessions: "ClientSessions") -> None:
        """Watch the identity of `context`."""
        self.context = context
        self._sessions = sessions

    def drop(self) -> None:
        """See `broker.requests.response.DelayedRequest`."""
        self._sessions.forget(self)

    def end(self, why: str) -> None:
        """End the connection."""
        principal = self.context.identity.principal
        self.context.give_up(f"the credentials of {principal} {why}")


@final
class ClientSessions:
    """All authenticated connections of clients."""

    def __init__(self, clock: Clock) -> None:
        """Compare expiry times with `clock`; `run` must run in a task of its own."""
        self._clock = clock
        self._of: dict[RequestContext, Session] = {}
        self._deadlines: Deadlines[Session] = Deadlines()
        self._has_any = trio.Event()
        self._version = 0
        """Version of the security metadata that the sessions agree with."""

    def __len__(self) -> int:
        """Return the number of authenticated connections."""
        return len(self._of)

    def begin(self, context: RequestContext, identity: ClientIdentity) -> None:
        """Give a connection its identity, or a renewed one; none to one that has ended."""
        if context.has_ended:
            return  # Nothing would forget it.
        context.authenticated(identity)
        session = self._of.get(context)
        if session is None:
            session = self._of[context] = Session(context, self)
            context.delayed[session] = None
        self._deadlines.discard(session)
        if identity.expires_at_ms is not None:
            self._deadlines.add(session, identity.expires_at_ms / 1000)
            self._has_any.set()

    def forget(self, session: Session) -> None:
        """Forget a connection that has ended."""
        self._of.pop(session.context, None)
        self._deadlines.discard(session)

    def metadata_changed(self, security: SecurityState) -> None:
        """End the connections whose credentials are no longer in the metadata."""
        if security.version == self._version:
            return
        self._version = security.version
        revoked = [each for each in self._of.values() if not each.context.identity.is_current()]
        for session in revoked:
            session.end("were revoked")

    async def run(self) -> None:
        """End connections after their credentials, until cancelled."""
        while True:
            if self._deadlines.next_deadline is None:
                self._has_any = trio.Event()
                await self._has_any.wait()
            await trio.sleep(_LOOK_S)
            now_ms = self._clock.now_ms()
            for session in self._deadlines.take_expired(now_ms / 1000):
                self._expire(session, now_ms)

    def _expire(self, session: Session, now_ms: int) -> None:
        """End a connection, or give its client some time if it has no long polls."""
        expires_at_ms = session.context.identity.expires_at_ms
        end_ms = now_ms if expires_at_ms is None else expires_at_ms + _GRACE_MS
        if len(session.context.delayed) > 1 or end_ms <= now_ms:
            session.end("have expired")
        else:
            self._deadlines.add(session, end_ms / 1000)
