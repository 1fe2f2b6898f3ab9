"""Messages about metrics: their values at one broker, at one moment.

Pure: declarations.
"""

import msgspec

from tidelog.wire.messages.field_types import Listed


class ReadMetricsRequest(msgspec.Struct, frozen=True, array_like=True):
    """The metrics to read."""

    families: Listed[str]
    """Beginnings of names without `tidelog_`, such as `queue`; empty for all."""
    names: str
    """Globs with commas for the names of topics, queues and groups; empty for all."""


class MetricHistogram(msgspec.Struct, frozen=True, array_like=True):
    """The state of a histogram."""

    bounds: list[float]
    """Upper bounds of the buckets, ascending, without infinity."""
    counts: list[int]
    """Observations up to each bound, and last all of them."""
    sum: float


class MetricSample(msgspec.Struct, frozen=True, array_like=True):
    """One value of a metric."""

    labels: list[str]
    """Values, in the order of the labels of the metric."""
    value: float
    """0 for a histogram."""
    histogram: MetricHistogram | None = None


class MetricFamily(msgspec.Struct, frozen=True, array_like=True):
    """A metric and its values."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    labels: list[str]
    """Names of the labels."""
    samples: list[MetricSample]


class ReadMetricsReply(msgspec.Struct, frozen=True, array_like=True):
    """Metrics of one broker."""

    families: list[MetricFamily]
    """See `docs/metrics.md`; a version may add and remove metrics."""
    time_ms: int
    """Milliseconds of a clock that only grows, for rates between two replies of a process."""
