"""Response of one request: encodes the reply and queues it at the connection."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Protocol, final

from tidelog.broker.audit.event import AuditSink, RequestOrigin
from tidelog.broker.metrics.request_counts import RequestCounts
from tidelog.broker.requests.identity import ClientIdentity
from tidelog.wire.config.quota_rates import NO_THROTTLE, Throttle
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import BrokerError, UnexpectedServerError
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.protocol.frame import FrameKind, encode_frame
from tidelog.wire.protocol.node_proof import NodeVerifier
from tidelog.wire.security.principal import Principal
from tidelog.wire.transport.write_buffer import FileRegion, WriteBuffer

_log = logging.getLogger("tidelog.broker")


class DelayedRequest(Protocol):
    """A request that waits for data or an event, possibly for long."""

    def drop(self) -> None:
        """Drop the request: its client is gone."""
        ...


class ReplyMeter(Protocol):
    """Charges the replies of a connection to its principal."""

    def replied(self, attachment_bytes: int) -> Throttle:
        """Charge a reply; return what it says about the time until the next request is read."""
        ...

    def followed(self, work: Awaitable[object]) -> Awaitable[object]:
        """Return work that runs in a task of its own and is charged as it runs."""
        ...


class ReplyGuard(Protocol):
    """Decides what of a reply the client may get."""

    def review(
        self, message: object, attachment: Sequence[BytesLike | FileRegion]
    ) -> tuple[object, Sequence[BytesLike | FileRegion]]:
        """Return the message and attachment to send.

        Raises:
            BrokerError: The client gets this error instead.
        """
        ...


class RequestContext(Protocol):
    """The connection that a request arrived on."""

    write_buffer: WriteBuffer
    delayed: dict[DelayedRequest, None]
    """Requests that are dropped when the connection ends, in the order of their arrival."""
    is_reserve: bool
    """Whether it was opened beyond `max_connections`: it serves only other nodes."""
    verifier: NodeVerifier | None
    """The proof of a node at the other end; `None` before a node begins it."""
    node_id: int | None
    """The node at the other end, which has proved its identity; `None` for a client."""
    clock: Callable[[], float]
    """Monotonic clock of the loop, in seconds."""
    now: float
    """Last reading of `clock`: the time of the last answer, or of the arrival of the requests."""

    is_encrypted: bool
    """Whether the bytes of the connection are unreadable for others (TLS)."""

    @property
    def meter(self) -> ReplyMeter | None:
        """Charges the replies; `None` while no principal has quotas."""
        ...

    @property
    def principal(self) -> Principal:
        """The identity at the other end, which has been proved."""
        ...

    @property
    def identity(self) -> ClientIdentity:
        """The proven identity of a client; anonymous before its proof, and for nodes."""
        ...

    @property
    def peer(self) -> str:
        """Address and port of the other end."""
        ...

    @property
    def audit(self) -> AuditSink:
        """Takes audit events."""
        ...

    @property
    def origin(self) -> RequestOrigin:
        """Where the requests come from, for audit events."""
        ...

    @property
    def local(self) -> tuple[str, int]:
        """Address at which the client reached this broker."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the connection serves no further request."""
        ...

    @property
    def is_handling(self) -> bool:
        """Whether it handles requests, and calls `Dispatcher.end_turn` before other tasks run."""
        ...

    def answered(self) -> None:
        """Count one request as answered: its reply is in the write buffer, or none is wanted."""
        ...

    def note_refused(self, reason: str) -> None:
        """Report in the log that this broker refuses a request."""
        ...

    def authenticated(self, identity: ClientIdentity) -> None:
        """Set or renew the identity of the client."""
        ...

    def give_up(self, reason: str) -> None:
        """End the connection, and log the reason for the operator."""
        ...


@final
class ResponseHandle:
    """Answers one request, exactly once, from any task.

    As a context manager it is the supervisor of the request, one of the three that catch every
    exception: put it around each step of the work, in any task. A refusal becomes the reply. A
    defect is logged and becomes an error reply, and other requests are not affected.
    """

    __slots__ = (
        "_api",
        "_correlation_id",
        "_counts",
        "_is_answered",
        "_is_counted",
        "arrived_at",
        "context",
        "guard",
        "on_answered",
        "version",
    )

    def __init__(
        self,
        served: api.AnyApi,
        request: Request,
        context: RequestContext,
        *,
        counts: RequestCounts | None = None,
    ) -> None:
        """Answer `request`, which arrived on `context`, and count the answer in `counts`."""
        self._api = served
        self._counts = RequestCounts() if counts is None else counts
        self.arrived_at = context.now
        """Time at which the handling of the request began, in seconds of the loop's clock."""
        self._is_counted = False
        self.version = request.version
        self._correlation_id = request.correlation_id
        self._is_answered = False
        self.context = context
        self.on_answered: Callable[[BrokerError | None, object], None] | None = None
        """Is called once with the error or the reply, before it is sent; `None` for nothing."""
        self.guard: ReplyGuard | None = None
        """Reviews the reply, `None` to send it as it is."""

    @property
    def is_answered(self) -> bool:
        """Whether the request is answered, or needs no answer."""
        return self._is_answered

    def reply(self, message: object, attachment: Sequence[BytesLike | FileRegion] = ()) -> None:
        """Reply with a message and its attachment, as far as the client may get them.

        Raises:
            BrokerError: The client may not get the reply.
        """
        if self.guard is not None:
            message, attachment = self.guard.review(message, attachment)
        length = 0
        for piece in attachment:
            length += piece.length if isinstance(piece, FileRegion) else len(piece)
        meter = self.context.meter
        frame = encode_frame(
            FrameKind.REPLY,
            api_key=self._api.key,
            api_version=self.version,
            correlation_id=self._correlation_id,
            header=api.encode_message(message),
            attachment_length=length,
            throttle=NO_THROTTLE if meter is None else meter.replied(length),
        )
        # All or nothing: the steps that can fail come before the first byte is put.
        self._note_answered(reply=message)
        write_buffer = self.context.write_buffer
        write_buffer.put(frame)
        for piece in attachment:
            write_buffer.put(piece)
        self.context.answered()

    def parked(self) -> None:
        """Count the time so far: from now on, the request waits for data as its client wishes."""
        if not self._is_counted:
            self._is_counted = True
            context = self.context
            context.now = context.clock()
            self._counts.durations.observe(context.now - self.arrived_at)

    def fail(self, error: BrokerError) -> None:
        """Reply that the request as a whole failed."""
        meter = self.context.meter
        frame = api.encode_error(
            error.to_wire(),
            api_key=self._api.key,
            api_version=self.version,
            correlation_id=self._correlation_id,
            throttle=NO_THROTTLE if meter is None else meter.replied(0),
        )
        self._note_answered(error)
        self.context.write_buffer.put(frame)
        self.context.answered()

    def reply_if_wanted(self, message: object) -> None:
        """Send the reply; `None` when the client wants none."""
        if message is None:
            self.nothing()
        else:
            self.reply(message)

    def nothing(self) -> None:
        """Settle a request that wants no reply."""
        self._note_answered()
        self.context.answered()

    def __enter__(self) -> None:
        """Supervise a step of the request."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Reply with the error, if there is one; return whether it is handled."""
        if not isinstance(error, Exception):
            return False
        self.caught(error)
        return True

    def caught(self, error: Exception) -> None:
        """Reply with an error that has ended a step of the request."""
        if not isinstance(error, BrokerError):
            _log.error("a request failed unexpectedly", exc_info=error)
            error = UnexpectedServerError(
                f"the broker failed unexpectedly ({type(error).__name__}); its log has the details"
            )
        if not self._is_answered:
            self.fail(error)

    def _note_answered(self, error: BrokerError | None = None, reply: object = None) -> None:
        assert not self._is_answered, "a request is answered once"
        self._is_answered = True
        if error is None:
            self._counts.ok += 1
        else:
            self._counts.errors[error.code.name] += 1
        if self.on_answered is not None:
            self.on_answered(error, reply)
        context = self.context
        context.now = context.clock()
        if not self._is_counted:
            self._is_counted = True
            self._counts.durations.observe(context.now - self.arrived_at)
