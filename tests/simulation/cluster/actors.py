"""Actors of a run besides the clients that every cluster has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, final

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.clients import Clients
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.machines import Machines
from tests.simulation.cluster.return_faults import Injector
from tests.simulation.machine.world import World


@final
@dataclass(frozen=True, slots=True)
class Host:
    """The run that they are actors of."""

    world: World
    machines: Machines
    cluster_history: ClusterHistory
    sometimes: Sometimes


class Actors(Protocol):
    """They start when the cluster stands, and stop last.

    Each call may object, by `ViolationError`.
    """

    @property
    def objections(self) -> Mapping[str, ViolationError]:
        """The first objection of each of their checkers, if the run was to go on."""
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

    def faults(self, injector: Injector) -> Mapping[str, Callable[[Fault], None]]:
        """Return, by kind, what else may go wrong because of them, by means of `injector`."""
        ...

    async def finish(self) -> None:
        """Come to an end: nothing is wrong any more, and the other clients are gone."""
        ...

    async def look(self) -> None:
        """See what is there when the power of all machines was cut a last time."""
        ...


CreateActors = Callable[[Host], Actors]
