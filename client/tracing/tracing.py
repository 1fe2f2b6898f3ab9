"""Interface between the client and its tracing; `OtelTracing` implements it.

Pure: declarations. A client without tracing has `None` instead, and producers and queues check for
that once per call.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tidelog.wire.batch.record_batch import Headers


class Sent(Protocol):
    """Receipt of one record."""

    @property
    def partition(self) -> int:
        """Partition of the record."""
        ...

    @property
    def message_id(self) -> str:
        """Id of the message; empty if it is unknown."""
        ...


class Delivered(Protocol):
    """Record or message that was delivered."""

    @property
    def topic(self) -> str:
        """Topic of the record."""
        ...

    @property
    def partition(self) -> int:
        """Partition of the record."""
        ...

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        ...

    @property
    def headers(self) -> Headers:
        """Pairs of name and value."""
        ...


class OperationSpan(Protocol):
    """Span of an operation that is under way; an exception that leaves its block fails it."""

    def fail(self, error: Exception) -> None:
        """Record the error of an operation that does not raise it."""
        ...


class SendSpan(OperationSpan, Protocol):
    """Span of a send."""

    @property
    def context(self) -> Headers:
        """Headers with the context of the span; empty if it is not to be propagated."""
        ...

    def sent(self, results: Sequence[Sent | Exception]) -> None:
        """Record the outcome of each message."""
        ...


class ReceiveSpan(OperationSpan, Protocol):
    """Span of a receive."""

    def received(self, messages: Sequence[Delivered]) -> None:
        """Link the span to the messages."""
        ...


class Tracing(Protocol):
    """Makes the spans of one client."""

    def create(self, topic: str, headers: Headers) -> Headers:
        """Return the headers of a record that no call waits for, with the context of its span.

        Without a current context there is no span, and the headers stay as they are.
        """
        ...

    def send(
        self, destination: str, headers: Iterable[Iterable[object]], *, count: int
    ) -> AbstractContextManager[SendSpan]:
        """Return the span of a send of `count` messages to a topic or queue.

        `headers` are those of the messages, as the application gave them.
        """
        ...

    def receive(self, queue: str) -> AbstractContextManager[ReceiveSpan]:
        """Return the span of a receive from a queue."""
        ...

    def settle(
        self, queue: str, operation: str, messages: Sequence[Delivered], *, count: int
    ) -> AbstractContextManager[object]:
        """Return the span of a settlement of `count` messages, `messages` of which are at hand."""
        ...

    def process(self, queue: str, message: Delivered) -> AbstractContextManager[OperationSpan]:
        """Return the span of a handler."""
        ...
