"""Space-saving: the most frequent keys of a stream, with a fixed number of counters.

Pure: no clock, no I/O. By Metwally, Agrawal and El Abbadi (2005), merged in whole batches as in
"Mergeable Summaries" (Agarwal et al., 2012). Weights are any positive numbers, and all counters can
be scaled down, so that old records lose weight.
"""

from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar, final

CAPACITY: Final = 64
"""Counters: each key above a sixty-fourth of the stream has one."""

Key = TypeVar("Key", bound=Hashable)
_by_count = itemgetter(1)


class CountedKey(NamedTuple, Generic[Key]):
    """A key and the bounds of its weight in the stream."""

    key: Key
    weight: float
    """Upper bound of the weight of the key in the stream."""
    error: float
    """Maximum by which `weight` is too high."""


@final
class SpaceSaving(Generic[Key]):
    """Counters of the heaviest keys.

    Invariant: the counters add up to the weight of the stream at most, and none is below `floor`.
    So no more than a capacity-th of the stream is missing from any count, or too much in it.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Begin with an empty stream."""
        assert capacity > 0
        self._capacity = capacity
        self._counts: dict[Key, float] = {}
        self._errors: dict[Key, float] = {}
        self.floor = 0.0
        """Maximum weight of a key without a counter."""

    def add(self, counts: Mapping[Key, int], weight: float = 1.0) -> None:
        """Add a batch, whose keys occur so often; each occurrence weighs `weight`."""
        known, floor = self._counts, self.floor
        fresh = [(key, count) for key, count in counts.items() if key not in known]
        if len(fresh) < len(counts):
            for key in counts.keys() & known.keys():
                known[key] += counts[key] * weight
        if not fresh:
            return
        capacity = self._capacity
        if len(fresh) > capacity:
            # The others are below all of these: only the heaviest of them raises the floor.
            fresh = sorted(fresh, key=_by_count, reverse=True)[: capacity + 1]
        for key, count in fresh:
            known[key] = floor + count * weight
            self._errors[key] = floor
        if len(known) > capacity:
            ranking = sorted(known.items(), key=_by_count, reverse=True)
            self.floor = max(floor, ranking[capacity][1])
            errors = self._errors
            for key, _ in ranking[capacity:]:
                del known[key], errors[key]

    def scale(self, factor: float) -> None:
        """Multiply the weight of the whole stream so far."""
        self._counts = {key: count * factor for key, count in self._counts.items()}
        self._errors = {key: error * factor for key, error in self._errors.items()}
        self.floor *= factor

    def top(self, limit: int) -> list[CountedKey[Key]]:
        """Return the keys with the largest counts, the largest first."""
        found = sorted(self._counts.items(), key=_by_count, reverse=True)[:limit]
        return [CountedKey(key, count, self._errors[key]) for key, count in found]
