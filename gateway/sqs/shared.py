"""Caches that the actions of one client share between requests.

Shell: it asks brokers about queues.
"""

from typing import Final, NamedTuple, final

import trio

from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue
from tidelog.gateway.sqs.attributes import stored_number
from tidelog.gateway.sqs.protocol.errors import queue_does_not_exist
from tidelog.gateway.sqs.strict_pauses import StrictPauses
from tidelog.wire.config.queue_config import DeduplicationScope, QueueConfig, queue_config
from tidelog.wire.errors import UnknownQueueError

_FRESH_S: Final = 5.0
"""Seconds for which a description is used without a question to a broker."""
_QUEUES_MAX: Final = 20_000
"""Queues that are remembered, beyond which all are forgotten."""


class QueueFacts(NamedTuple):
    """What actions on messages know about a queue."""

    name: str
    """Its tidelog name."""
    topic_id: bytes
    """Id of its topic: ids of messages follow from it."""
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

    __slots__ = ("at", "facts", "is_asking")

    def __init__(self, facts: QueueFacts, at: float) -> None:
        self.facts = facts
        self.at = at
        self.is_asking = False


@final
class FrontState:
    """Queue objects and descriptions of one client, by name.

    Concurrent calls of one queue object are gathered. A description is at most five seconds old,
    or as old as a broker takes to answer; brokers check again what they are told.
    """

    def __init__(self, client: Client) -> None:
        """Use queues of `client`."""
        self._client = client
        self._queues: dict[str, Queue] = {}
        self._known: dict[str, _Known] = {}
        self.pauses = StrictPauses()

    def queue(self, name: str) -> Queue:
        """Return the one object for a queue."""
        queue = self._queues.get(name)
        if queue is None:
            if len(self._queues) >= _QUEUES_MAX:
                self._queues.clear()
            queue = self._queues[name] = self._client.queue(name)
        return queue

    def known(self, name: str) -> QueueFacts | None:
        """Return what is known about a queue, if it is fresh: the quick way of `facts`."""
        known = self._known.get(name)
        if known is None or trio.current_time() - known.at > _FRESH_S:
            return None
        return known.facts

    async def facts(self, name: str) -> QueueFacts:
        """Return what is known about a queue; one call asks a broker, others do not wait for it.

        Raises:
            SqsError: There is no such queue.
        """
        known = self._known.get(name)
        if known is None:
            return await self._ask(name)
        if known.is_asking or trio.current_time() - known.at <= _FRESH_S:
            return known.facts
        known.is_asking = True
        try:
            return await self._ask(name)
        finally:
            known.is_asking = False

    async def _ask(self, name: str) -> QueueFacts:
        try:
            (queue,) = await self._client.admin.describe_queues([name])
        except UnknownQueueError:
            self.forget(name)
            raise queue_does_not_exist() from None
        return self.learn(queue)

    def learn(self, queue: DescribedQueue) -> QueueFacts:
        """Remember the description of a queue that a broker has just sent."""
        facts = QueueFacts(
            queue.name,
            queue.topic_id,
            queue.is_fifo,
            len(queue.partitions),
            queue_config(queue.config, is_fifo=queue.is_fifo),
            stored_number(queue.labels, "MaximumMessageSize"),
        )
        if len(self._known) >= _QUEUES_MAX:
            self._known.clear()
        self._known[facts.name] = _Known(facts, trio.current_time())
        return facts

    def change(self, name: str) -> None:
        """Ask again about a queue that was changed."""
        self._known.pop(name, None)

    def forget(self, name: str) -> None:
        """Forget a queue that was deleted."""
        self._queues.pop(name, None)
        self._known.pop(name, None)
