"""Tests of histories of real clients and a real broker under faults."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import trio

from tests.simulation.checkers.history import Operation
from tests.system.histories.chaos import Fault, FaultPlan, run_chaos
from tests.system.histories.examination import examine
from tests.system.histories.mutated_broker import mutated_program
from tests.system.histories.recorder import Recorder, acknowledged_count, load_events, operations_of
from tests.system.integration.processes import TIDELOG

SEED = "1"
SECONDS = 5.0
RUNS_MAX = 6


async def a_history(directory: Path, program: Sequence[str]) -> tuple[list[Operation], FaultPlan]:
    """Return the history that is read back from the file of a broker under faults."""
    fault_plan = FaultPlan(SECONDS, Random(SEED), program)
    file = directory / "history.jsonl"
    with file.open("wb", buffering=0) as stream:
        await run_chaos(fault_plan, directory, Recorder(trio.current_time, stream.write))
    return operations_of(load_events(file)), fault_plan


async def test_a_broker_under_faults_loses_repeats_and_reorders_no_record(tmp_path: Path) -> None:
    operations, fault_plan = await a_history(tmp_path, TIDELOG)

    assert examine(operations) == ([], 0)
    assert acknowledged_count(operations) > 100
    assert fault_plan.counts[Fault.KILL] + fault_plan.counts[Fault.RESET] > 0


async def test_a_broker_without_deduplication_is_found(tmp_path: Path) -> None:
    found: set[str] = set()
    # A batch is sent again only if its reply was in flight when the connection was lost.
    for number in range(RUNS_MAX):
        directory = tmp_path / str(number)
        directory.mkdir()
        operations, _ = await a_history(directory, mutated_program("no-dedup"))
        problems, _ = examine(operations)
        found |= {problem.partition(":")[0] for problem in problems}
        if "DUPLICATE" in found:
            break

    assert "DUPLICATE" in found
