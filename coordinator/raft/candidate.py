"""The election timeout, and the state of a candidate.

Pure: no clock; time comes as ticks, and randomness from the caller.
"""

from collections.abc import Iterable
from typing import Protocol, final

from tidelog.coordinator.raft.membership import Identity, Membership


class Random(Protocol):
    """The part of `random.Random` that elections need."""

    def randrange(self, stop: int, /) -> int:
        """Return one of 0, 1, ... `stop` - 1."""
        ...


@final
class ElectionTimer:
    """Ticks since the last sign of a leader, and how many of them are too many.

    The limit is drawn anew each time, between `election_ticks` and twice as many, so that nodes
    rarely stand at the same time, and not again and again.
    """

    def __init__(self, election_ticks: int, random: Random) -> None:
        """Begin to wait."""
        self._election_ticks = election_ticks
        self._random = random
        self.elapsed_ticks = 0
        """Since the last reset."""
        self._timeout_ticks = 0
        self.reset()

    @property
    def is_within_minimum(self) -> bool:
        """Nobody can have timed out yet that was reset at the same time."""
        return self.elapsed_ticks < self._election_ticks

    def reset(self) -> None:
        """Begin to wait anew."""
        self.elapsed_ticks = 0
        self._timeout_ticks = self._election_ticks + self._random.randrange(self._election_ticks)

    def tick(self) -> bool:
        """Let a tick pass; return whether the wait is over."""
        self.elapsed_ticks += 1
        return self.elapsed_ticks >= self._timeout_ticks


@final
class Candidate:
    """The votes, or pre-votes, that one campaign has received so far."""

    def __init__(self) -> None:
        """Begin with no answers."""
        self._granted: dict[Identity, None] = {}

    @property
    def granted(self) -> Iterable[Identity]:
        """Who has said yes."""
        return self._granted.keys()

    def record(self, voter: Identity, *, is_granted: bool) -> None:
        """Take note of an answer; a no changes nothing, for a yes is a promise."""
        if is_granted:
            self._granted[voter] = None

    def is_won(self, membership: Membership) -> bool:
        """Return whether a majority of the voters has said yes."""
        return membership.is_majority(self._granted)
