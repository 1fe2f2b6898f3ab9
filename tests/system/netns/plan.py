"""Schedule of faults, from a seed.

Pure. A fault names the role of its victim, which is looked up when the fault happens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from tests.system.netns.network import CLIENTS

_GAP_MEAN_S: Final = 1.5
_SHORTEST_S: Final = 0.3
LONGEST_S: Final = 15.0
"""Longest fault in seconds; longer than a broker's session, so that brokers are fenced."""
_CALM_S: Final = 2.0
_IS_FOLLOWED_BY_CALM: Final = 0.25


class FaultKind(Enum):
    """Kinds of faults."""

    KILL = "SIGKILL"
    PAUSE = "SIGSTOP"
    CUT = "cut off"
    CUT_FROM_HIM = "cut off, what it sends"
    CUT_TO_HIM = "cut off, what it gets"


class Victim(Enum):
    """Victims of faults."""

    LEADER = "leader"
    """Leader of a random partition."""
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    MINORITY = "minority"
    """Random brokers, as many as the cluster can lose."""
    MAJORITY = "majority"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, which is healed after a while."""

    after_s: float
    """Seconds since the fault before."""
    duration_s: float
    kind: FaultKind
    victim: Victim
    partition: int
    """Partition whose leader or follower is hit: a number modulo the partition count."""
    is_hidden_from_clients: bool
    """Whether a cut affects clients too."""
    order: tuple[int, ...]
    """All brokers, in the order in which victims are chosen."""
    waits: bool
    """Whether all faults must be healed before the next one."""

    @property
    def name(self) -> str:
        """Name of kind and victim."""
        return f"{self.kind.value} of {self.victim.value}"


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles of brokers, as far as known."""

    leaders: tuple[int, ...] = ()
    """Leaders of the partitions."""
    controller: int | None = None


def faults(
    random: Random, node_ids: Sequence[int], *, longest_s: float = LONGEST_S
) -> Iterator[Fault]:
    """Return faults without end. Each pair of kind and victim comes before any repeats."""
    pairs: list[tuple[FaultKind, Victim]] = []
    waits = False
    while True:
        if not pairs:
            pairs = [(kind, victim) for kind in FaultKind for victim in Victim]
            random.shuffle(pairs)
        calm_s, waits = (_CALM_S if waits else 0.0), random.random() < _IS_FOLLOWED_BY_CALM
        kind, victim = pairs.pop()
        yield Fault(
            after_s=calm_s + random.expovariate(1 / _GAP_MEAN_S),
            duration_s=_SHORTEST_S * (longest_s / _SHORTEST_S) ** random.random(),
            kind=kind,
            victim=victim,
            partition=random.randrange(1 << 16),
            is_hidden_from_clients=random.random() < 0.5,
            order=tuple(random.sample(node_ids, len(node_ids))),
            waits=waits,
        )


def victims(fault: Fault, roles: Roles) -> list[int]:
    """Return the brokers that a fault is to hit."""
    majority = len(fault.order) // 2 + 1
    leader = roles.leaders[fault.partition % len(roles.leaders)] if roles.leaders else None
    match fault.victim:
        case Victim.LEADER:
            return [fault.order[0] if leader is None else leader]
        case Victim.FOLLOWER:
            return [next(each for each in fault.order if each != leader)]
        case Victim.CONTROLLER:
            return [fault.order[0] if roles.controller is None else roles.controller]
        case Victim.MINORITY:
            return list(fault.order[majority:])
        case Victim.MAJORITY:
            return list(fault.order[:majority])


def directions(fault: Fault, hit: Sequence[int]) -> list[tuple[int, int]]:
    """Return the directions that lose packets; members of a cut majority also lose each other."""
    hidden = (CLIENTS,) if fault.is_hidden_from_clients else ()
    lost: dict[tuple[int, int], None] = {}
    for one in hit:
        for other in (*hidden, *fault.order):
            is_apart = other not in hit or fault.victim is Victim.MAJORITY
            if other != one and is_apart:
                if fault.kind is not FaultKind.CUT_TO_HIM:
                    lost[one, other] = None
                if fault.kind is not FaultKind.CUT_FROM_HIM:
                    lost[other, one] = None
    return list(lost)
