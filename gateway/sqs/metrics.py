"""Metrics of the SQS front: their catalog, and the counters (`docs/metrics.md`).

Pure: no clock, no I/O.
"""

from collections.abc import Mapping
from typing import Final, final

from tidelog.wire.metrics.metric import Family, Histogram, Metric, MetricKind, family, single

NO_ACTION: Final = "none"
"""Action of requests that name none of the service."""

_SECONDS_BOUNDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 20.0, 30.0),
)

REQUESTS: Final = Metric(
    "tidelog_sqs_requests_total",
    MetricKind.COUNTER,
    "Requests that were answered, by the name of their error; empty for success",
    ("action", "error"),
)
REQUEST_SECONDS: Final = Metric(
    "tidelog_sqs_request_seconds",
    MetricKind.HISTOGRAM,
    "Time from a complete request to its response; a receive may wait for messages",
    ("action",),
    _SECONDS_BOUNDS,
)
ABANDONED: Final = Metric(
    "tidelog_sqs_abandoned_receives_total",
    MetricKind.COUNTER,
    "Receives whose client hung up before the response",
)
WAITING: Final = Metric(
    "tidelog_sqs_receives_under_way", MetricKind.GAUGE, "Receives that wait for messages"
)
OPEN_CONNECTIONS: Final = Metric(
    "tidelog_sqs_connections", MetricKind.GAUGE, "Open connections of clients of the SQS front"
)
ACCEPTED: Final = Metric(
    "tidelog_sqs_connections_opened_total",
    MetricKind.COUNTER,
    "Connections of clients that the SQS front accepted",
)
REFUSED: Final = Metric(
    "tidelog_sqs_connections_refused_total",
    MetricKind.COUNTER,
    "Connections that the SQS front refused because there were too many",
)
USERS: Final = Metric(
    "tidelog_sqs_access_keys",
    MetricKind.GAUGE,
    "Access keys for which the SQS front has a client of its own now",
)

SECTIONS: Final[Mapping[str, tuple[Metric, ...]]] = {
    "Requests": (REQUESTS, REQUEST_SECONDS, WAITING, ABANDONED),
    "Connections": (OPEN_CONNECTIONS, ACCEPTED, REFUSED, USERS),
}
"""All metrics of a front, by the headings of `docs/metrics.md`."""


@final
class FrontMetrics:
    """Counters of requests; they are touched on the hot path."""

    def __init__(self) -> None:
        """Start without requests."""
        self._counts: dict[tuple[str, str], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self.waiting_count = 0
        """Receives under way."""
        self.abandoned_count = 0
        """Receives that ended because their client hung up."""

    def note(self, action: str, error: str, seconds: float) -> None:
        """Count a request that was answered; `error` is empty for success."""
        key = (action, error)
        self._counts[key] = self._counts.get(key, 0) + 1
        histogram = self._seconds.get(action)
        if histogram is None:
            histogram = self._seconds[action] = Histogram(REQUEST_SECONDS)
        histogram.observe(seconds)

    def families(self) -> list[Family]:
        """Return the metrics of requests."""
        seconds = [((action,), each.value()) for action, each in self._seconds.items()]
        return [
            family(REQUESTS, list(self._counts.items())),
            family(REQUEST_SECONDS, seconds),
            single(WAITING, self.waiting_count),
            single(ABANDONED, self.abandoned_count),
        ]
