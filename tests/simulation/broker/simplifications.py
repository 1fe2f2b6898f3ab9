"""Simplifications of a failing plan, besides fewer faults and less time."""

from functools import partial
from typing import Final

from msgspec.structs import replace

from tests.simulation.broker.plans import ALWAYS_SET, NetworkPlan, Plan, ReadingPlan
from tests.simulation.shrink import Simplification

CALM: Final = NetworkPlan(delay_mean_s=0.0005, loss=0.0, split=0.0, reset=0.0)
"""A network without faults of its own."""


def _with_default_limits(plan: Plan) -> Plan:
    """Leave only the limits that every plan sets."""
    settings = {name: value for name, value in plan.broker_settings.items() if name in ALWAYS_SET}
    return replace(plan, broker_settings=settings)


def _with_one_producer(number: int, plan: Plan) -> Plan:
    if number >= len(plan.producers):
        return plan
    return replace(plan, producers=[plan.producers[number]])


SIMPLIFICATIONS: Final[tuple[Simplification[Plan], ...]] = (
    lambda plan: replace(plan, network=CALM),
    lambda plan: replace(plan, buggify_rate=0.0),
    lambda plan: replace(plan, reading=ReadingPlan(), clock_error_s=0.0, clock_drift=0.0),
    _with_default_limits,
    lambda plan: replace(plan, library_consumer_count=0),
    lambda plan: replace(plan, churn_pause_s=None),
    lambda plan: replace(plan, partition_count=1),
    *(partial(_with_one_producer, number) for number in range(3)),
)
"""Simplifications of a single broker's plan, in the order in which they are tried."""
