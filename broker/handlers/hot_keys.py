"""Handler of HOT_KEYS for topics: traffic and hot keys of partitions that this broker leads."""

from typing import Final, final

import trio

from tidelog.broker.hot.hot_traffic import HotTraffic
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.hot_keys import (
    HOT_KEYS_MAX,
    HotKeysReply,
    HotKeysRequest,
    PartitionHotKeys,
)

_PARTITIONS_AT_ONCE: Final = 20
"""Partitions that are described before other tasks run."""


@final
class HotKeysHandler:
    """Describes partitions."""

    def __init__(self, partitions: ReplicaManager, hot_traffic: HotTraffic) -> None:
        """Describe `partitions` by their traffic."""
        self._partitions = partitions
        self._hot_traffic = hot_traffic

    async def answer(self, request: HotKeysRequest) -> HotKeysReply:
        """Return the partitions in order; each may have an error of its own."""
        limit = min(max(request.limit, 0), HOT_KEYS_MAX)
        results: list[PartitionHotKeys] = []
        for count, number in enumerate(request.partitions):
            if count % _PARTITIONS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            try:
                partition = self._partitions.find(request.topic_id, number)
                results.append(self._hot_traffic.describe(partition, limit))
            except BrokerError as error:
                results.append(PartitionHotKeys(number, error=error.to_wire()))
        return HotKeysReply(results)
