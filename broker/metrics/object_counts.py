"""Counts of topics or queues, for a bounded number of them (Prometheus: bounded cardinality).

Pure: no clock, no I/O. An object has counts of its own from its first traffic on, until it was idle
for long. Beyond the maximum, objects share counts. These have only what happened while an object
had none of its own, so that no count ever falls.
"""

from collections.abc import Callable, Collection, Generator, Iterator
from typing import Generic, Protocol, TypeVar, final

OBJECTS_MAX = 1_000
"""Default maximum of objects of one kind with counts of their own."""
IDLE_S = 3_600.0
"""Time in seconds without traffic after which an object loses its counts."""
_AT_ONCE = 1_000


class Counts(Protocol):
    """The counts of one object."""

    @property
    def total(self) -> int:
        """A number that grows with each count."""
        ...


C = TypeVar("C", bound=Counts)


@final
class ObjectCounts(Generic[C]):
    """Counts by name."""

    def __init__(self, make: Callable[[], C], *, maximum: int = OBJECTS_MAX) -> None:
        """Start without objects."""
        self._make = make
        self._own: dict[str, C] = {}
        self._seen: dict[str, tuple[int, float]] = {}
        """Total of an object, and the time since which it has not grown."""
        self.maximum = maximum
        """Maximum of objects with counts of their own, without the pinned ones."""
        self.pinned: Collection[str] = ()
        """Names that always have counts of their own: their owners have set thresholds."""
        self.other = make()
        """Counts of all other objects together."""

    def __len__(self) -> int:
        """Return the number of objects with counts of their own."""
        return len(self._own)

    def __iter__(self) -> Iterator[tuple[str, C]]:
        """Yield the objects with counts of their own, in the order of their first traffic."""
        return iter(list(self._own.items()))

    def __contains__(self, name: str) -> bool:
        """Return whether an object has counts of its own."""
        return name in self._own

    def of(self, name: str) -> C:
        """Return the counts to which traffic of an object is added now; keep them for no later."""
        own = self._own.get(name)
        return self._admit(name) if own is None else own

    def has_own(self, name: str, is_filled: bool) -> bool:
        """Return whether an object has counts of its own, or gets them because it is not empty."""
        return name in self._own or (is_filled and self._admit(name) is not self.other)

    def _admit(self, name: str) -> C:
        if len(self._own) >= self.maximum and name not in self.pinned:
            return self.other
        counts = self._own[name] = self._make()
        return counts

    def forget_idle(
        self, *, now: float, exists: Callable[[str], bool], is_empty: Callable[[str], bool]
    ) -> Generator[None, None, None]:
        """Forget the counts of deleted objects, and of empty ones without traffic for an hour.

        `now` is in seconds. Yield after each step, which takes a millisecond or two.
        """
        for number, (name, counts) in enumerate(list(self._own.items())):
            if number % _AT_ONCE == 0:
                yield
            if not exists(name):
                del self._own[name]
                self._seen.pop(name, None)
                continue
            total, since = self._seen.get(name, (-1, now))
            if counts.total != total:
                self._seen[name] = (counts.total, now)
            elif now - since >= IDLE_S and name not in self.pinned and is_empty(name):
                del self._own[name], self._seen[name]
