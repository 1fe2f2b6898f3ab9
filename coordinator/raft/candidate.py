"""The election timeout, and the state of a candidate.

Pure: no clock; time comes as ticks, and randomness from the caller.
"""

from collections.abc import Iterable
from typing import Final, Protocol, final

from tidelog.coordinator.raft.membership import Identity, Membership

_SOON_COUNT: Final = 2
"""Campaigns in a row that are repeated sooner."""


class Random(Protocol):
    """The part of `random.Random` that elections need."""

    def randrange(self, stop: int, /) -> int:
        """Return one of 0, 1, ... `stop` - 1."""
        ...


@final
class ElectionTimer:
    """Ticks since the last sign of a leader, and their limit.

    The limit is drawn again at each reset, between `election_ticks` and twice as many. So nodes
    rarely campaign at the same time, and not again and again. The first campaign after a leader is
    repeated sooner: other nodes may have heard the leader a moment later and refuse a pre-vote, or
    campaign as well. Later ones wait as long as usual, for disks and networks may be slow.
    """

    def __init__(self, election_ticks: int, random: Random) -> None:
        """Start to wait."""
        self._election_ticks = election_ticks
        self._random = random
        self.elapsed_ticks = 0
        """Ticks since the last reset."""
        self._timeout_ticks = 0
        self._campaign_count = 0
        """Campaigns since the last sign of a leader."""
        self.reset()

    @property
    def is_within_minimum(self) -> bool:
        """Whether no node that was reset at the same time can have timed out yet."""
        return self.elapsed_ticks < self._election_ticks

    def reset(self) -> None:
        """Start to wait again."""
        self.elapsed_ticks = 0
        self._timeout_ticks = self._election_ticks + self._random.randrange(self._election_ticks)

    def heard_leader(self) -> None:
        """Start to wait again, after a sign of a leader."""
        self._campaign_count = 0
        self.reset()

    def begin_pre_campaign(self) -> None:
        """Start to wait for pre-votes, which need no disk."""
        self._campaign_count += 1
        self._wait_for_answers(self._election_ticks // 4)

    def begin_campaign(self) -> None:
        """Start to wait for votes."""
        self._wait_for_answers(self._election_ticks // 2)

    def _wait_for_answers(self, ticks: int) -> None:
        self.reset()
        if self._campaign_count <= _SOON_COUNT and ticks:
            self._timeout_ticks = ticks + self._random.randrange(ticks)

    def tick(self) -> bool:
        """Count a tick; return whether the timeout has passed."""
        self.elapsed_ticks += 1
        return self.elapsed_ticks >= self._timeout_ticks


@final
class Candidate:
    """The votes, or pre-votes, that one campaign has received so far."""

    def __init__(self) -> None:
        """Start without answers."""
        self._granted: dict[Identity, None] = {}

    @property
    def granted(self) -> Iterable[Identity]:
        """The voters that granted their vote."""
        return self._granted.keys()

    def record(self, voter: Identity, *, is_granted: bool) -> None:
        """Record an answer; a refusal changes nothing, for a granted vote is a promise."""
        if is_granted:
            self._granted[voter] = None

    def is_won(self, membership: Membership) -> bool:
        """Return whether a majority of the voters has granted its vote."""
        return membership.is_majority(self._granted)
