"""Horizon: the highest row id below which no row can appear any more.

Pure: no clock, no I/O. Ids are given at the insert and rows appear at the commit, so a row with a
lower id may appear later than one with a higher id. A relay that remembers the highest id it has
seen would lose the first. Postponing all rows until no transaction runs would stop it for ever.

A writer is a transaction that holds the lock of an insert into the table, from before it gets its
first id until after its rows are visible. An observation reads first the last id that was given,
then the writers. So a writer that is missing then has no id up to that last id that could still
appear; and a writer that was missing in the previous observation has only ids above the previous
last id. A prepared transaction was a writer of another name before, so it has the lowest bound of
those that ended meanwhile. The lowest of these bounds is the horizon. Long transactions that do not
write to the table do not matter, unlike with the ids of transactions (`pg_snapshot_xmin`).
"""

from dataclasses import dataclass
from typing import NamedTuple, final


class Writer(NamedTuple):
    """An open transaction that has written to the table."""

    transaction: str
    """Identity of the transaction, never used again while the connection of the relay lives."""
    pid: int | None
    """Process of its session; `None` for a prepared transaction."""


class Observation(NamedTuple):
    """What the relay sees of the table at one time."""

    last_id: int
    """The last id that was given to any row, read before the writers."""
    writers: frozenset[Writer]


@dataclass(slots=True)
class _Bound:
    above_id: int
    """All ids of the writer are higher."""
    since_s: float


@final
class Horizon:
    """The highest id whose row, and all rows below it, are visible or will never be."""

    def __init__(self, settled_id: int) -> None:
        """Start at a row id that was settled before."""
        self.settled_id = settled_id
        self._last_id = settled_id
        self._bounds: dict[Writer, _Bound] = {}

    def observe(self, observed: Observation, now_s: float) -> int:
        """Add an observation; return the horizon.

        Rows up to it must be read after the observation.
        """
        new = observed.writers - self._bounds.keys()
        ended = [self._bounds.pop(each) for each in self._bounds.keys() - observed.writers]
        lowest_ended = min((bound.above_id for bound in ended), default=self._last_id)
        for writer in new:
            above_id = self._last_id if writer.pid is not None else lowest_ended
            self._bounds[writer] = _Bound(above_id, now_s)
        self._last_id = max(self._last_id, observed.last_id)
        bounds = (each.above_id for each in self._bounds.values())
        self.settled_id = max(self.settled_id, min(bounds, default=self._last_id))
        return self.settled_id

    def holding_back(self, now_s: float, *, longer_than_s: float) -> Writer | None:
        """Return the writer that has held rows back for longest, if for so long."""
        held = [
            (bound.since_s, writer)
            for writer, bound in self._bounds.items()
            if bound.above_id <= self.settled_id < self._last_id
            and now_s - bound.since_s >= longer_than_s
        ]
        return min(held, key=_since)[1] if held else None


def _since(held: tuple[float, Writer]) -> float:
    return held[0]
