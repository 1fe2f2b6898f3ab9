"""The way back of one request: encodes its reply and puts it in front of the connection."""

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, final

from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import BrokerError, UnexpectedServerError
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.protocol.write_buffer import FileRegion, WriteBuffer

_log = logging.getLogger("tidelog.broker")


class DelayedRequest(Protocol):
    """A request that waits for something which may be long in coming."""

    def drop(self) -> None:
        """Forget the request: whoever asked is gone."""
        ...


class RequestContext(Protocol):
    """The connection that a request came on."""

    write_buffer: WriteBuffer
    delayed: dict[DelayedRequest, None]
    """Requests that are dropped when the connection ends, in the order in which they came."""
    is_reserve: bool
    """Whether it came when there were as many as may be: only other nodes are served there."""
    is_of_node: bool
    """Whether something was asked for on it that other nodes ask."""

    @property
    def local(self) -> tuple[str, int]:
        """Where the client reached this broker."""
        ...

    def answered(self) -> None:
        """One request has its answer in the write buffer, or wants none."""
        ...


@final
class ResponseHandle:
    """Answers one request, exactly once, from whichever task has the answer.

    As a context manager it is the supervisor of the request, one of the three that catch every
    exception: put it around each step of the work, in whichever task that runs. A refusal becomes
    the answer; a defect is logged and becomes an honest answer, and harms nobody else.
    """

    __slots__ = ("_api", "_correlation_id", "_is_answered", "context", "version")

    def __init__(self, served: api.AnyApi, request: Request, context: RequestContext) -> None:
        """Answer `request`, which came on `context`."""
        self._api = served
        self.version = request.version
        self._correlation_id = request.correlation_id
        self._is_answered = False
        self.context = context

    def reply(self, message: object, attachment: Sequence[BytesLike | FileRegion] = ()) -> None:
        """Answer with a message and what follows it."""
        length = 0
        for piece in attachment:
            length += piece.length if isinstance(piece, FileRegion) else len(piece)
        frame = self._api.encode_reply(
            message,
            version=self.version,
            correlation_id=self._correlation_id,
            attachment_length=length,
        )
        # All or nothing: what can fail has not failed when the first byte is put.
        self._note_answered()
        write_buffer = self.context.write_buffer
        write_buffer.put(frame)
        for piece in attachment:
            write_buffer.put(piece)
        self.context.answered()

    def fail(self, error: BrokerError) -> None:
        """Answer that the request as a whole failed."""
        frame = api.encode_error(
            error.to_wire(),
            api_key=self._api.key,
            api_version=self.version,
            correlation_id=self._correlation_id,
        )
        self._note_answered()
        self.context.write_buffer.put(frame)
        self.context.answered()

    def reply_if_wanted(self, message: object) -> None:
        """Send the reply; `None` when nobody waits for one."""
        if message is None:
            self.nothing()
        else:
            self.reply(message)

    def nothing(self) -> None:
        """Say that no answer is wanted."""
        self._note_answered()
        self.context.answered()

    def __enter__(self) -> None:
        """Watch over a step of the request."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Answer with what went wrong, if anything did; return whether that settles it."""
        if not isinstance(error, Exception):
            return False
        if not isinstance(error, BrokerError):
            _log.error("a request failed unexpectedly", exc_info=error)
            error = UnexpectedServerError(
                f"the broker failed unexpectedly ({type(error).__name__}); its log has the details"
            )
        if not self._is_answered:
            self.fail(error)
        return True

    def _note_answered(self) -> None:
        assert not self._is_answered, "a request is answered once"
        self._is_answered = True
