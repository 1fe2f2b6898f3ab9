"""Tests of the times of faults."""

import pytest

from tests.simulation.broker.plans import Fault, NetworkPlan, Plan, ProducerPlan
from tests.simulation.broker.run import run
from tests.simulation.report import RunReport


def run_with(*faults: Fault, lines: list[str] | None = None) -> RunReport[Plan]:
    """Execute two seconds with only these faults."""
    producer = ProducerPlan(
        kind="library",
        acks=2,
        is_idempotent=True,
        compression="none",
        pause_s=0.05,
        burst_max=2,
        max_value_bytes=10,
        delivery_timeout_s=30.0,
    )
    plan = Plan(
        seed="1",
        seconds=2.0,
        broker_count=1,
        partition_count=1,
        topic_settings={"durability": "fsync"},
        broker_settings={"log_flush_interval_ms": 500, "maintenance_interval_ms": 1000},
        sync_mean_s=0.002,
        restart_mean_s=0.1,
        network=NetworkPlan(delay_mean_s=0.001, loss=0.0, split=0.0, reset=0.0),
        buggify_rate=0.0,
        producers=[producer],
        library_consumer_count=0,
        faults=list(faults),
        is_killed_at_end=False,
    )
    return run(plan, show=None if lines is None else lines.append)


@pytest.mark.parametrize("kind", ["pause", "stall_loop", "stall_disk"])
def test_a_paused_component_resumes_when_the_faults_end(kind: str) -> None:
    report = run_with(Fault(1.5, kind, 8.0, 0.5))

    assert report.checker is None, report.problem
    assert report.simulated_s < 6.0


@pytest.mark.parametrize(
    "fault",
    [
        # The power would be cut 5.2 s after an append that comes at once.
        Fault(1.5, "break_while_syncing", 6.0, 0.4),
        # A crash would come up to 0.1 s after an append, a clean stop as long.
        Fault(1.93, "stop", 0.0, 0.0999),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_pending_fault_is_dropped_when_the_faults_end(fault: Fault) -> None:
    lines: list[str] = []

    report = run_with(fault, lines=lines)

    (end,) = (
        number for number, line in enumerate(lines) if "fault injector" in line and "ends" in line
    )
    after = lines[end:]
    assert report.checker is None, report.problem
    assert sum("loses its power" in line for line in after) == 1  # the last one
    assert not any("broker_stopping" in line for line in after)
