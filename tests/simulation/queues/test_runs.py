"""A few fixed runs of clusters with queues; `make swarm KIND=queues` runs more of them."""

# pyright: reportPrivateUsage=false

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.simulation.kinds import QUEUES
from tests.simulation.queues.plans import QueuePlan, draw_plan
from tests.simulation.queues.run import run
from tests.simulation.queues.sometimes import PROBES
from tests.simulation.queues.users import SendTimes
from tidelog.client.queue.queue import Queue

SECONDS = 1.0
RUN_COUNT = 2
KEPT = sorted(QUEUES.kept_plans.glob("*.json"))


@pytest.mark.parametrize("seed", range(RUN_COUNT))
def test_no_run_with_queues_breaks_a_promise(seed: int) -> None:
    report = run(draw_plan(seed, SECONDS))

    assert report.checker is None, (
        f"seed {seed} breaks a promise: {report.problem}\n"
        f"replay it: make sim KIND=queues SEED={seed} SECONDS={SECONDS:g}"
    )
    assert report.counts["delivered"] > 0
    assert report.sometimes.keys() <= PROBES.keys()


def test_a_plan_gives_the_same_run_after_other_runs_in_the_process() -> None:
    plan = draw_plan(10, 0.5)

    assert run(plan) == run(plan)


def test_all_kinds_of_queues_are_drawn_and_none_is_in_every_plan() -> None:
    plans = [draw_plan(seed, 60.0) for seed in range(40)]
    names = [{queue.name for queue in plan.queues} for plan in plans]

    assert set().union(*names) == {"jobs", "jobs-dead", "audit", "steps", "steps-dead", "taps"}
    assert not names[0].intersection(*names)
    assert all(any(queue.is_sent_to for queue in plan.queues) for plan in plans)


def test_a_plan_survives_a_round_trip_through_a_file() -> None:
    plan = draw_plan(7, 30.0)

    assert msgspec.json.decode(msgspec.json.encode(plan), type=QueuePlan) == plan


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_plan_that_failed_once_does_not_fail_again(path: Path) -> None:
    report = run(QUEUES.load_plan(path))

    assert report.checker is None, report.problem


async def test_a_message_may_come_from_the_open_poll_of_an_earlier_receive(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    left_polls: dict[str, None] = {}
    queue = SimpleNamespace(_receiver=SimpleNamespace(left_polls=left_polls))
    send_times = SendTimes(cast("Queue", queue))
    first = send_times.of_next_receive()
    left_polls["of the first receive"] = None
    await trio.sleep(1)

    assert send_times.of_next_receive() == first

    await trio.sleep(1)
    left_polls["of the second receive"] = None
    assert send_times.of_next_receive() == first
    left_polls.clear()
    assert send_times.of_next_receive() == first + 2
