"""The Prometheus collector of a client's statistics; needs `pip install 'tidelog[prometheus]'`.

    from prometheus_client import REGISTRY, start_http_server
    from tidelog.prometheus import ClientCollector

    REGISTRY.register(ClientCollector(client))
    start_http_server(8000)

Scrapes run in threads of their own: they read the counters of the client and wait for nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, final

from tidelog.client.metrics.catalog import SECTIONS
from tidelog.client.metrics.statistics import ClientStatistics
from tidelog.wire.metrics.metric import Family, HistogramValue, Metric, MetricKind

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "tidelog.prometheus cannot be imported: prometheus_client is missing;"
        " run: pip install 'tidelog[prometheus]'"
    ) from error

PrometheusFamily = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_LABEL: Final = "client"


class HasStatistics(Protocol):
    """A client: `tidelog.Client`, or that of `tidelog.aio` or `tidelog.blocking`."""

    def statistics(self) -> ClientStatistics:
        """Return a snapshot; any thread may call this."""
        ...


@final
class ClientCollector(Collector):
    """Statistics of clients as metrics (`prometheus_client.registry.Collector`).

    Each series has the label `client`. A registry takes one collector: further clients are added
    to it.
    """

    def __init__(self, client: HasStatistics, *, name: str | None = None) -> None:
        """Collect the statistics of `client`; see `add`."""
        self._clients: dict[str, HasStatistics] = {}
        self.add(client, name=name)

    def add(self, client: HasStatistics, *, name: str | None = None) -> None:
        """Collect the statistics of another client, too.

        Args:
            client: Client.
            name: Value of the label `client`; by default the setting `client_id`.

        Raises:
            ValueError: Another client has this name.
        """
        label = client.statistics().client_id if name is None else name
        if self._clients.setdefault(label, client) is not client:
            raise ValueError(
                f"cannot collect statistics: another client is named {label!r} already;"
                f" give each client a name or a client_id of its own"
            )

    def remove(self, name: str) -> None:
        """Stop collecting the statistics of a client.

        Raises:
            KeyError: No client has this name.
        """
        del self._clients[name]

    def describe(self) -> Iterator[PrometheusFamily]:
        """Yield all metrics without samples; the registry checks their names."""
        for section in SECTIONS.values():
            for metric in section:
                yield _family_of(metric)

    def collect(self) -> Iterator[PrometheusFamily]:
        """Yield all metrics with the samples of all clients."""
        by_metric: dict[str, PrometheusFamily] = {}
        for name, client in self._clients.copy().items():
            for each in client.statistics().families():
                found = by_metric.get(each.metric.name)
                if found is None:
                    found = by_metric[each.metric.name] = _family_of(each.metric)
                _add_samples(found, each, name)
        yield from by_metric.values()


def _family_of(metric: Metric) -> PrometheusFamily:
    labels = [_LABEL, *metric.labels]
    match metric.kind:
        case MetricKind.COUNTER:
            return CounterMetricFamily(metric.name, metric.help, labels=labels)
        case MetricKind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.help, labels=labels)
        case MetricKind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.help, labels=labels)


def _add_samples(found: PrometheusFamily, given: Family, client: str) -> None:
    for labels, value in given.samples:
        values = [client, *labels.values]
        if isinstance(found, HistogramMetricFamily):
            assert isinstance(value, HistogramValue), "a histogram has such values"
            found.add_metric(values, _buckets(value), sum_value=value.sum)
        else:
            assert not isinstance(value, HistogramValue), "the others have numbers"
            found.add_metric(values, value)


def _buckets(value: HistogramValue) -> Sequence[tuple[str, float]]:
    bounds = [*map(repr, value.bounds), "+Inf"]
    return list(zip(bounds, value.counts, strict=True))
