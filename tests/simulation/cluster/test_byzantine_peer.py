"""Tests of the byzantine peer: a cluster lives with it as without it, and it finds defects."""

import msgspec
import pytest

from tests.simulation.broker.plans import Fault
from tests.simulation.cluster.plans import ClusterPlan, draw_plan
from tests.simulation.cluster.run import run

SECONDS = 2.0
VISITS = [
    Fault(at=0.15 * number, kind="replay_frames", duration=0.0, dice=0.5) for number in range(14)
]


def with_visits(seed: int, visits: list[Fault]) -> ClusterPlan:
    plan = draw_plan(seed, SECONDS)
    faults = [fault for fault in plan.faults if fault.kind != "replay_frames"]
    return msgspec.structs.replace(plan, faults=[*faults, *visits])


def events(plan: ClusterPlan) -> tuple[list[str], int]:
    """Return all events and steps of a run but those of the peer's visits, and their number."""
    lines: list[str] = []
    report = run(plan, show=lines.append, shows_steps=True)
    assert report.checker is None, report.problem
    own = [line for line in lines if " aside " not in line]
    # Brokers report refusals again, once a minute.
    return [line for line in own if "_refused_again" not in line], len(lines) - len(own)


@pytest.mark.parametrize("seed", [5, 12])
def test_a_cluster_lives_with_a_byzantine_peer_as_without_it(seed: int) -> None:
    """All events are the same, so the disks, logs, metadata and offsets of all nodes are."""
    alone, no_visits = events(with_visits(seed, []))
    visited, visits = events(with_visits(seed, VISITS))

    assert no_visits == 0
    assert visits > 500
    assert any("disk holds" in line for line in alone)
    assert visited == alone
