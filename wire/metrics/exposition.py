"""Exposition of metrics in the text format of Prometheus, version 0.0.4.

Pure: no clock, no I/O. Text comes in chunks, so that a shell can run other tasks in between: for
twenty thousand series a library renders for seconds (decision 0033).
Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.wire.metrics.metric import Family, HistogramValue, Labels

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LINES_PER_CHUNK: Final = 500
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def expose(families: Iterable[Family]) -> Iterator[bytes]:
    """Yield the text of metrics, in chunks that take less than a millisecond each."""
    lines: list[str] = []
    for each in families:
        name, help_text = each.metric.name, each.metric.help.translate(_HELP_ESCAPES)
        lines.append(f"# HELP {name} {help_text}\n# TYPE {name} {each.metric.kind}\n")
        for labels, value in each.samples:
            if isinstance(value, HistogramValue):
                lines.extend(_histogram(name, labels, value))
            else:
                text = value if isinstance(value, int) else _number(value)
                lines.append(f"{name}{labels.braced} {text}\n")
            if len(lines) >= _LINES_PER_CHUNK:
                yield "".join(lines).encode()
                lines = []
    if lines:
        yield "".join(lines).encode()


def _histogram(name: str, labels: Labels, value: HistogramValue) -> Iterator[str]:
    prefix = f"{labels.text}," if labels.text else ""
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        yield f'{name}_bucket{{{prefix}le="{_number(bound)}"}} {count}\n'
    yield f"{name}_sum{labels.braced} {_number(value.sum)}\n"
    yield f"{name}_count{labels.braced} {value.counts[-1]}\n"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
