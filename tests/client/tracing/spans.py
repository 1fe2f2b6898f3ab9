"""Spans of a client, in memory."""

from collections.abc import Mapping, Sequence
from typing import Final, final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler
from opentelemetry.trace import SpanContext


@final
class Spans:
    """A provider of tracers, and the spans that ended."""

    def __init__(self, sampler: Sampler = DEFAULT_ON) -> None:
        self.provider: Final = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Final = self.provider.get_tracer("application")

    def __call__(self, name: str = "") -> Sequence[ReadableSpan]:
        """Return spans whose name begins so, in the order of their ends."""
        found = self._exporter.get_finished_spans()
        return [span for span in found if span.name.startswith(name)]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (span,) = (span for span in self() if span.name == name)
        return span


def context_of(span: ReadableSpan) -> SpanContext:
    """Return the context of a span."""
    context: SpanContext | None = span.context
    assert context is not None
    return context


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Return trace id and span id."""
    return context_of(span).trace_id, context_of(span).span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    """Return the ids of the linked spans."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def attributes(span: ReadableSpan) -> Mapping[str, object]:
    """Return the attributes of a span."""
    return span.attributes or {}


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    """Return the ids of the parent."""
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def names_of(headers: Sequence[tuple[str, bytes]]) -> list[str]:
    """Return the names of headers."""
    return [name for name, _ in headers]
