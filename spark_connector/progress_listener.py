"""Listener that reports the metrics of streams after each batch.

Shell: logs, or calls a function of the program that has the queries.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tidelog.spark_connector.lag import metrics

Report = Callable[[str, Mapping[str, float]], object]
"""Takes the name of a query, or its id without one, and its metrics."""
_log: Final = logging.getLogger("tidelog.spark")


@final
class ProgressListener(StreamingQueryListener):
    """Listener of all queries of a session; those without a tidelog source do not concern it."""

    def __init__(self, report: Report | None) -> None:
        """Call `report` after each batch; `None`: write a line to the log `tidelog.spark`."""
        self._report = report or _LogLines().add

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report the metrics of the batch; an error of the report stops no query."""
        progress = event.progress
        found = metrics(progress.json)
        if not found:
            return
        try:
            self._report(progress.name or str(progress.id), found)
        except Exception:  # noqa: BLE001 (a function of the program may raise anything)
            _log.exception("the metrics of query %s were not reported", progress.name)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: the last progress was reported."""


@final
class _LogLines:
    """Reports as lines: a warning when a query has lost data, information otherwise."""

    def __init__(self) -> None:
        self._losses: dict[str, float] = {}

    def add(self, query: str, found: Mapping[str, float]) -> None:
        losses = found["dataLosses"]
        is_news = losses > self._losses.get(query, 0)
        self._losses[query] = losses
        _log.log(
            logging.WARNING if is_news else logging.INFO,
            "query %s: %d rows, about %d bytes; %d to %d offsets behind, about %d bytes; %d data"
            " losses",
            query,
            found["inputRows"],
            found["estimatedInputBytes"],
            found["minOffsetsBehindLatest"],
            found["maxOffsetsBehindLatest"],
            found["estimatedTotalBytesBehindLatest"],
            losses,
        )
