"""Samples of messages about metrics."""

from tidelog.wire.messages.metrics import (
    MetricFamily,
    MetricHistogram,
    MetricSample,
    ReadMetricsReply,
    ReadMetricsRequest,
)

READ = (
    ReadMetricsRequest(families=["queue", "request"], names="pay-*,mail"),
    ReadMetricsReply(
        families=[
            MetricFamily(
                "tidelog_queue_ready", "gauge", ["queue"], [MetricSample(["pay-in"], 7.0)]
            ),
            MetricFamily(
                "tidelog_request_duration_seconds",
                "histogram",
                ["api"],
                [MetricSample(["SEND"], 0.0, MetricHistogram([0.25, 0.5], [3, 4, 5], 2.5))],
            ),
        ],
        time_ms=12_500,
    ),
)
