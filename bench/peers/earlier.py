"""Comparison with an earlier run: what tidelog won then has to stay. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.figures import Spread
from bench.peers.goals import advantage
from bench.peers.results import METRICS, RowResult

KEPT: Final = 0.95
"""Share of an earlier advantage that a later run has to reach."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of a row that tidelog won in an earlier run."""

    result: RowResult
    metric: str
    then: Spread
    """Ratio to the peer in the earlier run."""
    now: Spread
    share: float
    """Factor of the advantage, now to then."""

    @property
    def title(self) -> str:
        """Description of the row and the figure."""
        row, what = self.result.row, self.result.what
        return f"{row.promise}: {what}: {METRICS[self.metric].title}"

    @property
    def is_kept(self) -> bool:
        """Whether the advantage is about as large as it was."""
        return self.share >= KEPT

    @property
    def overlaps(self) -> bool:
        """Whether the ranges of both runs overlap, so that the change may be chance."""
        return self.now.low <= self.then.high and self.then.low <= self.now.high


def changes(
    earlier: Sequence[RowResult], results: Sequence[RowResult], metrics: Sequence[str]
) -> list[Change]:
    """Return the figures that tidelog won earlier and that were measured again, worst first."""
    before = {(result.row, result.peer): result for result in earlier}
    found: list[Change] = []
    for result in results:
        old = before.get((result.row, result.peer))
        if old is None or old == result:
            continue
        for metric in metrics:
            if metric in old.metrics() and metric in result.metrics():
                then, now = advantage(old, metric), advantage(result, metric)
                if then >= 1:
                    pair = old.ratio(metric), result.ratio(metric)
                    found.append(Change(result, metric, *pair, now / then))
    return sorted(found, key=lambda change: change.share)
