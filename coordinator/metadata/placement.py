"""The placement of replicas: which brokers get the replicas of new partitions.

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

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

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


class _Place:
    """A candidate with its load so far."""

    __slots__ = ("domain", "is_live", "next_behind", "node_id", "preferred", "replicas", "turn")

    def __init__(self, candidate: PlacementCandidate, turn: int) -> None:
        self.node_id = candidate.node_id
        self.domain = candidate.rack or f"node {candidate.node_id}"
        self.is_live = candidate.is_live
        self.preferred = candidate.preferred_count
        self.replicas = candidate.replica_count
        self.next_behind: dict[int, int] = {}
        self.turn = turn


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
    candidates = sorted(candidates, key=lambda candidate: candidate.node_id)
    live = [candidate for candidate in candidates if candidate.is_live]
    if not live:
        raise LeaderNotAvailableError("no live broker can lead a partition")
    usable = live if len(live) >= replication_factor else candidates
    places = [_Place(candidate, turn) for turn, candidate in enumerate(usable)]
    assignments: list[tuple[int, ...]] = []
    for _ in range(partition_count):
        leader = min(
            (place for place in places if place.is_live),
            key=lambda place: (place.preferred, place.replicas, place.turn),
        )
        chosen = _followers(leader, places, replication_factor)
        leader.preferred += 1
        for place in chosen:
            place.replicas += 1
            place.turn += len(places)
        assignments.append(tuple(place.node_id for place in chosen))
    return assignments


def _followers(leader: _Place, places: list[_Place], replication_factor: int) -> list[_Place]:
    chosen = [leader]
    rest = [place for place in places if place is not leader]
    domains: dict[str, int] = {leader.domain: 1}

    def cost(place: _Place) -> tuple[bool, int, int, int, int]:
        same = domains.get(place.domain, 0)
        next_behind = place.next_behind.get(leader.node_id, 0)
        return (not place.is_live, same, place.replicas, next_behind, place.turn)

    while len(chosen) < replication_factor:
        place = min(rest, key=cost)
        rest.remove(place)
        chosen.append(place)
        domains[place.domain] = domains.get(place.domain, 0) + 1
    others = sorted(
        chosen[1:],
        key=lambda place: (not place.is_live, place.next_behind.get(leader.node_id, 0)),
    )
    for replacement in others[:1]:
        replacement.next_behind[leader.node_id] = replacement.next_behind.get(leader.node_id, 0) + 1
    return [leader, *others]


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
