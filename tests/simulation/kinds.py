"""The kinds of lives that there are: of one broker that is alone, of clusters, and with queues."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, final

import msgspec

from tests.simulation.broker import compacted, plans
from tests.simulation.broker import run as planned_life
from tests.simulation.broker.simplifications import SIMPLIFICATIONS
from tests.simulation.broker.sometimes import PROBES
from tests.simulation.checkers.book import Checker
from tests.simulation.cluster import plans as cluster_plans
from tests.simulation.cluster import run as cluster_life
from tests.simulation.cluster.minutes import NodeChecker
from tests.simulation.cluster.mutants import MUTANTS as CLUSTER_MUTANTS
from tests.simulation.cluster.replication_mutants import MUTANTS as REPLICATION_MUTANTS
from tests.simulation.cluster.simplifications import SIMPLIFICATIONS as CLUSTER_SIMPLIFICATIONS
from tests.simulation.cluster.sometimes import PROBES as CLUSTER_PROBES
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutations.compaction import MUTANTS as COMPACTION_MUTANTS
from tests.simulation.mutations.mutant import Mutant
from tests.simulation.queues import plans as queue_plans
from tests.simulation.queues import run as queue_life
from tests.simulation.queues.book import QueueChecker
from tests.simulation.queues.mutants import MUTANTS as QUEUE_MUTANTS
from tests.simulation.queues.planted_again import MUTANTS as PLANTED_AGAIN
from tests.simulation.queues.simplifications import SIMPLIFICATIONS as QUEUE_SIMPLIFICATIONS
from tests.simulation.queues.sometimes import PROBES as QUEUE_PROBES
from tests.simulation.report import LifeReport, PlanType
from tests.simulation.shrink import Simplification
from tests.simulation.transactions.mutants import DROPPED_EARLY

_HERE = Path(__file__).parent


@final
@dataclass(frozen=True, slots=True)
class Kind(Generic[PlanType]):
    """What is common to all lives of one kind, and different from those of others."""

    name: str
    plan_type: type[PlanType]
    draw_plan: Callable[[int, float], PlanType]
    """Expands a seed, and the seconds that the faults go on."""
    live: Callable[..., LifeReport[PlanType]]
    """See `tests.simulation.broker.run.live`."""
    probes: Mapping[str, str]
    """What a good swarm reaches."""
    simplifications: Sequence[Simplification[PlanType]]
    mutants: Sequence[Mutant]
    """Planted bugs that such lives must show."""
    kept_plans: Path
    """The directory of the plans that once failed."""

    def load_plan(self, path: Path) -> PlanType:
        """Return the plan in a file.

        Raises:
            OSError: The file cannot be read.
            msgspec.MsgspecError: It holds no plan of this kind.
        """
        return msgspec.json.decode(path.read_bytes(), type=self.plan_type)

    def live_plan(
        self, plan: PlanType, mutant: str | None = None, **options: object
    ) -> LifeReport[PlanType]:
        """Live one life, with a planted bug if one is named; for the options see `live`."""
        with find_mutant(mutant).planted() if mutant else nullcontext():
            return self.live(plan, **options)


BROKER: Final = Kind(
    name="broker",
    plan_type=plans.Plan,
    draw_plan=plans.draw_plan,
    live=planned_life.live,
    probes=PROBES,
    simplifications=SIMPLIFICATIONS,
    mutants=MUTANTS,
    kept_plans=_HERE / "kept_plans",
)
COMPACTED: Final = Kind(
    name="compacted",
    plan_type=plans.Plan,
    draw_plan=compacted.draw_plan,
    live=planned_life.live,
    probes={name: PROBES[name] for name in ("log compacted", "crash in swap")},
    simplifications=SIMPLIFICATIONS,
    mutants=COMPACTION_MUTANTS,
    kept_plans=_HERE / "kept_plans",
)
CLUSTER: Final = Kind(
    name="cluster",
    plan_type=cluster_plans.ClusterPlan,
    draw_plan=cluster_plans.draw_plan,
    live=cluster_life.live,
    probes=CLUSTER_PROBES,
    simplifications=CLUSTER_SIMPLIFICATIONS,
    mutants=(*CLUSTER_MUTANTS, *REPLICATION_MUTANTS, DROPPED_EARLY),
    kept_plans=_HERE / "cluster" / "kept_plans",
)
QUEUES: Final = Kind(
    name="queues",
    plan_type=queue_plans.QueuePlan,
    draw_plan=queue_plans.draw_plan,
    live=queue_life.live,
    probes=QUEUE_PROBES,
    simplifications=QUEUE_SIMPLIFICATIONS,
    mutants=(*QUEUE_MUTANTS, *PLANTED_AGAIN),
    kept_plans=_HERE / "queues" / "kept_plans",
)
KINDS: Final[Mapping[str, Kind[Any]]] = {
    kind.name: kind for kind in (BROKER, COMPACTED, CLUSTER, QUEUES)
}


def kind_of_mutant(name: str) -> Kind[Any]:
    """Return the kind of lives that must show a planted bug.

    Raises:
        KeyError: There is no such bug.
    """
    for kind in KINDS.values():
        if any(mutant.name == name for mutant in kind.mutants):
            return kind
    raise KeyError(name)


def find_mutant(name: str) -> Mutant:
    """Return the planted bug of a name.

    Raises:
        KeyError: There is none.
    """
    return next(mutant for mutant in kind_of_mutant(name).mutants if mutant.name == name)


def checker_names() -> set[str]:
    """Return the names of all checkers of all kinds."""
    promises = (Checker, NodeChecker, QueueChecker)
    return {checker.__name__ for base in promises for checker in base.__subclasses__()}
