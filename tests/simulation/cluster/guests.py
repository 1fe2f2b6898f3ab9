"""Whoever lives with a cluster besides its own clients, in lives of another kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, final

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.book import ViolationError
from tests.simulation.cluster.clients import Clients
from tests.simulation.cluster.machines import Machines
from tests.simulation.cluster.minutes import Minutes
from tests.simulation.cluster.return_faults import Attacker
from tests.simulation.machine.world import World


@final
@dataclass(frozen=True, slots=True)
class Host:
    """The life that they are guests of."""

    world: World
    machines: Machines
    minutes: Minutes
    sometimes: Sometimes


class Guests(Protocol):
    """They come when the cluster stands, and go last.

    Each call may object, by `ViolationError`.
    """

    @property
    def objections(self) -> Mapping[str, ViolationError]:
        """The first objection of each of their checkers, if the life was to go on."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """What there is to count, by name."""
        ...

    async def prepare(self) -> None:
        """Do what has to be done before anything goes wrong."""
        ...

    def begin(self, clients: Clients) -> None:
        """Come, among the other clients."""
        ...

    def faults(self, attacker: Attacker) -> Mapping[str, Callable[[Fault], None]]:
        """Return, by kind, what else may go wrong because of them, by means of `attacker`."""
        ...

    async def finish(self) -> None:
        """Come to an end: nothing is wrong any more, and the other clients are gone."""
        ...

    async def look(self) -> None:
        """See what is there when the power of all machines was cut a last time."""
        ...


Invite = Callable[[Host], Guests]
