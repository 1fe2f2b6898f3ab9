"""The kinds of simulated runs: one broker, clusters, clusters with queues, and single cores."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, final

import msgspec

from tests.simulation import seeded
from tests.simulation.access.runs import run_access
from tests.simulation.broker import compacted, plans
from tests.simulation.broker import run as broker_run
from tests.simulation.broker.simplifications import SIMPLIFICATIONS
from tests.simulation.broker.sometimes import PROBES
from tests.simulation.certificates.runs import run_certificates
from tests.simulation.checkers.run_history import Checker
from tests.simulation.cluster import plans as cluster_plans
from tests.simulation.cluster import run as cluster_run
from tests.simulation.cluster.cluster_history import NodeChecker
from tests.simulation.cluster.simplifications import SIMPLIFICATIONS as CLUSTER_SIMPLIFICATIONS
from tests.simulation.cluster.sometimes import PROBES as CLUSTER_PROBES
from tests.simulation.encryption.runs import run_encryption
from tests.simulation.groups.chaos import check_all
from tests.simulation.isr.aimed_faults import replicate_aimed
from tests.simulation.metadata.decisions import decide_and_replicate
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.registry import MUTATIONS, find_mutation
from tests.simulation.processing.runs import run_processing
from tests.simulation.queues import plans as queue_plans
from tests.simulation.queues import run as queue_run
from tests.simulation.queues.run_history import QueueChecker
from tests.simulation.queues.simplifications import SIMPLIFICATIONS as QUEUE_SIMPLIFICATIONS
from tests.simulation.queues.sometimes import PROBES as QUEUE_PROBES
from tests.simulation.quotas.runs import run_quotas
from tests.simulation.raft import plans as raft_plans
from tests.simulation.raft import run as raft_run
from tests.simulation.raft.simplifications import SIMPLIFICATIONS as RAFT_SIMPLIFICATIONS
from tests.simulation.raft.sometimes import PROBES as RAFT_PROBES
from tests.simulation.report import PlanType, RunReport
from tests.simulation.shrink import Simplification
from tests.simulation.three_brokers.counts import run_counted
from tests.simulation.three_brokers.runs import run_three_brokers
from tests.simulation.transactions.runs import run_transactions

_HERE = Path(__file__).parent


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[PlanType]):
    """Properties of all runs of one kind."""

    name: str
    plan_type: type[PlanType]
    draw_plan: Callable[[int, float], PlanType]
    """Expands a seed, and the seconds with faults."""
    run: Callable[..., RunReport[PlanType]]
    """See `tests.simulation.broker.run.run`."""
    seconds: float = 60.0
    """Default duration of the faults in seconds."""
    probes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Probes that a good swarm reaches."""
    runs_for_all_probes: int = 200
    """Number of runs in a swarm that must reach every probe."""
    simplifications: Sequence[Simplification[PlanType]] = ()
    mutation_seconds: float = 20.0
    """Duration of the faults in each run that searches for a mutation, in seconds."""
    mutation_seeds: int = 200
    """Maximum number of runs that search for a mutation."""
    faults_max: int | None = 5
    """Maximum faults in an understood failure."""
    seeds_at_once: int = 1
    """Runs of a worker process between two reports."""
    folder: str = ""
    """Folder of its plans beside this file, if not that of its name."""

    @property
    def mutations(self) -> Sequence[Mutation]:
        """Mutations that such runs must find."""
        return MUTATIONS[self.name]

    @property
    def kept_plans(self) -> Path:
        """The directory of the plans that once failed."""
        return _HERE / (self.folder or self.name) / "kept_plans"

    def load_plan(self, path: Path) -> PlanType:
        """Return the plan in a file.

        Raises:
            OSError: The file cannot be read.
            msgspec.MsgspecError: The file has no plan of this kind.
        """
        plan: PlanType = msgspec.json.decode(path.read_bytes(), type=self.plan_type)
        return plan

    def run_plan(
        self, plan: PlanType, mutation: str | None = None, **options: object
    ) -> RunReport[PlanType]:
        """Execute one run, with a mutation if one is named; for the options see `run`."""
        with find_mutation(mutation).applied() if mutation else nullcontext():
            return self.run(plan, **options)


BROKER: Final = Kind(
    name="broker",
    plan_type=plans.Plan,
    draw_plan=plans.draw_plan,
    run=broker_run.run,
    probes=PROBES,
    simplifications=SIMPLIFICATIONS,
)
COMPACTED: Final = Kind(
    name="compacted",
    plan_type=plans.Plan,
    draw_plan=compacted.draw_plan,
    run=broker_run.run,
    folder="broker",
    probes={name: PROBES[name] for name in ("log compacted", "crash in swap")},
    simplifications=SIMPLIFICATIONS,
)
CLUSTER: Final = Kind(
    name="cluster",
    plan_type=cluster_plans.ClusterPlan,
    draw_plan=cluster_plans.draw_plan,
    run=cluster_run.run,
    probes=CLUSTER_PROBES,
    simplifications=CLUSTER_SIMPLIFICATIONS,
)
QUEUES: Final = Kind(
    name="queues",
    plan_type=queue_plans.QueuePlan,
    draw_plan=queue_plans.draw_plan,
    run=queue_run.run,
    probes=QUEUE_PROBES,
    simplifications=QUEUE_SIMPLIFICATIONS,
)
RAFT: Final = Kind(
    name="raft",
    plan_type=raft_plans.Plan,
    draw_plan=raft_plans.draw_plan,
    run=raft_run.run,
    seconds=raft_plans.SECONDS,
    probes=RAFT_PROBES,
    runs_for_all_probes=1000,
    simplifications=RAFT_SIMPLIFICATIONS,
    mutation_seconds=raft_plans.SECONDS,
    mutation_seeds=2000,
    faults_max=None,
    seeds_at_once=50,
)


def _seeded(
    name: str, act: Callable[[int], Mapping[str, int]], *, mutation_seeds: int, seeds_at_once: int
) -> Kind[seeded.SeedPlan]:
    return Kind(
        name=name,
        plan_type=seeded.SeedPlan,
        draw_plan=seeded.draw_plan,
        run=seeded.runs_of(act),
        mutation_seeds=mutation_seeds,
        seeds_at_once=seeds_at_once,
    )


KINDS: Final[Mapping[str, Kind[Any]]] = {
    kind.name: kind
    for kind in (
        BROKER,
        COMPACTED,
        CLUSTER,
        QUEUES,
        _seeded("three_brokers", run_three_brokers, mutation_seeds=25, seeds_at_once=1),
        _seeded("counts", run_counted, mutation_seeds=20, seeds_at_once=1),
        _seeded("transactions", run_transactions, mutation_seeds=20, seeds_at_once=1),
        _seeded("processing", run_processing, mutation_seeds=20, seeds_at_once=1),
        _seeded("access", run_access, mutation_seeds=20, seeds_at_once=1),
        _seeded("certificates", run_certificates, mutation_seeds=20, seeds_at_once=1),
        _seeded("encryption", run_encryption, mutation_seeds=20, seeds_at_once=1),
        _seeded("quotas", run_quotas, mutation_seeds=20, seeds_at_once=1),
        RAFT,
        _seeded("groups", check_all, mutation_seeds=1000, seeds_at_once=10),
        _seeded("metadata", decide_and_replicate, mutation_seeds=300, seeds_at_once=10),
        _seeded("isr", replicate_aimed, mutation_seeds=480, seeds_at_once=10),
    )
}


def checker_names() -> set[str]:
    """Return the names of all checkers of all kinds."""
    promises = (Checker, NodeChecker, QueueChecker)
    return {checker.__name__ for base in promises for checker in base.__subclasses__()}
