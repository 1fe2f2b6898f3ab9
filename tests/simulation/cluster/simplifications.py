"""Simplifications of a cluster's failing plan; see `tests.simulation.broker`."""

from typing import Final

from msgspec.structs import replace

from tests.simulation.broker.simplifications import CALM
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.shrink import Simplification

SIMPLIFICATIONS: Final[tuple[Simplification[ClusterPlan], ...]] = (
    lambda plan: replace(plan, network=CALM),
    lambda plan: replace(plan, buggify_rate=0.0),
    lambda plan: replace(plan, clock_error_s=0.0, clock_drift=0.0),
    lambda plan: replace(plan, node_count=3, replication_factor=min(plan.replication_factor, 3)),
    lambda plan: replace(plan, consumer_count=0),
    lambda plan: replace(plan, reads_from_followers=False, has_older_readers=False),
    lambda plan: replace(plan, member_count=0),
    lambda plan: replace(plan, producers=[]),
    lambda plan: replace(plan, producers=plan.producers[:1]),
    lambda plan: replace(plan, churn_pause_s=None),
    lambda plan: replace(plan, visit_pause_s=None),
    lambda plan: replace(plan, move_pause_s=None),
    lambda plan: replace(plan, grow_pause_s=None),
    lambda plan: replace(plan, quiet_after_s=None),
    lambda plan: replace(plan, stage_pause_s=None),
    lambda plan: replace(plan, partition_count=1),
)
"""Simplifications, in the order in which they are tried."""
