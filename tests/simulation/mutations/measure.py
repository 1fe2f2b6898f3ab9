"""Measurement of mutations: runs until each is found, and the size of the shrunk plan.

Every trial of a mutation has a process of its own, and so has the check that the shrunk plan
replays: no state that a defect leaves in a process can take part.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any

import msgspec

from tests.simulation.children import in_fresh_process
from tests.simulation.kinds import KINDS, checker_names
from tests.simulation.mutations.registry import find_mutation
from tests.simulation.report import RunReport
from tests.simulation.shrink import ShrinkBudget, shrink

FEW_FAULTS = 5
"""Number of faults that is few enough; no further failure is shrunk."""
_RAFT_CHECKERS = (
    "AppliedInOrder",
    "CommitNeverFalls",
    "DurableBeforeSent",
    "ElectionSafety",
    "EmptyReadyIsComplete",
    "ForgeriesAreRefused",
    "HardStateNeverGoesBack",
    "HealthyLeaderStays",
    "IsolatedLeaderStepsDown",
    "LeaderCompleteness",
    "LogMatching",
    "MonotoneTerm",
    "OneVote",
    "ReadIndexIsLinearizable",
    "StartsAfterCrash",
    "StateMachineSafety",
)
_OTHER_CHECKERS = (
    "History",
    "Liveness",
    "EventBudget",
    "NoDefects",
    "NoneLeftOut",
    "ReplicasAgree",
    "PrincipalsAreServed",
    "ProcessedOnce",
    "QuotaSharesHold",
    "TransactionsOnce",
    "QueuesComeToAnEnd",
    "WaitersAreWoken",
    "Assertion",
    *_RAFT_CHECKERS,
)
_FAILURES_MAX = 4
"""Maximum number of failed runs that are shrunk."""


class Trial(msgspec.Struct, frozen=True):
    """Result of one mutation."""

    kind: str
    """The kind of the runs."""
    name: str
    seed_count: int
    """Runs until the mutation was found, including the run that found it; all runs otherwise."""
    failure: RunReport[Any] | None
    """The first run in which a checker objected, `None` if the mutation was not found."""
    shrunk: RunReport[Any] | None
    """The shrunk form of that run or a later one; `None` if not requested."""
    shrink_count: int
    """Number of runs of the shrinking."""
    others: dict[str, int]
    """Runs before it that ended in an error of no checker, by its name: they do not count."""
    wall_s: float
    objectors: frozenset[str] = frozenset()
    """All checkers that object in that run if it continues after the first objection."""
    complaint: str = ""
    """Why the mutation does not count as found, empty if it does."""

    @property
    def fault_count(self) -> int | None:
        """Number of faults in the shrunk plan."""
        return None if self.shrunk is None else len(self.shrunk.plan.faults)

    @property
    def is_good(self) -> bool:
        """Whether a checker found it in time, and it was shrunk if requested."""
        return not self.complaint


def is_objection(report: RunReport[Any]) -> bool:
    """Return whether a checker objected, and not an accidental error of the code."""
    return _checker(report.checker) in {*_OTHER_CHECKERS, *checker_names()}


def try_mutation(
    kind_name: str, name: str, *, seeds_max: int | None = None, budget: ShrinkBudget | None
) -> Trial:
    """Apply one mutation in run after run until a checker objects; shrink that run.

    If it cannot be shrunk enough, later failed runs are tried.
    """
    kind = KINDS[kind_name]
    seeds_max = seeds_max or kind.mutation_seeds
    enough = FEW_FAULTS if kind.faults_max is None else kind.faults_max
    began_at = perf_counter()
    others: dict[str, int] = {}
    first: RunReport[Any] | None = None
    smallest: RunReport[Any] | None = None
    seed_count = shrink_count = failure_count = 0
    for seed in range(seeds_max):
        report = kind.run_plan(kind.draw_plan(seed, kind.mutation_seconds), name)
        if first is None:
            seed_count += 1
        else:
            shrink_count += 1
        if report.checker is None:
            continue
        if not is_objection(report):
            others[report.checker] = others.get(report.checker, 0) + 1
            continue
        first = first or report
        if budget is None:
            break
        run = partial(kind.run_plan, mutation=name)
        result = shrink(report, run, kind.simplifications, budget=budget)
        shrink_count += result.run_count
        if smallest is None or _size(result.report) < _size(smallest):
            smallest = result.report
        failure_count += 1
        if _size(smallest) <= enough or failure_count == _FAILURES_MAX:
            break
    complaint = "" if first is not None else f"not in {seeds_max} seeds"
    objectors = frozenset[str]()
    if first is not None:
        objectors = frozenset(kind.run_plan(first.plan, name, goes_on=True).objectors)
    wall_s = perf_counter() - began_at
    return Trial(
        kind_name,
        name,
        seed_count,
        first,
        smallest,
        shrink_count,
        others,
        wall_s,
        objectors,
        complaint,
    )


def _size(report: RunReport[Any]) -> int:
    return len(report.plan.faults)


def complaint_about(trial: Trial) -> str:
    """Return the problem of a trial after a second check, empty if there is none.

    The shrunk plan must fail again, event by event, and no plan may fail without the mutation.
    """
    if trial.failure is None:
        return trial.complaint
    kind = KINDS[trial.kind]
    for report in (trial.failure, trial.shrunk):
        if report is not None:
            clean = kind.run_plan(report.plan)
            if clean.checker is not None:
                return f"{clean.checker} objects without the mutation as well"
    last = trial.shrunk or trial.failure
    again = kind.run_plan(last.plan, trial.name)
    if again.checker != last.checker:
        return f"does not replay: {again.checker} instead of {last.checker}"
    if again.fingerprint != last.fingerprint:
        return "does not replay event by event"
    most = kind.faults_max
    if trial.fault_count is not None and most is not None and trial.fault_count > most:
        return f"more than {most} faults are left"
    return ""


def try_mutations(
    names: Sequence[tuple[str, str]],
    *,
    seeds_max: int | None,
    budget: ShrinkBudget | None,
    workers: int,
) -> Iterator[Trial]:
    """Yield the trials of these kinds and mutations in order, with so many at a time."""

    def try_one(kind_and_name: tuple[str, str]) -> Trial:
        trial = in_fresh_process(
            partial(try_mutation, *kind_and_name, seeds_max=seeds_max, budget=budget)
        )
        complaint = in_fresh_process(partial(complaint_about, trial))
        return msgspec.structs.replace(trial, complaint=complaint)

    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(try_one, names)


def table_head() -> str:
    """Return the first two lines of the table."""
    return (
        "| kind | mutation | seeds until found | found by | faults left | defect |\n"
        "|---|---|---|---|---|---|"
    )


def table_row(trial: Trial) -> str:
    """Return the line of one trial."""
    about = find_mutation(trial.name).about
    if trial.failure is None:
        others = "".join(f"; {count} times {name}" for name, count in trial.others.items())
        return f"| {trial.kind} | {trial.name} | **{trial.complaint}**{others} | | | {about} |"
    faults = "-" if trial.fault_count is None else str(trial.fault_count)
    doubt = f" **{trial.complaint}**" if trial.complaint else ""
    caught_by = trial.failure.checker
    start = f"| {trial.kind} | {trial.name} | {trial.seed_count} | {caught_by}"
    return f"{start} | {faults}{doubt} | {about} |"


def objections(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a line for each checker: how many mutations it finds, and how many as the first."""
    yield "| checker | first to object to | objects to |"
    yield "|---|---|---|"
    firsts = Counter(_checker(trial.failure.checker) for trial in trials if trial.failure)
    every = Counter(name for trial in trials for name in {*map(_checker, trial.objectors)})
    for name in sorted({*checker_names(), *_OTHER_CHECKERS}):
        yield f"| `{name}` | {firsts[name]} | {every[name]} |"


def score(trials: Sequence[Trial]) -> str:
    """Return the last line: the number of found mutations, and whether all are shrunk."""
    good_count = sum(trial.is_good for trial in trials)
    text = f"{good_count} of {len(trials)} found"
    if any(trial.shrunk is None for trial in trials if trial.is_good):
        return text
    how = ", all shrunk" if good_count == len(trials) else " and shrunk"
    return f"{text}{how} to five faults or fewer"


def _checker(name: str | None) -> str:
    return (name or "").partition(".")[0]
