"""Simplifications of a failing plan with queues; see `tests.simulation.broker`."""

from functools import partial
from typing import Any, Final, cast

from msgspec.structs import replace

from tests.simulation.cluster.simplifications import SIMPLIFICATIONS as OF_CLUSTERS
from tests.simulation.queues.plans import QueuePlan
from tests.simulation.shrink import Simplification


def _without_queue(name: str, plan: QueuePlan) -> QueuePlan:
    """Remove a queue, and its dead-letter queue."""
    gone = {name, f"{name}-dead"}
    kept = [queue for queue in plan.queues if queue.name not in gone]
    return replace(plan, queues=kept) if any(each.is_sent_to for each in kept) else plan


SIMPLIFICATIONS: Final[tuple[Simplification[QueuePlan], ...]] = (
    *cast("tuple[Any, ...]", OF_CLUSTERS),
    *(partial(_without_queue, name) for name in ("taps", "audit", "steps", "jobs")),
    lambda plan: replace(plan, sender_count=1),
    lambda plan: replace(plan, worker_count=1),
    lambda plan: replace(plan, library_worker_count=0),
    lambda plan: replace(plan, redrive_pause_s=None),
    lambda plan: replace(plan, recreation_pause_s=None),
    lambda plan: replace(plan, large_rate=0.0),
    lambda plan: replace(plan, mood="plain"),
    lambda plan: replace(plan, group_count=1),
)
"""Simplifications, in the order in which they are tried."""
