"""Rates and quantiles between two readings of a broker (PromQL: rate, histogram_quantile).

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.wire.messages.metrics import MetricHistogram, MetricSample

_START: Final = "process_start_time_seconds"

LabelValues = tuple[str, ...]
"""Values of the labels of a series, in the order of the labels of its metric."""


@final
class MetricRates:
    """The metrics of one broker, and how they changed since a reading before.

    A counter that is smaller than before was reset to 0, and one that is new began at 0. Nothing is
    known about the rates of a broker that was restarted meanwhile: the second reading should have
    `process_start_time_seconds`.
    """

    def __init__(self, before: BrokerMetrics | None, after: BrokerMetrics) -> None:
        """Compare two readings of the same node; `before` is `None` for the first one."""
        self._after = after
        self._before: BrokerMetrics | None = None
        self.elapsed_s: float | None = None
        """Seconds between the readings; `None` if there are no rates."""
        if before is None or before.time_s is None or after.time_s is None:
            return
        elapsed_s = after.time_s - before.time_s
        if elapsed_s > 0 and _series(before, _START) == _series(after, _START):
            self._before, self.elapsed_s = before, elapsed_s

    def values(self, name: str) -> dict[LabelValues, float]:
        """Return the present values of a metric."""
        return _series(self._after, name)

    def rates(self, name: str) -> dict[LabelValues, float] | None:
        """Return the increase per second of the series of a counter; `None` if it is unknown."""
        if self._before is None or self.elapsed_s is None:
            return None
        before, rates = _series(self._before, name), dict[LabelValues, float]()
        for labels, value in self.values(name).items():
            earlier = before.get(labels, 0.0)
            increase = value if value < earlier else value - earlier
            rates[labels] = increase / self.elapsed_s
        return rates

    def quantile(self, name: str, quantile: float) -> float | None:
        """Return a quantile of what a histogram observed between the readings, all series together.

        The observations within a bucket count as evenly spread. `None` without observations.
        """
        if self._before is None:
            return None
        before, increases = _histograms(self._before, name), list[list[int]]()
        bounds: Sequence[float] = ()
        for labels, histogram in _histograms(self._after, name).items():
            bounds = histogram.bounds
            increases.append(_increase(before.get(labels), histogram))
        return quantile_of(
            bounds, [sum(counts) for counts in zip(*increases, strict=True)], quantile
        )


def quantile_of(bounds: Sequence[float], counts: Sequence[int], quantile: float) -> float | None:
    """Return a quantile of cumulative counts; `None` without observations.

    Args:
        bounds: Upper bounds, ascending and above 0, without infinity.
        counts: Observations up to each bound, and last all of them.
        quantile: Above 0, at most 1.
    """
    if not counts or not counts[-1]:
        return None
    rank = quantile * counts[-1]
    place = next(place for place, count in enumerate(counts) if count >= rank)
    if place == len(bounds):
        return bounds[-1]  # Above the highest bound: that is all that is known.
    lower, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0)
    return lower + (bounds[place] - lower) * (rank - below) / (counts[place] - below)


def _increase(before: MetricHistogram | None, after: MetricHistogram) -> list[int]:
    if before is None or before.bounds != after.bounds or before.counts[-1] > after.counts[-1]:
        return after.counts
    return [new - old for old, new in zip(before.counts, after.counts, strict=True)]


def _samples(metrics: BrokerMetrics, name: str) -> Iterable[MetricSample]:
    family = metrics.families.get(name)
    return () if family is None else family.samples


def _series(metrics: BrokerMetrics, name: str) -> dict[LabelValues, float]:
    return {tuple(each.labels): each.value for each in _samples(metrics, name)}


def _histograms(metrics: BrokerMetrics, name: str) -> dict[LabelValues, MetricHistogram]:
    return {
        tuple(each.labels): each.histogram
        for each in _samples(metrics, name)
        if each.histogram is not None
    }
