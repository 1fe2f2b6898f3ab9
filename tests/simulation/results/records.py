"""Results of swarms and of mutation hunts: one line of JSON each, appended by `--record`."""

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeVar, final

import msgspec

from tests.paths import ROOT
from tests.simulation.kinds import KINDS, Kind
from tests.simulation.mutations.measure import Trial
from tests.simulation.seeded import SeedPlan
from tests.simulation.swarm import SwarmReport

_HERE: Final = Path(__file__).parent
SWARMS: Final = _HERE / "swarms.jsonl"
MUTATIONS: Final = _HERE / "mutations.jsonl"
_NO_CODE: Final = ("docs", "tests/simulation/results/*.jsonl")
"""Paths whose changes do not affect a run."""

_Result = TypeVar("_Result", bound=msgspec.Struct)


@final
class State(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """State of the code, and day of a measurement."""

    date: str
    """Day in UTC, or two days with "to" between them."""
    commit: str = ""
    """Short hash, with a "+" if files differed from the commit; empty if unknown."""

    def __str__(self) -> str:
        return f"{self.date} {self.commit}".strip()


@final
class Find(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Failure that ended a swarm."""

    seed: str = ""
    checker: str = ""
    about: str = ""
    """Text by hand."""


@final
class SwarmResult(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Result of a swarm; `None` for unknown."""

    state: State
    kind: str
    first: int | None = None
    """The first seed."""
    clean: int | None = None
    """Number of runs without a failure; `None` for sums over swarms that have lines."""
    seconds: float | None = None
    """Duration of the faults of a run; `None` also for kinds with a fixed duration."""
    simulated_s: float | None = None
    counts: dict[str, int] = {}
    """Events, crashes and other counters, summed over all runs."""
    probes: dict[str, int] = {}
    """Number of runs that reached each probe."""
    find: Find | None = None
    note: str = ""
    """Text by hand."""


@final
class MutationResult(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Result of the search for one mutation."""

    state: State
    kind: str
    name: str
    seeds: int
    """Runs until the mutation was found, or all runs."""
    found_by: str = ""
    """The checker; empty if the mutation was not found."""
    faults: int | None = None
    """Number of faults in the shrunk plan."""
    seconds: float | None = None
    """Duration of the faults of a run; `None` also for kinds with a fixed duration."""
    problem: str = ""
    """Why the mutation does not count as found, empty if it does."""
    note: str = ""
    """Text by hand."""


def state_now() -> State:
    """Return the state of the working tree, today."""
    commit = _git("rev-parse", "--short=8", "HEAD").strip()
    changes = _git("diff", "--name-only", "HEAD", "--", ".", *(f":!{path}" for path in _NO_CODE))
    return State(
        date=time.strftime("%Y-%m-%d", time.gmtime()), commit=commit + ("+" if changes else "")
    )


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def result_of_swarm(
    report: SwarmReport, state: State, *, first: int, seconds: float
) -> SwarmResult:
    """Return the line of a swarm."""
    kind, failure = report.kind, report.failure
    return SwarmResult(
        state=state,
        kind=kind.name,
        first=first,
        clean=report.run_count - report.failed_count,
        seconds=_drawn(kind, seconds),
        simulated_s=round(report.simulated_s) or None,
        counts=dict(report.counts),
        probes={probe: report.run_counts_by_probe[probe] for probe in kind.probes},
        find=None
        if failure is None
        else Find(seed=str(failure.plan.seed), checker=failure.checker or ""),
    )


def result_of_trial(trial: Trial, state: State) -> MutationResult:
    """Return the line of a mutation."""
    kind = KINDS[trial.kind]
    return MutationResult(
        state=state,
        kind=kind.name,
        name=trial.name,
        seeds=trial.seed_count,
        found_by=(trial.failure and trial.failure.checker) or "",
        faults=trial.fault_count,
        seconds=_drawn(kind, kind.mutation_seconds),
        problem=trial.complaint,
    )


def _drawn(kind: Kind[Any], seconds: float) -> float | None:
    return None if kind.plan_type is SeedPlan else seconds


def append(path: Path, result: msgspec.Struct) -> None:
    """Append one result to a file."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")


def read(path: Path, result_type: type[_Result]) -> list[_Result]:
    """Return all results of a file, in order.

    Raises:
        msgspec.MsgspecError: A line is no such result.
    """
    return [msgspec.json.decode(line, type=result_type) for line in path.read_bytes().splitlines()]


def newest(results: Iterable[MutationResult]) -> dict[tuple[str, str], MutationResult]:
    """Return the last result of each kind and mutation."""
    return {(each.kind, each.name): each for each in results}
