"""The way back of one request: encodes its reply and puts it in front of the connection."""

from collections.abc import Callable, Sequence
from typing import final

from wire import api
from wire.connection import Request
from wire.env import BytesLike
from wire.errors import BrokerError
from wire.outbox import FileRegion, Outbox


@final
class Replier:
    """Answers one request, exactly once, from whichever task has the answer."""

    __slots__ = ("_api", "_correlation_id", "_on_replied", "_outbox", "_version")

    def __init__(
        self,
        served: api.AnyApi,
        request: Request,
        outbox: Outbox,
        on_replied: Callable[[], None],
    ) -> None:
        """Answer `request` through `outbox`; `on_replied` is called after each answer."""
        self._api = served
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._outbox = outbox
        self._on_replied = on_replied

    def reply(self, message: object, attachment: Sequence[BytesLike | FileRegion] = ()) -> None:
        """Answer with a message and what follows it."""
        length = 0
        for piece in attachment:
            length += piece.length if isinstance(piece, FileRegion) else len(piece)
        self._outbox.put(
            self._api.encode_reply(
                message,
                version=self._version,
                correlation_id=self._correlation_id,
                attachment_length=length,
            )
        )
        for piece in attachment:
            self._outbox.put(piece)
        self._on_replied()

    def fail(self, error: BrokerError) -> None:
        """Answer that the request as a whole failed."""
        self._outbox.put(
            api.encode_error(
                error.to_wire(),
                api_key=self._api.key,
                api_version=self._version,
                correlation_id=self._correlation_id,
            )
        )
        self._on_replied()

    def nothing(self) -> None:
        """Say that no answer is wanted."""
        self._on_replied()
