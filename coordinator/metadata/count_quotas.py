"""Quotas of counts: partitions and queues of a principal, checked where they are created.

Pure: no clock, no I/O. The state machine decides, so that concurrent requests at several brokers
cannot exceed a quota.
"""

from tidelog.coordinator.metadata.catalog import TopicOwned
from tidelog.coordinator.metadata.features import record_level
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.security.quota_limits import over_count, quotas_of
from tidelog.wire.config.quotas import (
    PARTITIONS,
    QUEUES,
)
from tidelog.wire.security.principal import ANONYMOUS


def check_counts(state: ClusterState, owner: str, *, partitions: int, queues: int = 0) -> None:
    """Check that a principal may own so many partitions and queues more.

    Raises:
        QuotaExceededError: A quota of the principal is too low.
    """
    quotas = quotas_of(state.security.quotas, owner) if owner else {}
    limits = {name: quotas[name] for name in (PARTITIONS, QUEUES) if name in quotas}
    if not limits:
        return
    used = state.catalog.owned(owner)
    wanted = {PARTITIONS: (used.partitions, partitions), QUEUES: (used.queues, queues)}
    for name, limit in limits.items():
        before, added = wanted[name]
        if added and before + added > limit:
            raise over_count(name, principal=owner, limit=limit, used=before)


def owned(state: ClusterState, topic_id: bytes, owner: str) -> list[TopicOwned]:
    """Return the record of the owner of a new topic or queue; none for anonymous clients.

    A cluster of a lower feature level cannot keep owners; its topics belong to anonymous clients.
    """
    record = TopicOwned(topic_id, owner)
    if owner in ("", ANONYMOUS.kind) or record_level(record) > state.feature_level:
        return []
    return [record]
