"""Running systems, and their measurements."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.peers.load import Errands, run_loads
from bench.peers.orders import Order, Outcome
from bench.peers.promises import Promise
from bench.peers.results import Sample
from bench.peers.servers import Servers
from bench.peers.systems import Installed, System


@dataclass(frozen=True, slots=True)
class Running:
    """A system with running servers."""

    system: System
    installed: Installed
    servers: Servers
    promise: Promise
    errands: Errands = field(default_factory=Errands)
    """Process for unmeasured orders; the creator of this object closes it."""

    def order(self, role: str, name: str, **more: object) -> Order:
        """Return an order for a load process."""
        return Order(
            system=self.system.name,
            role=role,
            addresses=self.servers.addresses,
            name=name,
            promise=self.promise.value,
            **more,  # type: ignore[arg-type]
        )

    def do(self, *orders: Order) -> tuple[list[Outcome], float]:
        """Run load processes concurrently; return the outcomes and the servers' CPU seconds."""
        before = self.servers.cpu_seconds
        outcomes = run_loads(orders)
        return outcomes, self.servers.cpu_seconds - before

    def errand(self, role: str, name: str, **more: object) -> None:
        """Create or delete a topic or queue, unmeasured."""
        self.errands.run(self.order(role, name, **more))


Measure = Callable[[Running, str], Sample]
"""Function that measures once, on a topic or queue of the given name."""
