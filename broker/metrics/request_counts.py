"""Counts of the requests of one API."""

from collections import Counter
from typing import final

from tidelog.broker.metrics.catalog import REQUEST_DURATION
from tidelog.wire.metrics.metric import Histogram


@final
class RequestCounts:
    """Answers by error code, and the time that they took."""

    __slots__ = ("durations", "errors", "ok")

    def __init__(self) -> None:
        """Start without requests."""
        self.ok = 0
        """Requests that were answered without an error for the request as a whole."""
        self.errors: Counter[str] = Counter()
        """Other requests, by the name of the error code."""
        self.durations = Histogram(REQUEST_DURATION)
        """Seconds to the answer, or until the request began to wait for data."""
