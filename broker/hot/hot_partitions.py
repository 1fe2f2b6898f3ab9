"""Decision which partitions are hot: far more traffic than the others of their topic.

Pure: no clock, no I/O; times are seconds of a monotonic clock.
"""

from collections.abc import Collection, Hashable, Sequence
from statistics import median
from typing import Final, Generic, NamedTuple, TypeVar, final

MEDIANS: Final = 3.0
"""A hot partition has more than so many times the median of the other partitions of its topic,"""
BROKER_SHARE: Final = 0.1
"""and more than this share of the traffic of its broker,"""
BYTES_PER_S_MIN: Final = 64 << 10
"""and at least so much traffic: less burdens no broker,"""
LASTING_S: Final = 60.0
"""for so long. It cools when one of these has not been so for as long."""

Place = TypeVar("Place", bound=Hashable)


def burdens_broker(bytes_per_s: float, broker_bytes_per_s: float) -> bool:
    """Return whether a partition has enough traffic to be hot; at most nine of a broker have."""
    least = max(BYTES_PER_S_MIN, BROKER_SHARE * broker_bytes_per_s)
    return bytes_per_s > least


def is_skewed(bytes_per_s: float, others: Sequence[float]) -> bool:
    """Return whether a partition has far more traffic than the other partitions of its topic.

    The partition itself is not in the median, so that one of two partitions can be hot. A topic of
    one partition has no skew: more partitions help it, and better keys do not.
    """
    return bool(others) and bytes_per_s > MEDIANS * median(others)


class HotChanges(NamedTuple, Generic[Place]):
    """Partitions that became hot or cooled."""

    hot: list[Place]
    cooled: list[Place]


@final
class HotPartitions(Generic[Place]):
    """The hot partitions of a broker."""

    def __init__(self) -> None:
        """Begin without any."""
        self.hot: dict[Place, None] = {}
        self._changing_since: dict[Place, float] = {}
        """Partitions that are to become hot, or to cool, and since when."""

    def update(self, exceeding: Collection[Place], now: float) -> HotChanges[Place]:
        """Decide with the partitions that exceed the limits now."""
        changing = [place for place in exceeding if place not in self.hot]
        changing += [place for place in self.hot if place not in exceeding]
        since = self._changing_since
        since = self._changing_since = {place: since.get(place, now) for place in changing}
        due = [place for place, start in since.items() if now - start >= LASTING_S]
        changes = HotChanges[Place]([], [])
        for place in due:
            del since[place]
            (changes.cooled if place in self.hot else changes.hot).append(place)
        for place in changes.cooled:
            del self.hot[place]
        self.hot.update(dict.fromkeys(changes.hot))
        return changes

    def remove(self, place: Place) -> bool:
        """Remove a partition that this broker leads no more; return whether it was hot."""
        self._changing_since.pop(place, None)
        was_hot = place in self.hot
        self.hot.pop(place, None)
        return was_hot
