"""PromQL expressions against the catalog of metrics: names, labels, and functions of each kind.

`promtool` checks the syntax in `tests/system/prometheus/`; what is here it cannot know.
"""

import re
from collections.abc import Iterator
from typing import Final

from tidelog.broker.metrics.catalog import SECTIONS
from tidelog.gateway.sqs.metrics import SECTIONS as SQS_SECTIONS
from tidelog.wire.metrics.metric import Metric, MetricKind

METRICS: Final = {
    metric.name: metric
    for title, section in (*SECTIONS.items(), *SQS_SECTIONS.items())
    for metric in section
    if title != "Partitions of one topic"
}
"""The metrics of `/metrics`; those of one topic have a page of their own, which no job scrapes."""
TARGET_LABELS: Final = frozenset({"job", "instance", "cluster"})
"""Labels that the scrape configuration adds."""

_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SERIES: Final = re.compile(
    r"(?:\b(?P<function>[a-z_]+)\()?\b(?P<name>(?:tidelog|process)_\w+)(?:\{(?P<labels>[^}]*)\})?"
    r"(?P<range>\[)?"
)
_MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_LABELS: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_LABEL_REPLACE: Final = re.compile(r'label_replace\(.*,\s*"(\w+)",\s*"[^"]*",\s*"\w+"', re.DOTALL)
_BUCKETS: Final = re.compile(r"by \([^)]*\ble\b[^)]*\).*_bucket\b", re.DOTALL)
_OF_COUNTERS: Final = frozenset({"rate", "increase"})
_OF_GAUGES: Final = frozenset({"delta", "predict_linear"})


def metrics_of(expression: str) -> set[str]:
    """Return the names of all series of an expression, without `up`."""
    return {found["name"] for found in _SERIES.finditer(_TEXT.sub('""', expression))}


def complaints(expression: str) -> Iterator[str]:
    """Return what is wrong with the metrics and labels of an expression."""
    known = {*TARGET_LABELS, *_LABEL_REPLACE.findall(expression)}
    for found in _SERIES.finditer(_TEXT.sub('""', expression)):
        metric = _metric(found["name"])
        if metric is None:
            yield f"{found['name']} is not in the catalog"
            continue
        labels = {*metric.labels, *TARGET_LABELS}
        if found["name"].endswith("_bucket"):
            labels.add("le")
        known |= labels
        yield from _complaints_of_series(found, metric, labels)
    for label in re.findall(r"\w+", " ".join(_LABELS.findall(expression))):
        if label not in known:
            yield f"no metric has the label {label}"
    if "histogram_quantile" in expression and not _BUCKETS.search(expression):
        yield "histogram_quantile needs buckets by le"


def _complaints_of_series(found: re.Match[str], metric: Metric, labels: set[str]) -> Iterator[str]:
    name, function = found["name"], found["function"] or ""
    for label in _MATCHER.findall(found["labels"] or ""):
        if label not in labels:
            yield f"{name} has no label {label}"
    if (metric.kind is MetricKind.GAUGE) is (function in _OF_COUNTERS):
        yield f"{name} is a {metric.kind}, and its function is {function or 'none'}"
    if bool(found["range"]) is not (function in _OF_COUNTERS | _OF_GAUGES):
        yield f"{name} has a range without a function of ranges, or the opposite"


def _metric(name: str) -> Metric | None:
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    if base != name and (metric := METRICS.get(base)) and metric.kind is MetricKind.HISTOGRAM:
        return metric
    metric = METRICS.get(name)
    return None if metric is None or metric.kind is MetricKind.HISTOGRAM else metric
