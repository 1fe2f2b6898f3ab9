"""Cancellation of scheduled messages, which are then never delivered.

Shell: without tasks.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, final

from tidelog.client.admin.queue_metadata import QueueMetadata, leader_of
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.reply_shapes import excess
from tidelog.client.queue.partition_calls import PartitionCalls
from tidelog.client.queue.receive.settler import runs_of
from tidelog.wire.errors import (
    BatchError,
    ConnectError,
    ConnectionLostError,
    MessageGoneError,
    NotLeaderError,
    RequestTimedOutError,
    RetriableError,
    TidelogError,
    UnknownQueueError,
    from_wire,
)
from tidelog.wire.messages.queues import CancelScheduledRequest
from tidelog.wire.protocol import api

_ID: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,18})")


class MessageId(NamedTuple):
    """Partition and offset of a message in the topic of its queue."""

    partition: int
    offset: int


@final
class QueueCanceller:
    """Cancels messages of one queue."""

    def __init__(
        self, cluster: ClusterClient, queue_metadata: QueueMetadata, calls: PartitionCalls
    ) -> None:
        """Use the queue of `calls`."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self._calls = calls

    async def cancel(self, message_ids: Iterable[str]) -> None:
        """Cancel messages; durable when it returns.

        Raises:
            ValueError: A text is not a message id; nothing is cancelled.
            BatchError: Some of several messages could not be cancelled; it has their errors.
            TidelogError: The only message could not be cancelled.
        """
        ids = [parse_message_id(message_id) for message_id in message_ids]
        offsets: dict[int, list[int]] = {}
        for partition, offset in ids:
            offsets.setdefault(partition, []).append(offset)
        failures: dict[MessageId, TidelogError] = {}
        for partition, of_partition in offsets.items():
            try:
                refused = await self._cancel(partition, of_partition)
            except TidelogError as error:
                refused = dict.fromkeys(of_partition, error)
            failures |= {MessageId(partition, each): error for each, error in refused.items()}
        errors = {index: failures[each] for index, each in enumerate(ids) if each in failures}
        if not errors:
            return
        if len(ids) == 1:
            raise errors[0]
        raise BatchError(
            f"{len(errors)} of {len(ids)} messages could not be cancelled, the first one"
            f" because: {next(iter(errors.values()))}",
            errors,
        )

    async def _cancel(self, partition: int, offsets: list[int]) -> dict[int, TidelogError]:
        """Return the messages of a partition that could not be cancelled, with their errors."""
        is_done_perhaps = False

        async def attempt() -> dict[int, TidelogError]:
            nonlocal is_done_perhaps
            queue = await self._calls.describe()
            try:
                node_id = leader_of(queue, partition)
                if node_id is None:
                    raise NotLeaderError(f"partition {partition} of the queue has no leader now")
                connection = await self._cluster.connection_to(node_id)
                request = CancelScheduledRequest(queue.queue_id, partition, runs_of(set(offsets)))
                reply = await self._cluster.call_once(connection, api.CANCEL_SCHEDULED, request)
                counts = (count for each in reply.refused for _, count in each.runs)
                problem = excess(counts, len(offsets))
                if problem is not None:
                    raise connection.reject(api.CANCEL_SCHEDULED, problem)
            except (RetriableError, ConnectionLostError, UnknownQueueError) as error:
                self._queue_metadata.invalidate(queue)
                in_doubt = (ConnectionLostError, RequestTimedOutError, NotLeaderError)
                if isinstance(error, in_doubt) and not isinstance(error, ConnectError):
                    is_done_perhaps = True
                raise
            refused: dict[int, TidelogError] = {}
            for each in reply.refused:
                why = from_wire(each.error)
                if not (is_done_perhaps and isinstance(why, MessageGoneError)):
                    for first, count in each.runs:
                        refused |= dict.fromkeys(range(first, first + count), why)
            return refused

        return await self._calls.retry_if_recreated(attempt, is_repeatable=True)


def parse_message_id(message_id: str) -> MessageId:
    """Return the partition and the offset of a message id.

    Raises:
        ValueError: The text is not a message id.
    """
    found = _ID.fullmatch(message_id)
    if found is None:
        raise ValueError(
            f"{message_id!r} is no message id: it is partition and offset, such as 0-17"
        )
    return MessageId(int(found[1]), int(found[2]))
