"""Goals of tidelog relative to its peers, and their verdicts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.figures import Spread
from bench.peers.promises import Promise
from bench.peers.results import METRICS, RowResult


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a ratio; tidelog's figure is divided by the peer's."""

    workload: str
    case: str
    """Prefix of the cases that the goal covers."""
    metric: str
    bound: float
    peer: str = ""
    """Peer of the goal; empty: the best peer of the row."""
    promises: tuple[Promise, ...] = tuple(Promise)
    """Promises under which the goal is judged."""

    @property
    def is_rate(self) -> bool:
        """Whether the bound is a lower bound."""
        return METRICS[self.metric].is_rate

    def covers(self, workload: str, promise: str, case: str) -> bool:
        """Return whether the goal is about a row."""
        return (
            workload == self.workload
            and case.startswith(self.case)
            and Promise(promise) in self.promises
        )

    def is_for(self, result: RowResult) -> bool:
        """Return whether the goal covers a result."""
        return (
            self.covers(result.row.workload, result.row.promise, result.row.case)
            and self.peer in ("", result.peer)
            and self.metric in result.metrics()
        )


_KAFKA: Final = "kafka"
_NATS: Final = "nats"
_REDIS: Final = "redis"
_BEANSTALKD: Final = "beanstalkd"
_MEMORY: Final = (Promise.MEMORY_ONE,)
_ONE: Final = (Promise.MEMORY_ONE, Promise.FSYNC_ONE)
GOALS: Final = (
    Goal("rates", "100 B 01", "produced", 2.0, _KAFKA),
    Goal("rates", "100 B 01", "consumed", 2.0, _KAFKA),
    Goal("rates", "64 KB", "produced", 1.0, _KAFKA),
    Goal("rates", "64 KB", "consumed", 1.0, _KAFKA),
    Goal("rates", "100 B 01", "produce_us", 0.5, _KAFKA),
    Goal("rates", "100 B 01", "consume_us", 0.5, _KAFKA),
    Goal("latency", "common", "p99", 0.5, _KAFKA),
    Goal("asyncio", "", "produced", 3.0, _KAFKA),
    Goal("asyncio", "", "p99", 1.0, _KAFKA),
    Goal("latency", "common", "p50", 1.2, _NATS, _MEMORY),
    Goal("queues", "batch 001 workers 01", "worked", 0.3, _BEANSTALKD, _ONE),
    Goal("queues", "batch 001 workers 01", "worked", 0.8, _REDIS, _ONE),
    Goal("queues", "worker 001 workers 01", "worked", 0.5, _BEANSTALKD, _ONE),
    Goal("queues", "worker 001 workers 01", "worked", 1.2, _REDIS, _ONE),
    Goal("queues", "batch 001 workers 08", "worked", 1.0, promises=_ONE),
    Goal("queues", "worker 001 workers 08", "worked", 1.0, promises=_ONE),
    Goal("queues", "batch 001 workers 64", "worked", 2.5, promises=_ONE),
    Goal("queues", "worker 001 workers 64", "worked", 2.5, promises=_ONE),
    Goal("queues", "batch 010 workers 08", "worked", 2.0, promises=_ONE),
    Goal("queues", "batch 100 workers 64", "worked", 3.0),
    Goal("late", "delayed", "p50", 1.5),
    Goal("late", "expired", "p50", 1.5),
    Goal("spark", "batch", "spark_rows", 3.0, _KAFKA),
    Goal("spark", "stream", "spark_rows", 3.0, _KAFKA),
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
        """Factor to the bound; 1 or less if the goal is met."""
        shortfall = self.goal.bound / self.ratio.median
        return shortfall if self.goal.is_rate else 1 / shortfall


def advantage(result: RowResult, metric: str) -> float:
    """Return the factor by which tidelog is better; below 1, the peer is better."""
    ratio = result.ratio(metric).median
    return ratio if METRICS[metric].is_rate else 1 / ratio


def verdicts(results: Sequence[RowResult], goals: Sequence[Goal] = GOALS) -> list[Verdict]:
    """Judge every row with a goal; a goal without a peer applies to the best one of the row."""
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
