"""The return of leaderships to the preferred leaders, a few at a time.

Pure: no clock, no I/O. Times are monotonic milliseconds. When a broker comes back, other brokers
have its leaderships. Each move stops the writes of a partition for a moment, so the moves are
spread
over time.
"""

from typing import final

from tidelog.coordinator.metadata.commands import ElectLeaders
from tidelog.coordinator.metadata.state import ClusterState

MOVES_MAX = 100
INTERVAL_MS = 5_000


@final
class PreferredLeaders:
    """The time of the last moves of leaderships.

    Invariant: at most `moves_max` moves in any `interval_ms`.
    """

    def __init__(
        self, *, now_ms: int, moves_max: int = MOVES_MAX, interval_ms: int = INTERVAL_MS
    ) -> None:
        """Start with a full interval: the previous controller may just have moved leaderships."""
        self._moves_max = moves_max
        self._interval_ms = interval_ms
        self._next_at_ms = now_ms + interval_ms

    def next_deadline_ms(self, state: ClusterState) -> int | None:
        """Return when to call `due` again; `None` if every preferred replica leads."""
        return self._next_at_ms if state.index.not_preferred else None

    def due(self, state: ClusterState, *, now_ms: int) -> ElectLeaders | None:
        """Return the leaderships to move now, if any.

        The targets are in the ISR and not shutting down, so a move loses nothing and lasts.
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
    """Return whether the preferred replica of a partition can lead it now.

    A journal's leader must be in the ISR of the source partition, or its queue would wait for the
    messages.
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
