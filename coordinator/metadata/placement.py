"""The placement of replicas: which brokers get the replicas of new partitions, and more replicas.

Pure: no clock, no I/O, no randomness: equal arguments give equal results.

Replicas are placed one at a time, each on the broker with the lowest load by these criteria:

- a leader: preferred leaderships, then replicas;
- a follower: replicas of this partition in the same rack, then replicas in all, then times as the
  successor behind the same leader;
- the successor, which leads when the leader fails: the follower that was successor behind the same
  leader least often, so that the load of a failed broker is spread over many.

Ties are broken by turns, so brokers with equal loads follow each other. Fenced brokers are used
only if there are not enough live ones, and never as the leader.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from tidelog.coordinator.metadata.topic_config import REPLICATION_FACTOR_MAX
from tidelog.wire.errors import InvalidTopicError, LeaderNotAvailableError


@dataclass(frozen=True, slots=True)
class PlacementCandidate:
    """A broker that may get replicas."""

    node_id: int
    rack: str
    """The failure domain; empty for a domain of its own."""
    is_live: bool = True
    replica_count: int = 0
    """Replicas that the broker has already."""
    preferred_count: int = 0
    """Partitions that have the broker as their first replica."""
    can_take: bool = True
    """Whether more replicas may be placed on the broker."""


class _Place:
    """A candidate with its load so far."""

    __slots__ = (
        "can_take",
        "domain",
        "is_live",
        "next_behind",
        "node_id",
        "preferred",
        "replicas",
        "turn",
    )

    def __init__(self, candidate: PlacementCandidate, turn: int) -> None:
        self.node_id = candidate.node_id
        self.domain = candidate.rack or f"node {candidate.node_id}"
        self.is_live = candidate.is_live
        self.can_take = candidate.can_take
        self.preferred = candidate.preferred_count
        self.replicas = candidate.replica_count
        self.next_behind: dict[int, int] = {}
        self.turn = turn


@final
class ReplicaPlacer:
    """Places replicas, or removes them, and counts the load that results."""

    def __init__(self, candidates: Iterable[PlacementCandidate]) -> None:
        """Start with the present load of all candidates."""
        ordered = sorted(candidates, key=lambda candidate: candidate.node_id)
        self._places = {
            candidate.node_id: _Place(candidate, turn) for turn, candidate in enumerate(ordered)
        }

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of a new partition, the preferred leader first."""
        leader = min(
            (place for place in self._places.values() if place.is_live),
            key=lambda place: (place.preferred, place.replicas, place.turn),
        )
        chosen = [leader, *self._followers([leader], replication_factor - 1)]
        leader.preferred += 1
        self._count(chosen, weight=1)
        return tuple(place.node_id for place in chosen)

    def add(
        self, replicas: Sequence[int], replication_factor: int, *, weight: int
    ) -> tuple[int, ...]:
        """Return the replicas of a partition and new ones behind them.

        Args:
            replicas: The present replicas; they stay as they are.
            replication_factor: Replicas afterwards; there are enough brokers for them.
            weight: Replicas that come with each of them, itself included.
        """
        present = [self._places[node_id] for node_id in replicas]
        added = self._followers(present, replication_factor - len(present))
        self._count(added, weight=weight)
        return (*replicas, *(place.node_id for place in added))

    def remove(
        self,
        replicas: Sequence[int],
        replication_factor: int,
        *,
        reluctance: Callable[[int], tuple[int, ...]],
        weight: int,
    ) -> tuple[int, ...]:
        """Return the replicas of a partition without some of them.

        Replicas with the lowest reluctance go first. Of those, one in the rack with most replicas
        of the partition goes, and then one on the broker with the highest load.

        Args:
            replicas: The present replicas.
            replication_factor: Replicas afterwards, at least one.
            reluctance: The reluctance to remove the replica on a broker.
            weight: Replicas that go with each of them, itself included.
        """
        left = [self._places[node_id] for node_id in replicas]
        while len(left) > replication_factor:
            domains = Counter(place.domain for place in left)
            # Of equals the last one goes: the first one is the preferred leader.
            gone = min(
                reversed(left),
                key=lambda place: (
                    reluctance(place.node_id),
                    -domains[place.domain],
                    -place.replicas,
                ),
            )
            left.remove(gone)
            gone.replicas -= weight
        return tuple(place.node_id for place in left)

    def _followers(self, present: Sequence[_Place], count: int) -> list[_Place]:
        """Return the brokers of more replicas, the successor first if there is none yet."""
        leader = present[0]
        added: list[_Place] = []
        rest = [place for place in self._places.values() if place.can_take and place not in present]
        domains = Counter(place.domain for place in present)

        def next_behind(place: _Place) -> int:
            return place.next_behind.get(leader.node_id, 0)

        def cost(place: _Place) -> tuple[bool, int, int, int, int]:
            same = domains[place.domain]
            return (not place.is_live, same, place.replicas, next_behind(place), place.turn)

        for _ in range(count):
            place = min(rest, key=cost)
            rest.remove(place)
            added.append(place)
            domains[place.domain] += 1
        added.sort(key=lambda place: (not place.is_live, next_behind(place)))
        if len(present) == 1:
            for successor in added[:1]:
                successor.next_behind[leader.node_id] = next_behind(successor) + 1
        return added

    def _count(self, chosen: Iterable[_Place], *, weight: int) -> None:
        for place in chosen:
            place.replicas += weight
            place.turn += len(self._places)


def place_replicas(
    candidates: Sequence[PlacementCandidate], *, partition_count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, the preferred leader first.

    Raises:
        InvalidTopicError: There are fewer brokers than replicas.
        LeaderNotAvailableError: No broker is alive.
    """
    if not 1 <= replication_factor <= len(candidates):
        raise InvalidTopicError(
            f"{replication_factor} replicas are not possible: there are {len(candidates)} brokers"
        )
    live = [candidate for candidate in candidates if candidate.is_live]
    if not live:
        raise LeaderNotAvailableError("no live broker can lead a partition")
    placer = ReplicaPlacer(live if len(live) >= replication_factor else candidates)
    return [placer.place(replication_factor) for _ in range(partition_count)]


def check_assignment(
    assignment: Sequence[Sequence[int]], partition_count: int, is_live: Mapping[int, bool]
) -> None:
    """Check a manual assignment of all partitions of a topic.

    Args:
        assignment: Node ids of each partition.
        partition_count: The number of partitions of the topic.
        is_live: Whether a broker can lead, for each registered broker.

    Raises:
        InvalidTopicError: The assignment is invalid; the text names the partition and the reason.
    """
    if len(assignment) != partition_count:
        raise InvalidTopicError(
            f"replicas are given for {len(assignment)} partitions, there are to be"
            f" {partition_count}"
        )
    for number, replicas in enumerate(assignment):
        check_replicas(number, replicas, is_live)
        if len(replicas) != len(assignment[0]):
            raise InvalidTopicError(
                f"partition {number} has {len(replicas)} replicas and partition 0 has"
                f" {len(assignment[0])}; all partitions of a topic must have as many"
            )
        if not any(is_live[node_id] for node_id in replicas):
            raise InvalidTopicError(
                f"partition {number} would have no leader: none of its replicas is alive, brokers"
                f" {_listed(replicas)}"
            )


def check_replicas(number: int, replicas: Sequence[int], known: Mapping[int, object]) -> None:
    """Check a manual assignment of one partition.

    Raises:
        InvalidTopicError: The assignment is invalid; the text says why.
    """
    if not replicas:
        raise InvalidTopicError(f"partition {number} must have at least one replica")
    if len(replicas) > REPLICATION_FACTOR_MAX:
        raise InvalidTopicError(
            f"{len(replicas)} replicas are too many, {REPLICATION_FACTOR_MAX} are the most"
        )
    if len(set(replicas)) != len(replicas):
        raise InvalidTopicError(
            f"partition {number} has two replicas on one broker: {_listed(replicas)}"
        )
    for node_id in replicas:
        if node_id not in known:
            raise InvalidTopicError(
                f"partition {number} cannot have a replica on broker {node_id}: there are brokers"
                f" {_listed(sorted(known))}"
            )


def check_not_drained(node_ids: Iterable[int], drained: Collection[int]) -> None:
    """Check that brokers may get replicas.

    Raises:
        InvalidTopicError: One of the brokers is drained.
    """
    for node_id in node_ids:
        if node_id in drained:
            raise InvalidTopicError(
                f"broker {node_id} is drained and gets no replicas; end the draining with"
                f" `tidelog broker drain {node_id} --cancel`"
            )


def _listed(node_ids: Sequence[int]) -> str:
    return ", ".join(str(node_id) for node_id in node_ids) or "none"
