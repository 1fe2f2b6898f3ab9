"""Leaderships go back to the preferred replicas, a few at a time.

Pure: no clock, no I/O. Times are monotonic milliseconds. After a broker comes back its leaderships
are elsewhere. Each move stops the writes of a partition for a moment, so they are spread over time.
"""

from typing import final

from tidelog.coordinator.metadata.commands import ElectLeaders
from tidelog.coordinator.metadata.state import ClusterState

MOVES_MAX = 100
INTERVAL_MS = 5_000


@final
class PreferredLeaders:
    """When leaderships were moved last.

    Invariant: at most `moves_max` moves in any `interval_ms`.
    """

    def __init__(
        self, *, now_ms: int, moves_max: int = MOVES_MAX, interval_ms: int = INTERVAL_MS
    ) -> None:
        """Begin to lead; the one before may have moved some a moment ago."""
        self._moves_max = moves_max
        self._interval_ms = interval_ms
        self._next_at_ms = now_ms + interval_ms

    def next_deadline_ms(self, state: ClusterState) -> int | None:
        """Return when to ask again; `None` when every partition is led by its preferred replica."""
        return self._next_at_ms if state.index.not_preferred else None

    def due(self, state: ClusterState, *, now_ms: int) -> ElectLeaders | None:
        """Return the leaderships to move now, if there are any.

        Only to replicas that are in sync and stay: moving to them loses nothing and lasts.
        """
        if now_ms < self._next_at_ms:
            return None
        self._next_at_ms = now_ms + self._interval_ms
        chosen: list[tuple[bytes, int]] = []
        for topic_id, number in state.index.not_preferred:
            if len(chosen) == self._moves_max:
                break
            if could_be_preferred(state, topic_id, number):
                chosen.append((topic_id, number))
        return ElectLeaders(chosen) if chosen else None


def could_be_preferred(state: ClusterState, topic_id: bytes, number: int) -> bool:
    """Return whether the preferred replica of a partition could lead it now.

    A journal is led where the messages are, or else its queue would wait for them.
    """
    topic, partition = state.catalog.topic_by_id(topic_id), state.partition(topic_id, number)
    assert topic is not None
    assert partition is not None
    first = partition.replicas[0]
    source = state.source_partition(topic, number)
    return (
        first in partition.in_sync_replicas
        and state.brokers[first].can_lead
        and (source is None or first in source.in_sync_replicas)
    )
