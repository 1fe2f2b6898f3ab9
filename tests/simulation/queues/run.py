"""One run of a cluster with queues by a plan; see `tests.simulation.cluster.run`.

After the faults, a user receives and deletes until all queues are empty. So every accepted message
is deleted, dead or purged, or was still there; any other message is lost.
"""

from collections.abc import Callable, Sequence

from tests.simulation.cluster import run as cluster_life
from tests.simulation.cluster.actors import Host
from tests.simulation.cluster.run import RunSetting
from tests.simulation.queues.actors import QueueActors
from tests.simulation.queues.checkers import (
    CountsAreExact,
    DelayIsKept,
    DeletedIsGone,
    OneHolder,
    StaleIsFenced,
)
from tests.simulation.queues.final_checkers import (
    AllAccountedFor,
    DeadOnce,
    GroupsInOrder,
    SentIsThere,
)
from tests.simulation.queues.journal_checkers import JournalIsKept
from tests.simulation.queues.journal_witness import watching_journals
from tests.simulation.queues.plans import QueuePlan
from tests.simulation.queues.run_history import QueueChecker, QueueRunHistory
from tests.simulation.queues.sometimes import PROBES
from tests.simulation.report import RunReport


def checkers() -> Sequence[QueueChecker]:
    """Return one checker of each class."""
    return [
        DeletedIsGone(),
        OneHolder(),
        CountsAreExact(),
        StaleIsFenced(),
        DelayIsKept(),
        SentIsThere(),
        DeadOnce(),
        GroupsInOrder(),
        AllAccountedFor(),
        JournalIsKept(),
    ]


def run(
    plan: QueuePlan,
    *,
    show: Callable[[str], None] | None = None,
    shows_steps: bool = False,
    goes_on: bool = False,
) -> RunReport[QueuePlan]:
    """Execute one run and return its report; the same plan gives the same report.

    Args:
        plan: The plan of the run.
        show: Receives a line for each event.
        shows_steps: Whether these lines include the steps of tasks.
        goes_on: Whether the run continues after a violation, so that other checkers can object.
    """
    run_history = QueueRunHistory(
        checkers(), plan.queues, lead_s=plan.clock_lead_s, goes_on=goes_on
    )

    def create_actors(host: Host) -> QueueActors:
        run_history.on_objection = host.world.clock.fail
        return QueueActors(host, plan, run_history)

    with watching_journals(run_history):
        return cluster_life.run(
            plan,
            show=show,
            shows_steps=shows_steps,
            goes_on=goes_on,
            setting=RunSetting(PROBES, create_actors),
        )
