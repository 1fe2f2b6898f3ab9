"""The pages of metrics: `/metrics`, and `/metrics/partitions?topic=NAME` for single partitions.

Prometheus scrapes the first one. The second one has a series for each partition, so it answers only
for topics that are named.
"""

from collections.abc import Callable
from typing import Final

from tidelog.broker.collectors.metrics_collector import MetricsCollector, MetricSelection
from tidelog.broker.collectors.partition_collector import PartitionCollector
from tidelog.broker.http.page import Handler, Page, Query, text_page
from tidelog.coordinator.groups.pattern import TopicPattern
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.metrics.exposition import CONTENT_TYPE, expose

METRICS: Final = "/metrics"
PARTITIONS: Final = "/metrics/partitions"
_PARAMETERS: Final = {METRICS: {"family", "name"}, PARTITIONS: {"topic"}}


def metrics_pages(
    collector: Callable[[], MetricsCollector | None],
    partitions: Callable[[], PartitionCollector | None],
) -> dict[str, Handler]:
    """Return the pages of metrics, by path; both are `None` before clients are served."""

    async def metrics(query: Query) -> Page:
        found = collector()
        if found is None:
            return _not_ready()
        try:
            families, names = _given(query, "family"), _pattern(query, "name")
        except InvalidRequestError as error:
            return text_page(str(error), 400)
        return Page(
            200, CONTENT_TYPE, expose(await found.collect(MetricSelection(families, names)))
        )

    async def partition_metrics(query: Query) -> Page:
        found = partitions()
        if found is None:
            return _not_ready()
        try:
            names = _pattern(query, "topic")
        except InvalidRequestError as error:
            return text_page(str(error), 400)
        if names is None:
            return text_page(f"name a topic: {PARTITIONS}?topic=orders, or a glob", 400)
        return Page(200, CONTENT_TYPE, expose(await found.families(names)))

    return {METRICS: metrics, PARTITIONS: partition_metrics}


def _not_ready() -> Page:
    return text_page("this broker serves no clients yet; /health/ready says why", 503)


def _given(query: Query, parameter: str) -> list[str]:
    """Return the values of a parameter, which may have several, or one with commas.

    Raises:
        InvalidRequestError: The query has an unknown parameter.
    """
    allowed = _PARAMETERS[query.path]
    unknown = sorted(query.parameters.keys() - allowed)
    if unknown:
        raise InvalidRequestError(
            f"{query.path} has no parameter {unknown[0]!r}; it has {', '.join(sorted(allowed))}"
        )
    values = query.parameters.get(parameter, ())
    return [each for value in values for each in value.split(",") if each]


def _pattern(query: Query, parameter: str) -> TopicPattern | None:
    """Return a parameter with globs.

    Raises:
        InvalidRequestError: A glob is not valid, or the query has an unknown parameter.
    """
    globs = _given(query, parameter)
    return TopicPattern(",".join(globs)) if globs else None
