"""Test with a short trial; `make queue-trial` is a long one."""

from pathlib import Path
from random import Random

import pytest
import trio

from tests.system.integration.processes import DEADLINE_S
from tests.system.queue_trials.ledger import Fate
from tests.system.queue_trials.run import QUEUES, Plan, run


@pytest.mark.statement("b73", "b74", "b78")
async def test_every_message_is_accounted_for_when_leaders_are_killed_and_stopped(
    tmp_path: Path,
) -> None:
    plan = Plan(seconds=4, random=Random(6), gap_s=1.0, stops_s=(0.3, 1.0), least_faults=3)

    with trio.fail_after(DEADLINE_S):
        report = await run(plan, tmp_path)

    assert report.problems == []
    assert report.faults.total() >= 3
    for name in QUEUES:
        ledger = report.ledgers[name]
        assert ledger.count(Fate.DELETED) > 50
        assert report.dead[name], "poison messages are dead letters"
