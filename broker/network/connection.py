"""Connection of one client.

Shell: owns one stream. This task parses, handles and answers requests as far as they need not wait;
the bytes of records are not copied between the socket and the log.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import final

import trio

from tidelog.broker.audit.event import OK, AuditEvent, AuditKind, AuditSink, RequestOrigin
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.network.refusals import Refusals
from tidelog.broker.quotas.meter import ConnectionMeter
from tidelog.broker.requests.identity import ANONYMOUS_IDENTITY, CERTIFICATE, ClientIdentity
from tidelog.broker.requests.memory_budget import MemoryBudget
from tidelog.broker.requests.response import DelayedRequest, RequestContext
from tidelog.broker.requests.steps import Steps, finish
from tidelog.wire.env.env import Certificate, Env, Stream
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.errors import (
    AuthenticationFailedError,
    BrokerError,
    ConnectionLostError,
    HandshakeFailedError,
    OverloadedError,
    ThrottledError,
    WireFormatError,
)
from tidelog.wire.protocol.connection import RefusedRequest, Request, ServerConnection
from tidelog.wire.protocol.node_proof import NodeVerifier
from tidelog.wire.security.principal import Principal, PrincipalKind
from tidelog.wire.transport.write_buffer import WriteBuffer

_FREE_AFTER_S = 5.0
"""Time in seconds after which an unused buffer is returned to the operating system."""

_HELLO_S = 10.0
"""Time in seconds after which a connection without a hello ends."""

_PROOF_S = 30.0
"""Time in seconds after which a connection ends whose client must authenticate and has not."""

_HANDSHAKE_S = 5.0
"""Time in seconds after which a connection without a complete handshake ends."""

_SLOW_BYTES_PER_S = 16 << 10
"""A frame takes `stalled_request_timeout_ms` at most, and a second more for each so many bytes."""

_SHORT_GRACE_S = 2.0
_SHORT_BYTES_PER_S = 64 << 10
"""The same while other connections wait for memory."""

_REQUESTS_AT_ONCE = 64
"""Requests of one connection that are handled before other tasks run."""

_NO_MEMORY_TO_WAIT = (
    "the principal is over a quota, and other clients need the memory in which the request would"
    " wait (queued_max_request_bytes); send it again later"
)

_FEW_BYTES = 7
"""Fewer bytes than any part of a frame has."""


@final
class Connection:
    """A client's stream, its received bytes, and its unsent replies.

    Invariant: `_open_count` requests were handed out and not yet answered, never more than
    `max_in_flight_requests_per_connection`.
    """

    meter: ConnectionMeter | None = None
    """See `broker.requests.response.RequestContext`."""
    node_id: int | None = None
    """See `broker.requests.response.RequestContext`."""
    verifier: NodeVerifier | None = None
    """See `broker.requests.response.RequestContext`."""
    is_reserve: bool = False
    """See `broker.requests.response.RequestContext`."""
    is_encrypted: bool = False
    """See `broker.requests.response.RequestContext`."""
    _is_lent = False
    """Whether it may have memory that was lent to it."""
    _held: Request | None = None
    """A request that waits for a quota of its principal."""
    _quota_wait: trio.CancelScope | None = None
    """Ends the wait for a quota."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        stream: Stream,
        *,
        dispatcher: Dispatcher,
        memory: MemoryBudget,
        refusals: Refusals,
        identify: Callable[[Certificate, RequestContext], Principal] | None = None,
    ) -> None:
        """Create a connection on `stream`; `run` serves it.

        `identify` returns the principal of a certificate, and sets the identity of a user.
        """
        self._env = env
        self._config = config
        self._stream = stream
        self._dispatcher = dispatcher
        self._memory = memory
        self._refusals = refusals
        self._core = ServerConnection(
            dispatcher.api_of,
            max_frame_bytes=config.socket_request_max_bytes,
            is_of_node=lambda: self.node_id is not None,
            is_admitted=lambda: self._has_principal,
        )
        self.clock = loop_clock()
        """See `broker.requests.response.RequestContext`."""
        self.now = self.clock()
        """See `broker.requests.response.RequestContext`."""
        self.write_buffer = WriteBuffer(stream)
        self.delayed: dict[DelayedRequest, None] = {}
        """See `broker.requests.response.RequestContext`."""
        self.on_identity: Callable[[], None] = _ignore
        """Called when the principal of the client has become known, or another."""
        self.authenticated(ANONYMOUS_IDENTITY)
        self._identify = identify
        self._opened_at = self.now
        self._open_count = 0
        self.is_handling = False
        """See `broker.requests.response.RequestContext`."""
        self.has_ended = False
        """See `broker.requests.response.RequestContext`."""
        self._changed: trio.Event | None = None
        """Created by a task that waits for a change."""
        self._is_reading = False
        self._is_waiting = False
        """Whether this connection waits for memory or a quota."""
        self._is_new_frame = False
        self._steps: Steps | None = None
        """The rest of the last request, if that is long."""
        self._quiet_since = self.now
        """Time at which the receive buffer was last empty, in seconds of trio's clock."""
        self._frame_since = self.now
        """Time at which the frame under way began, without the time of waiting for memory."""

    @property
    def is_admitted(self) -> bool:
        """Whether the peer has sent its hello, and proved its identity if it must."""
        return self._core.is_introduced and self._has_principal

    @property
    def _has_principal(self) -> bool:
        is_known = not self.identity.is_anonymous or self.node_id is not None
        return is_known or self._config.authentication != "required"

    @property
    def principal(self) -> Principal:
        """See `broker.requests.response.RequestContext`."""
        node_id = self.node_id
        if node_id is not None:
            return Principal(PrincipalKind.NODE, str(node_id))
        return self.identity.principal

    @property
    def peer(self) -> str:
        """See `broker.requests.response.RequestContext`."""
        return self._stream.peer

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._open_count and self._core.decoder.is_empty

    @property
    def share_key(self) -> str:
        """Name under which this connection has its share of turns, memory and places.

        Anonymous clients have one for each address.
        """
        return self._share_key

    @property
    def audit(self) -> AuditSink:
        """See `broker.requests.response.RequestContext`."""
        return self._dispatcher.audit

    @property
    def origin(self) -> RequestOrigin:
        """See `broker.requests.response.RequestContext`."""
        by = self.identity.impersonation
        actor = None if by is None else by.actor.principal
        return RequestOrigin(self.principal, self._stream.peer, self._core.client_id, actor)

    @property
    def local(self) -> tuple[str, int]:
        """Address at which the client reached this broker."""
        return self._stream.local

    async def run(self) -> None:
        """Serve until the client disconnects or breaks the protocol, or until cancelled."""
        async with trio.open_nursery() as nursery:
            # Not below this task: each frame of a coroutine costs a call whenever bytes arrive.
            nursery.start_soon(self._serve, nursery.cancel_scope)
            await self.write_buffer.run()

    async def _serve(self, scope: trio.CancelScope) -> None:
        """Receive and handle requests until the connection ends; then end `scope`."""
        decoder, stream, turns = self._core.decoder, self._stream, self._dispatcher.quotas.turns
        with self._until_its_end(scope):
            await self._shake_hands()
            while True:
                buffer = decoder.get_room() or await self._borrow()
                if self._env.buggify("few bytes received"):
                    buffer = buffer[:_FEW_BYTES]
                received = stream.receive_nowait(buffer)
                if received is None:
                    await self._wait_for_bytes()
                    continue
                if received == 0:
                    return
                decoder.bytes_received(received)
                if turns.is_needed:
                    await self._take_turn_if_due()
                while self._handle_received():
                    await self._take_steps()
                    await self._wait_for_room()
                if received == len(buffer) or not decoder.is_empty:
                    self._begin_frame()
                    await trio.lowlevel.checkpoint()
                    self.now = self.clock()
                elif self._is_lent:
                    await self._wait_for_bytes()
                else:
                    # As `_wait_for_bytes`, without its calls. No more bytes are available; a
                    # further call to learn that would cost a turn of the loop.
                    self._is_reading, self._quiet_since = True, self.now
                    try:
                        await stream.wait_readable()
                    finally:
                        self._is_reading = False
                    self.now = self._frame_since = self.clock()

    @contextmanager
    def _until_its_end(self, scope: trio.CancelScope) -> Generator[None]:
        """Handle the end of the connection, report it, and end `scope`."""
        reason = "the client closed the connection"
        try:
            yield
        except (HandshakeFailedError, WireFormatError) as error:
            reason = str(error)
            self._report_refused(reason)
        except ConnectionLostError as error:
            reason = str(error)
        finally:
            self._end()
            scope.cancel()
        self._env.probe(
            "connection_closed", severity="debug", peer=self._stream.peer, reason=reason
        )

    async def _shake_hands(self) -> None:
        """Complete the handshake of the stream, and take the principal of its certificate.

        Raises:
            ConnectionLostError: The handshake failed, or takes too long.
        """
        with trio.move_on_after(_HANDSHAKE_S) as waiting:
            await self._stream.handshake()
        if waiting.cancelled_caught:
            raise HandshakeFailedError(f"no complete TLS handshake within {_HANDSHAKE_S:g} s")
        self.now = self.clock()
        self.is_encrypted = self._stream.is_encrypted
        certificate = self._stream.peer_certificate
        if certificate is not None and self._identify is not None:
            try:
                principal = self._identify(certificate, self)
            except HandshakeFailedError:
                self._note_certificate(AuthenticationFailedError.code.name)
                raise
            if principal.kind is PrincipalKind.NODE:
                self.node_id = int(principal.name)
            elif principal.kind is PrincipalKind.USER:
                self._note_certificate(OK)

    def _note_certificate(self, result: str) -> None:
        detail = {"mechanism": CERTIFICATE}
        event = AuditEvent(
            AuditKind.AUTHENTICATION, "authenticate", result, self.origin, detail=detail
        )
        self.audit.note(event)

    async def finish(self) -> None:
        """Wait until every request is answered and every reply is sent, or the connection ends."""
        while self._open_count and not self.has_ended:
            await self._wait_changed()
        await self.write_buffer.wait_below(0)

    def tidy(self, *, now: float) -> None:
        """Return memory that is not needed; end a connection that keeps it too long.

        `now` is in seconds of trio's clock.
        """
        if not self._core.is_introduced and now - self._opened_at >= _HELLO_S:
            self.give_up(f"no hello within {_HELLO_S:g} s")
        elif not self._has_principal and now - self._opened_at >= _PROOF_S:
            self.give_up(f"no authentication within {_PROOF_S:g} s")
        elif self._core.decoder.is_empty and self._held is None:
            is_quiet = now - self._quiet_since >= _FREE_AFTER_S
            if is_quiet or self._env.buggify("buffer given back early"):
                self._give_back()
        elif not self._is_waiting:
            reason = self._why_too_slow(now)
            if reason:
                self.give_up(reason)

    def _why_too_slow(self, now: float) -> str:
        """Return why the frame under way takes too long; empty if it does not."""
        limit_s = self._config.stalled_request_timeout_ms / 1000
        age_s = now - self._frame_since
        received_bytes = self._core.decoder.buffered_bytes
        if self._is_reading and now - self._quiet_since >= limit_s:
            return "received half a frame, and then nothing"
        if self._is_reading and age_s >= limit_s + received_bytes / _SLOW_BYTES_PER_S:
            return f"received {received_bytes} bytes of a frame in {age_s:.0f} s"
        if self._memory.lent_bytes(self) and self._memory.is_short:
            slow_s = _SHORT_GRACE_S + received_bytes / _SHORT_BYTES_PER_S
            # Above the limit, the client may also read none of its replies.
            if age_s >= limit_s or (self._is_reading and age_s >= slow_s):
                return "a frame took too long while others waited for memory"
        return ""

    def shrink(self) -> None:
        """See `broker.requests.memory_budget.Holder`."""
        self._core.decoder.shrink()
        self._is_lent = False

    def give_way(self) -> None:
        """See `broker.requests.memory_budget.Holder`."""
        if self._quota_wait is not None:
            self._quota_wait.cancel()

    def _give_back(self) -> None:
        """Free the memory that this connection was lent."""
        self.shrink()
        self._memory.release(self)

    def answered(self) -> None:
        """See `broker.requests.response.RequestContext`."""
        self._open_count -= 1
        if not self.is_handling:
            self.write_buffer.flush()
        if self._changed is not None:
            self._tell_changed()

    def authenticated(self, identity: ClientIdentity) -> None:
        """See `broker.requests.response.RequestContext`."""
        self.identity = identity
        self._share_key = (
            self._stream.peer.rpartition(":")[0]
            if identity.is_anonymous
            else str(identity.principal)
        )
        self.on_identity()

    def note_refused(self, reason: str) -> None:
        """See `broker.requests.response.RequestContext`."""
        self._refusals.add("request_refused", peer=self._stream.peer, reason=reason)

    def _begin_frame(self) -> None:
        if not self._is_new_frame:
            return
        self._is_new_frame = False
        self._frame_since = self.now
        if self._is_lent and self._memory.is_short and self._memory.lent_bytes(self):
            # Queue behind the waiting connections: a client that never pauses must not starve them.
            self._give_back()

    def _handle_received(self) -> bool:
        """Handle complete requests; return whether more may follow once there is room.

        Stop after some of them, or if the last one is long, so that other tasks can run.
        """
        self.is_handling = True
        dispatcher, core, write_buffer = self._dispatcher, self._core, self.write_buffer
        quotas, config = dispatcher.quotas, self._config
        began_at = self.clock() if quotas.turns.is_needed else None
        handled_count = 0
        dispatcher.is_in_turn = True
        try:
            while not core.decoder.is_empty or self._held is not None or core.is_unproven:
                if (
                    self._open_count >= config.max_in_flight_requests_per_connection
                    or write_buffer.pending_bytes > config.max_queued_response_bytes
                ):
                    return True
                request, self._held = self._held or core.next_request(), None
                if request is None:
                    return False
                if quotas.is_active:
                    request = self._admitted(request)
                    if request is None:
                        return True
                self._is_new_frame = True
                self._open_count += 1
                handled_count += 1
                if isinstance(request, Request):
                    handle = dispatcher.handle if self.meter is None else self._handle_measured
                    self._steps = handle(request, self)
                else:
                    self._refuse(request)
                is_refused = self.meter is not None and self.meter.is_refused
                if self._steps is not None or is_refused or handled_count == _REQUESTS_AT_ONCE:
                    return True
            return False
        finally:
            dispatcher.is_in_turn = False
            if handled_count:
                # Before the flush: replies that are made there leave in the same write.
                dispatcher.end_turn()
            self.is_handling = False
            write_buffer.flush()
            if began_at is not None:
                quotas.turns.took(self.share_key, began_at)

    async def _take_steps(self) -> None:
        """Carry out the rest of a long request; let other tasks run before each step."""
        steps, self._steps = self._steps, None
        is_needed = self._dispatcher.quotas.turns.is_needed
        if not (is_needed and await self._take_turn_if_due()):
            await trio.lowlevel.checkpoint()
        if steps is not None:
            await finish(steps if self.meter is None else self.meter.measured(steps))
        self.now = self.clock()

    def _handle_measured(self, request: Request, context: RequestContext) -> Steps | None:
        assert self.meter is not None
        began_at = self.clock()
        steps = self._dispatcher.handle(request, context)
        self.meter.worked(began_at)
        return steps

    def _admitted(self, request: Request | RefusedRequest) -> Request | RefusedRequest | None:
        """Charge a request to its principal; return `None` if it must wait."""
        if self.node_id is not None or not isinstance(request, Request):
            return request
        if self.meter is None:
            self.meter = ConnectionMeter(self._dispatcher.quotas)
        verdict = self.meter.admit(request, self.principal)
        if isinstance(verdict, BrokerError):
            return RefusedRequest.of(request, verdict)
        if not verdict.ms:
            return request
        if self._memory.is_wanted(self):
            return RefusedRequest.of(request, OverloadedError(_NO_MEMORY_TO_WAIT))
        self._held = request
        return None

    async def _take_turn_if_due(self) -> bool:
        """Wait for a turn if this connection's principal needs one; return whether it did."""
        turns = self._dispatcher.quotas.turns
        if self.node_id is not None or turns.may_go(self.share_key):
            return False
        await turns.take(self.share_key)
        return True

    def _refuse(self, refused: RefusedRequest) -> None:
        if not isinstance(refused.error, ThrottledError):
            self.note_refused(str(refused.error))
        self.write_buffer.put(refused.reply)
        self.answered()

    async def _wait_for_room(self) -> None:
        if self.meter is not None:
            await self._wait_for_quota(self.meter)
        while (
            self._open_count >= self._config.max_in_flight_requests_per_connection
            and not self.has_ended
        ):
            await self._wait_changed()
        await self.write_buffer.wait_below(self._config.max_queued_response_bytes)
        self.now = self.clock()
        if self.has_ended:
            raise ConnectionLostError("the broker closed the connection")

    async def _wait_for_quota(self, meter: ConnectionMeter) -> None:
        if meter.is_refused:
            await self.write_buffer.wait_below(0)
            raise ConnectionLostError(f"{self.principal} has too many connections")
        if self._held is None:
            return
        began_at = self.clock()
        self._is_waiting = True
        try:
            with trio.CancelScope() as self._quota_wait:
                await meter.wait()
        finally:
            self._is_waiting, self._quota_wait = False, None
        self._frame_since += self.clock() - began_at

    async def _wait_for_bytes(self) -> None:
        self._begin_frame()
        is_idle = self._core.decoder.is_empty
        if is_idle:
            self._memory.note_idle(self)
        self._is_reading, self._quiet_since = True, self.now
        try:
            await self._stream.wait_readable()
        finally:
            self._is_reading = False
            self._memory.note_busy(self)
        self.now = self.clock()
        if is_idle:
            self._frame_since = self.now

    async def _borrow(self) -> memoryview:
        """Wait for memory for more of the frame under way; return space for it."""
        decoder = self._core.decoder
        began_at = self.clock()
        self._is_waiting = self._is_lent = True
        try:
            await self._memory.acquire(
                self, decoder.capacity_wanted, missing_bytes=decoder.missing_bytes
            )
        finally:
            self._is_waiting = False
        self.now = self.clock()
        self._frame_since += self.now - began_at
        buffer = decoder.get_room(is_lent=True)
        assert buffer is not None
        return buffer

    def give_up(self, reason: str) -> None:
        """End the connection, and log the reason for the operator."""
        self._report_refused(reason)
        self._end()

    def _end(self) -> None:
        """Close the stream and release all resources; later replies are dropped."""
        self.has_ended = True
        if self.meter is not None:
            self.meter.close()
        self.write_buffer.close()
        for request in list(self.delayed):
            request.drop()
        self._give_back()
        self._tell_changed()

    def _report_refused(self, reason: str) -> None:
        self._refusals.add("connection_refused", peer=self._stream.peer, reason=reason)

    async def _wait_changed(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _tell_changed(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def _ignore() -> None:
    """Do nothing."""
