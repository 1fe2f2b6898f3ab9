"""Message counts of many queues at once.

Shell: sends requests to the brokers that serve the partitions, a few queues at a time.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

import msgspec
import trio

from tidelog.client.admin.queue_metadata import leader_of
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.queue_admin import QueueDescription
from tidelog.wire.messages.queues import CountMessagesRequest, QueueCounts
from tidelog.wire.protocol import api

_AT_ONCE: Final = 16
_PATIENCE_S: Final = 5.0
"""Seconds for the brokers of one queue; a broker that first reads a long backlog takes longer."""


@final
class MessageCounts(msgspec.Struct, frozen=True):
    """Messages of a queue by state, all partitions together."""

    visible: int
    in_flight: int
    delayed: int
    dead: int
    """Dead letters that are not in the dead-letter queue yet, or that no queue accepts."""
    oldest_timestamp_ms: int | None
    """When the oldest message was sent; `None` if there is none."""
    oldest_age_ms: int | None = None
    """Age of the oldest message by its broker's clock (SQS: ApproximateAgeOfOldestMessage)."""


@final
class DescribedQueue(QueueDescription, frozen=True, array_like=True):
    """One queue: identity, settings, leaders, and message counts."""

    counts: MessageCounts | None = None
    """`None` if counts were not requested, or a partition did not answer in time."""


def described(queue: QueueDescription, counts: MessageCounts | None) -> DescribedQueue:
    """Return a queue together with its counts."""
    fields = {name: getattr(queue, name) for name in QueueDescription.__struct_fields__}
    return DescribedQueue(**fields, counts=counts)


def sum_of(partitions: Iterable[QueueCounts]) -> MessageCounts:
    """Return the sum of the counts of all partitions."""
    counts = list(partitions)
    return MessageCounts(
        sum(each.visible for each in counts),
        sum(each.in_flight for each in counts),
        sum(each.delayed for each in counts),
        sum(each.dead for each in counts),
        min((at for each in counts if (at := each.oldest_timestamp_ms) is not None), default=None),
        max((age for each in counts if (age := each.oldest_age_ms) is not None), default=None),
    )


async def count_messages(
    cluster: ClusterClient, queues: Sequence[QueueDescription], *, within_s: float = float("inf")
) -> list[MessageCounts | None]:
    """Return the counts of queues, in their order; `None` if a partition did not answer in time.

    `within_s` limits the time for all queues together.
    """
    found: list[MessageCounts | None] = [None] * len(queues)
    waiting = iter(enumerate(queues))

    async def work() -> None:
        for place, queue in waiting:
            with trio.move_on_after(_PATIENCE_S):
                found[place] = await _count(cluster, queue)

    async def count_all() -> None:
        with trio.move_on_after(within_s):
            async with trio.open_nursery() as nursery:
                for _ in range(min(_AT_ONCE, len(queues))):
                    nursery.start_soon(work)

    await cluster.tasks.until_closed(count_all)
    return found


async def _count(cluster: ClusterClient, queue: QueueDescription) -> MessageCounts | None:
    by_leader: dict[int, list[int]] = {}
    for partition in queue.partitions:
        leader_id = leader_of(queue, partition.partition)
        if leader_id is None:
            return None
        by_leader.setdefault(leader_id, []).append(partition.partition)
    counts: list[QueueCounts] = []
    try:
        for node_id, numbers in by_leader.items():
            connection = await cluster.connection_to(node_id)
            request = CountMessagesRequest(queue.queue_id, numbers)
            counts += (await cluster.call_once(connection, api.COUNT_MESSAGES, request)).counts
    except TidelogError:
        return None
    if any(each.error is not None for each in counts):
        return None
    return sum_of(counts)
