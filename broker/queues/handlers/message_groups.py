"""Handler of HOT_KEYS for queues: the largest message groups of partitions served here."""

from contextlib import suppress
from typing import final

import trio

from tidelog.broker.hot.key_shares import KEY_BYTES_MAX
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.requests.commit_wait import DECISION_TIMEOUT_S, deciding_until
from tidelog.queue_layer.ordering.delivery_order import GroupSize
from tidelog.wire.errors import BrokerError, CorruptRecordError, UnknownQueueError
from tidelog.wire.messages.hot_keys import (
    HOT_KEYS_MAX,
    HotGroup,
    HotKeysReply,
    HotKeysRequest,
    PartitionHotKeys,
)


@final
class MessageGroupsHandler:
    """Describes the message groups of queues, exactly."""

    def __init__(self, server: QueueServer) -> None:
        """Describe the queues of `server`."""
        self._server = server

    async def answer(self, request: HotKeysRequest) -> HotKeysReply:
        """Return the partitions in order; each may have an error of its own.

        Raises:
            UnknownQueueError: The queue does not exist.
        """
        self._server.check_partition_count(request.topic_id, request.partitions)
        limit = min(max(request.limit, 0), HOT_KEYS_MAX)
        deadline = trio.current_time() + DECISION_TIMEOUT_S
        results: list[PartitionHotKeys] = []
        for number in request.partitions:
            try:
                was_here = self._server.loaded(request.topic_id, number) is not None
                hosted = self._server.find(request.topic_id, number)
                with deciding_until(deadline):
                    await hosted.catch_up()
                groups = await self._groups(hosted, limit)
                results.append(PartitionHotKeys(number, groups=groups))
                if not was_here:
                    self._server.unload_soon(hosted)
            except UnknownQueueError:
                raise
            except BrokerError as error:
                results.append(PartitionHotKeys(number, error=error.to_wire()))
        return HotKeysReply(results)

    async def _groups(self, hosted: HostedPartition, limit: int) -> list[HotGroup]:
        found = [(size, await self._key(hosted, size)) for size in await _sizes(hosted, limit)]
        return [
            HotGroup(key[:KEY_BYTES_MAX], len(key), size.message_count, size.not_visible_count)
            for size, key in found
            if key is not None  # A message without a key is a group of one.
        ]

    async def _key(self, hosted: HostedPartition, size: GroupSize) -> bytes | None:
        with suppress(CorruptRecordError):
            return await self._server.search.key_at(hosted.records.partition(), size.offset)
        return None


async def _sizes(hosted: HostedPartition, limit: int) -> list[GroupSize]:
    order = hosted.core.state.order
    assert order is not None, "the partition is loaded"
    steps = order.largest_groups(limit)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            sizes: list[GroupSize] = stop.value
            return sizes
        await trio.lowlevel.checkpoint()
