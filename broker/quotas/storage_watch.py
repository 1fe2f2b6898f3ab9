"""Stored bytes of principals: counts what this broker leads, and refuses appends beyond a quota.

Shell: looks at the partitions every few seconds, only while a principal has such a quota.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

import trio

from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.quotas.broker_quotas import BrokerQuotas
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.security.quota_limits import over_count, quotas_of
from tidelog.wire.config.quotas import (
    STORAGE,
)

_INTERVAL_S: Final = 2.0
_AT_ONCE: Final = 500
"""Partitions that are counted before other tasks run."""


@final
class StorageWatch:
    """Counts bytes of topics by their owner."""

    def __init__(
        self,
        quotas: BrokerQuotas,
        partitions: ReplicaManager,
        state: Callable[[], ClusterState],
    ) -> None:
        """Count `partitions` that this broker leads, by the owners in the metadata."""
        self._quotas = quotas
        self._partitions = partitions
        self._state = state
        self._is_counting = False

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            await trio.sleep(_INTERVAL_S)
            quotas = self._state().security.quotas
            has_quota = any(STORAGE in each.values for each in quotas.values())
            if has_quota or self._is_counting:
                await self._count()
                self._is_counting = has_quota

    async def _count(self) -> None:
        stored: dict[str, int] = {}
        for place, (key, idle) in enumerate(list(self._partitions.idle.items())):
            if place % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            topic = self._state().catalog.topic_by_id(key[0])
            if topic is not None and not (topic.is_internal or topic.is_audit):
                stored[topic.owner] = stored.get(topic.owner, 0) + idle.size_bytes
        for place, partition in enumerate(self._partitions.all()):
            if place % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            state = self._state()
            topic = state.catalog.topic_by_id(partition.topic_id)
            if topic is None or topic.is_internal or topic.is_audit:
                continue
            limit = quotas_of(state.security.quotas, topic.owner).get(STORAGE)
            if limit is None:
                partition.storage_refusal = None
                continue
            if partition.leader is not None:
                size_bytes = partition.log.size_bytes
                stored[topic.owner] = stored.get(topic.owner, 0) + size_bytes
            account = self._quotas.account_of(topic.owner)
            partition.storage_refusal = None
            if account.is_over_storage:
                partition.storage_refusal = partial(
                    over_count,
                    STORAGE,
                    principal=topic.owner,
                    limit=limit,
                    used=account.stored_bytes,
                )
        self._quotas.stored_bytes = stored
