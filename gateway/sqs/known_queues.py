"""Cache of what actions on messages know about queues: kind, settings and limits.

Shell: it asks brokers, for many queues in one request.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, final

import trio

from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.client import Client
from tidelog.gateway.sqs.attributes import stored_number
from tidelog.gateway.sqs.protocol.errors import (
    SERVICE_UNAVAILABLE,
    SqsError,
    queue_does_not_exist,
)
from tidelog.wire.config.queue_config import DeduplicationScope, QueueConfig, queue_config
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.errors import TidelogError, UnknownQueueError

_FRESH_S: Final = 5.0
"""Seconds for which a description is used without a question to a broker."""
_ASKED_MAX: Final = 100
"""Maximum queues of one question."""


class QueueFacts(NamedTuple):
    """What actions on messages know about a queue."""

    name: str
    """Its tidelog name."""
    is_fifo: bool
    partition_count: int
    config: QueueConfig
    """All settings in force, such as `visibility_timeout_ms`."""
    max_message_bytes: int
    """`MaximumMessageSize`."""

    @property
    def has_group_scope(self) -> bool:
        """Whether deduplication ids are compared within a group (`messageGroup`)."""
        return self.config.deduplication_scope is DeduplicationScope.GROUP


class _Known:
    """A queue as it was described last."""

    __slots__ = ("at", "facts", "is_used")

    def __init__(self, facts: QueueFacts, at: float) -> None:
        self.facts = facts
        self.at = at
        self.is_used = False
        """Whether a call has used it since then."""


class _Question:
    """A question to a broker that other calls wait for."""

    __slots__ = ("done", "error", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        """Queue that its error is about; the answer may cover others."""
        self.done = trio.Event()
        self.error: TidelogError | None = None

    def check(self) -> None:
        """Raise an error as that of the question, but another object: each task adds to its own."""
        if isinstance(self.error, SqsError):
            raise SqsError(self.error.shape, self.error.message)
        if self.error is not None:
            raise SqsError(SERVICE_UNAVAILABLE, str(self.error))


class _Asked:
    """A question to a broker that is not answered yet."""

    __slots__ = ("forgotten",)

    def __init__(self) -> None:
        self.forgotten: set[str] = set()
        """Queues that were changed or deleted meanwhile: the answer about them may be outdated."""


@final
class KnownQueues:
    """Descriptions of queues that are at most five seconds old, or as old as an answer takes.

    A call that finds an older one asks a broker, and other calls of the queue go on with it. The
    question covers other queues in use that will be too old soon, and the cache drops those that
    no call has used. Brokers check again what they are told, so an old description at most refuses
    late, or with the text of a broker.

    Invariant: the queues of `_known` are in the order of their times.
    """

    def __init__(self, client: Client, now: Callable[[], float] | None = None) -> None:
        """Ask brokers by `client`; `now` returns a time in seconds, by default that of the loop."""
        self._client = client
        self._now = now or loop_clock()
        self._known: dict[str, _Known] = {}
        self._questions: dict[str, _Question] = {}
        self._asked: set[_Asked] = set()

    def known(self, name: str) -> QueueFacts | None:
        """Return what is known about a queue, if it is fresh: the quick way of `facts`."""
        known = self._known.get(name)
        if known is None or self._now() - known.at > _FRESH_S:
            return None
        known.is_used = True
        return known.facts

    async def facts(self, name: str) -> QueueFacts:
        """Return what is known about a queue, or can be learned.

        Raises:
            SqsError: There is no such queue.
            TidelogError: No broker answers.
        """
        while (fresh := self.known(name)) is None:
            question = self._questions.get(name)
            if question is None:
                return await self._ask(name)
            if (old := self._known.get(name)) is not None:
                return old.facts
            await question.done.wait()
            if question.name == name:
                question.check()
        return fresh

    async def _ask(self, name: str) -> QueueFacts:
        question = self._questions[name] = _Question(name)
        names = [name, *self._soon_too_old()]
        self._questions.update(dict.fromkeys(names, question))
        try:
            queues = await self._describe(names)
        except TidelogError as error:
            question.error = error
            raise
        finally:
            for each in names:
                del self._questions[each]
            question.done.set()
        known = self._known.get(name)
        return _facts_of(queues[0]) if known is None else known.facts

    def _soon_too_old(self) -> list[str]:
        """Return further queues to ask about, and drop those without use."""
        names: list[str] = []
        limit = self._now() - _FRESH_S / 2
        for other, known in list(self._known.items()):
            if known.at > limit or len(names) == _ASKED_MAX - 1:
                break
            if other in self._questions:
                continue  # Also the queue that the question is about first.
            if known.is_used:
                names.append(other)
            else:
                del self._known[other]
        return names

    async def _describe(self, names: list[str]) -> list[DescribedQueue]:
        try:
            return await self.describe(names)
        except UnknownQueueError:
            if len(names) == 1:
                self.forget(names[0])
                raise queue_does_not_exist() from None
        # One of them was deleted: each is asked about when it is used.
        for name in names:
            self.forget(name)
        return await self._describe(names[:1])

    async def describe(
        self, names: list[str], *, with_counts: bool = False
    ) -> list[DescribedQueue]:
        """Ask a broker to describe queues, and remember the answer.

        Raises:
            UnknownQueueError: One of them does not exist.
            TidelogError: No broker answers.
        """
        asked = _Asked()
        self._asked.add(asked)
        try:
            queues = await self._client.admin.describe_queues(names, with_counts=with_counts)
        finally:
            self._asked.discard(asked)
        for queue in queues:
            self._known.pop(queue.name, None)
            if queue.name not in asked.forgotten:
                self._known[queue.name] = _Known(_facts_of(queue), self._now())
        return queues

    def forget(self, name: str) -> None:
        """Forget a queue that was changed or deleted."""
        self._known.pop(name, None)
        for asked in self._asked:
            asked.forgotten.add(name)


def _facts_of(queue: DescribedQueue) -> QueueFacts:
    return QueueFacts(
        queue.name,
        queue.is_fifo,
        len(queue.partitions),
        queue_config(queue.config, is_fifo=queue.is_fifo),
        stored_number(queue.labels, "MaximumMessageSize"),
    )
