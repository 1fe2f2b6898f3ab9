"""Determinism of runs: one seed gives one run in every process, hash seed and Python version.

Other interpreters that have the dependencies installed are named in `TIDELOG_PYTHONS`, as in
`TIDELOG_PYTHONS=/venv312/bin/python:/venv313/bin/python make test ARGS=tests/simulation`.
"""

import os
import subprocess
import sys
from itertools import zip_longest

import msgspec

from tests.paths import ROOT
from tests.simulation.broker.plans import Plan, draw_plan
from tests.simulation.broker.run import run
from tests.simulation.report import RunReport

PYTHONS = [sys.executable, *filter(None, os.environ.get("TIDELOG_PYTHONS", "").split(os.pathsep))]
HASH_SEEDS = ["0", "1", "4294967295"]
SEEDS = ["1", "2"]

RUN = """
import sys
import msgspec
from tests.simulation.broker.run import run
from tests.simulation.broker.plans import draw_plan

show = None
if "steps" in sys.argv:
    show = lambda line: sys.stdout.write(line + "\\n")
for seed in sys.argv[1:3]:
    report = run(draw_plan(int(seed), 3.0), show=show, shows_steps=True)
    sys.stdout.write(msgspec.json.encode(report).decode() + "\\n")
"""

LEAK = """
import sys
import trio
from tests.simulation.machine.world import Simulation

async def main(world):
    async with trio.open_nursery() as nursery:
        for name in {"one", "two", "three", "four", "five"}:
            nursery.start_soon(trio.sleep, len(name), name=name)

simulation = Simulation(1)
simulation.run(main)
sys.stdout.write(simulation.trace.fingerprint())
"""


def start(python: str, hash_seed: str, arguments: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [python, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def outputs(arguments: list[str]) -> list[str]:
    """Return the output of processes that differ in everything that must not matter."""
    processes = [
        start(python, hash_seed, arguments)
        for number, python in enumerate(PYTHONS)
        for hash_seed in HASH_SEEDS[: None if number == 0 else 1]
    ]
    found = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return found


def first_difference() -> str:
    """Return the first event that differs between two of the processes."""
    command = ["-c", RUN, *SEEDS, "steps"]
    first, *others = [output.splitlines() for output in outputs(command)]
    for other in others:
        for one, another in zip_longest(first, other):
            if one != another:
                return f"they differ at\n  {one}\n  {another}"
    return "they differ no more"


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    first, *others = outputs(["-c", RUN, *SEEDS])
    reports = [msgspec.json.decode(line, type=RunReport[Plan]) for line in first.splitlines()]

    assert [report.plan.seed for report in reports] == SEEDS
    assert all(report.checker is None for report in reports)
    assert all(other == first for other in others), first_difference()


def test_a_seed_gives_the_same_run_after_other_runs_in_the_process() -> None:
    reports = [run(draw_plan(seed, 2.0)) for seed in (4, 5, 4)]

    assert reports[0] == reports[2]
    assert reports[0].fingerprint != reports[1].fingerprint


def test_showing_a_run_does_not_change_it() -> None:
    lines: list[str] = []
    plan = draw_plan(6, 2.0)

    shown = run(plan, show=lines.append, shows_steps=True)

    assert shown == run(plan)
    assert lines


def test_an_order_that_depends_on_hashes_is_found() -> None:
    assert len(set(outputs(["-c", LEAK]))) > 1
