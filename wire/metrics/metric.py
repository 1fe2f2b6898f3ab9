"""Metrics and their values at one moment (Prometheus: metric families and samples).

Pure: no clock, no I/O.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any, Final, NamedTuple, final

_NAME: Final = re.compile(r"tidelog_[a-z][a-z0-9_]*|process_[a-z_]+")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class MetricKind(StrEnum):
    """How the values of a metric behave; the names are those of Prometheus."""

    COUNTER = "counter"
    """A total that only grows, and starts at 0 with the process."""
    GAUGE = "gauge"
    """A value that goes up and down."""
    HISTOGRAM = "histogram"
    """Counts of observations by upper bound, with their sum."""


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of one metric."""

    name: str
    """With its unit last, in base units: seconds, bytes; a counter ends in `_total`."""
    kind: MetricKind
    help: str
    """One sentence without a period."""
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of the buckets of a histogram, ascending, without infinity."""

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name), self.name
        assert all(map(_LABEL.fullmatch, self.labels)), self.labels
        assert self.name.endswith("_total") is (self.kind is MetricKind.COUNTER), self.name
        assert bool(self.bounds) is (self.kind is MetricKind.HISTOGRAM), self.name
        assert list(self.bounds) == sorted(set(self.bounds)), self.bounds

    def labelled(self, *values: str) -> "Labels":
        """Return values for the labels of this metric, in their order."""
        return Labels(self.labels, values)


@final
class Labels:
    """The values of some labels; a collector keeps and renders those of an object once."""

    __slots__ = ("braced", "names", "text", "values")

    def __init__(self, names: Sequence[str] = (), values: Sequence[str] = ()) -> None:
        """Give each label its value; both in the same order."""
        assert len(names) == len(values), "each label has one value"
        self.names = tuple(names)
        self.values = tuple(values)
        self.text = ",".join(
            f'{name}="{value.translate(_ESCAPES)}"'
            for name, value in zip(names, values, strict=True)
        )
        """The labels in Prometheus' text format, without braces."""
        self.braced = f"{{{self.text}}}" if names else ""


NO_LABELS: Final = Labels()


@final
class Histogram:
    """Counts of observations; touched on hot paths, so it has nothing but counts."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, metric: Metric) -> None:
        """Start without observations."""
        self._bounds = metric.bounds
        self._counts = [0] * (len(metric.bounds) + 1)
        self.sum = 0.0
        """Sum of all observed values."""

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self._counts)

    def value(self) -> "HistogramValue":
        """Return the state at this moment."""
        return HistogramValue(self._bounds, tuple(accumulate(self._counts)), self.sum)


class HistogramValue(NamedTuple):
    """The state of a histogram at one moment."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """Cumulative: the observations up to each bound, and last all observations."""
    sum: float


Value = float | HistogramValue
Sample = tuple[Labels, Value]


class Family(NamedTuple):
    """A metric and its values at one moment.

    They can be read once: thousands of them are made one by one, and burden no garbage collection.
    """

    metric: Metric
    samples: Iterable[Sample]


def single(metric: Metric, value: Value) -> Family:
    """Return the family of a metric without labels."""
    return Family(metric, [(NO_LABELS, value)])


def family(metric: Metric, values: Iterable[tuple[tuple[str, ...], Value]]) -> Family:
    """Return the family of a metric, from label values and values."""
    return Family(metric, ((metric.labelled(*labels), value) for labels, value in values))


def table(
    metric: Metric, labels: Iterable[Labels], rows: Iterable[Any], *, value: Callable[[Any], Value]
) -> Family:
    """Return the family with a value of each row, whose labels are in the same order."""
    return Family(metric, zip(labels, map(value, rows), strict=True))
