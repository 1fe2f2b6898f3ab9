"""What tidelog is to reach beside its peers, and whether it does. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.figures import Spread
from bench.peers.results import METRICS, RowResult


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a ratio; tidelog's figure is divided by the peer's."""

    workload: str
    case: str
    """How the cases begin for which it holds."""
    metric: str
    bound: float
    peer: str = ""
    """Empty: whichever peer is best."""

    @property
    def is_rate(self) -> bool:
        """Whether the bound is a lower one."""
        return METRICS[self.metric].is_rate

    def is_for(self, result: RowResult) -> bool:
        """Whether a result is to be judged by it."""
        return (
            result.row.workload == self.workload
            and result.row.case.startswith(self.case)
            and self.peer in ("", result.peer)
            and self.metric in result.metrics()
        )


_KAFKA: Final = "kafka"
GOALS: Final = (
    Goal("rates", "100 B 01", "produced", 2.0, _KAFKA),
    Goal("rates", "100 B 01", "consumed", 2.0, _KAFKA),
    Goal("rates", "64 KB", "produced", 1.0, _KAFKA),
    Goal("rates", "64 KB", "consumed", 1.0, _KAFKA),
    Goal("rates", "100 B 01", "produce_us", 0.5, _KAFKA),
    Goal("rates", "100 B 01", "consume_us", 0.5, _KAFKA),
    Goal("latency", "common", "p99", 0.5, _KAFKA),
    Goal("queues", "", "worked", 3.0),
    Goal("spark", "batch", "spark_rows", 1.0, _KAFKA),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal in one row."""

    goal: Goal
    result: RowResult
    ratio: Spread

    @property
    def is_met(self) -> bool:
        """Whether the median reaches it."""
        if self.goal.is_rate:
            return self.ratio.median >= self.goal.bound
        return self.ratio.median <= self.goal.bound

    @property
    def missed_by(self) -> float:
        """How many times better it would have to be; 1 or less where it is met."""
        shortfall = self.goal.bound / self.ratio.median
        return shortfall if self.goal.is_rate else 1 / shortfall


def advantage(result: RowResult, metric: str) -> float:
    """Return how many times better tidelog is; below 1, the peer is."""
    ratio = result.ratio(metric).median
    return ratio if METRICS[metric].is_rate else 1 / ratio


def verdicts(results: Sequence[RowResult], goals: Sequence[Goal] = GOALS) -> list[Verdict]:
    """Judge every row that a goal is for; without a named peer, by the best one of the row."""
    found: list[Verdict] = []
    for goal in goals:
        rows: dict[object, list[RowResult]] = {}
        for result in results:
            if goal.is_for(result):
                rows.setdefault((result.row, goal.peer), []).append(result)
        for alike in rows.values():
            best = min(alike, key=lambda each: advantage(each, goal.metric))
            found.append(Verdict(goal, best, best.ratio(goal.metric)))
    return found
