"""Handler of READ_METRICS: metrics of this broker, for `tidelog top` and for programs."""

from typing import Final, final

import trio

from tidelog.broker.collectors.metrics_collector import MetricsCollector, MetricSelection
from tidelog.coordinator.groups.pattern import TopicPattern
from tidelog.wire.messages.metrics import (
    MetricFamily,
    MetricHistogram,
    MetricSample,
    ReadMetricsReply,
    ReadMetricsRequest,
)
from tidelog.wire.metrics.metric import HistogramValue, Sample

_SAMPLES_AT_ONCE: Final = 1_000
"""Samples that are made into messages before other tasks run."""


@final
class ReadMetricsHandler:
    """Reads metrics for clients."""

    def __init__(self, collector: MetricsCollector) -> None:
        """Read those of `collector`."""
        self._collector = collector

    async def read(self, request: ReadMetricsRequest) -> ReadMetricsReply:
        """Return the metrics that are wanted.

        Raises:
            InvalidRequestError: The pattern for names is invalid.
        """
        names = TopicPattern(request.names) if request.names else None
        families: list[MetricFamily] = []
        count = 0
        for metric, found in await self._collector.collect(
            MetricSelection(request.families, names)
        ):
            samples: list[MetricSample] = []
            for sample in found:
                samples.append(_sample_of(sample))
                count += 1
                if count % _SAMPLES_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
            families.append(MetricFamily(metric.name, metric.kind, list(metric.labels), samples))
        return ReadMetricsReply(families, int(trio.current_time() * 1000))


def _sample_of(sample: Sample) -> MetricSample:
    labels, value = sample
    if isinstance(value, HistogramValue):
        histogram = MetricHistogram(list(value.bounds), list(value.counts), value.sum)
        return MetricSample(list(labels.values), 0.0, histogram)
    return MetricSample(list(labels.values), float(value))
