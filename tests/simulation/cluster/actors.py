"""Actors of a run, in addition to the clients of every cluster."""

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
    """The run of the actors."""

    world: World
    machines: Machines
    cluster_history: ClusterHistory
    sometimes: Sometimes


class Actors(Protocol):
    """Clients that start after the cluster has formed, and stop last.

    Each call may raise `ViolationError`.
    """

    @property
    def objections(self) -> Mapping[str, ViolationError]:
        """The first objection of each of their checkers, if the run continues after objections."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """Counters of the run's report, by name."""
        ...

    async def prepare(self) -> None:
        """Prepare the cluster before the faults begin."""
        ...

    def begin(self, clients: Clients) -> None:
        """Start the actors, among the other clients."""
        ...

    def faults(self, injector: Injector) -> Mapping[str, Callable[[Fault], None]]:
        """Return the actors' faults by kind; they strike by means of `injector`."""
        ...

    async def finish(self) -> None:
        """Stop the actors; no fault is active any more, and the other clients have ended."""
        ...

    async def look(self) -> None:
        """Check the state after the last power cut of all machines."""
        ...


CreateActors = Callable[[Host], Actors]
