"""Spans of OpenTelemetry for the operations of a client.

Shell: the only module of the client that imports `opentelemetry`. The spans follow the semantic
conventions for messaging: the context of a `send` span is the creation context of its messages.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Final, final

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidelog.client.tracing import names
from tidelog.client.tracing.trace_context import (
    TRACEPARENT,
    TRACESTATE,
    carrier_of,
    has_context,
    headers_of,
)
from tidelog.client.tracing.tracing import Delivered, Sent
from tidelog.wire.batch.record_batch import Headers

LINKS_MAX: Final = 128
"""Maximum links of a span, as many as the SDK keeps by default."""
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_Attributes = dict[str, str | int]


@final
class OtelSpan:
    """Span of one operation of the client."""

    def __init__(self, span: Span, context: Headers = ()) -> None:
        """Wrap a span; `context` is for the headers of its messages."""
        self.context = context
        self._span = span

    def fail(self, error: Exception) -> None:
        """Set status and `error.type`, and record the exception."""
        record_failure(self._span, error)

    def sent(self, results: Sequence[Sent | Exception]) -> None:
        """Record the place of a single message, or the first error and the number of errors."""
        if not self._span.is_recording():
            return
        failures = [result for result in results if isinstance(result, Exception)]
        if failures:
            record_failure(self._span, failures[0])
        if len(results) != 1:
            if failures:
                self._span.set_attribute(names.FAILED_COUNT, len(failures))
            return
        (result,) = results
        if not isinstance(result, Exception):
            self._span.set_attribute(names.PARTITION, str(result.partition))
            if result.message_id:
                self._span.set_attribute(names.MESSAGE_ID, result.message_id)

    def received(self, messages: Sequence[Delivered]) -> None:
        """Add the number of messages, and links to the spans that sent them."""
        if self._span.is_recording():
            self._span.set_attribute(names.MESSAGE_COUNT, len(messages))
            for link in links_to(messages):
                self._span.add_link(link.context, link.attributes)


@final
class OtelTracing:
    """Makes the spans of one client; see `Tracing`."""

    def __init__(
        self, tracer: Tracer, *, client_id: str = "", is_producer_parent: bool = False
    ) -> None:
        """Start spans with `tracer`.

        Args:
            tracer: Tracer of the application's provider.
            client_id: Name of the client, an attribute of all spans.
            is_producer_parent: Whether the span that sent a message is the parent of its `process`
                span, in addition to the link.
        """
        self._tracer = tracer
        self._is_producer_parent = is_producer_parent
        self._common: Final[_Attributes] = {names.SYSTEM: names.TIDELOG}
        if client_id:
            self._common[names.CLIENT_ID] = client_id

    def create(self, topic: str, headers: Headers) -> Headers:
        """Return headers with the context of a `create` span, if a context is current."""
        # A context without values has no span; that is known at a tenth of the cost.
        if not get_current() or not _current().is_valid or has_context(headers):
            return headers
        span = self._start(names.CREATE, topic, SpanKind.PRODUCER)
        span.end()
        return (*headers, *_context_headers(span))

    @contextmanager
    def send(
        self, destination: str, headers: Iterable[Iterable[object]], *, count: int
    ) -> Generator[OtelSpan, None, None]:
        """Run the block in a `send` span; see `Tracing.send`."""
        attributes: _Attributes = {names.MESSAGE_COUNT: count} if count != 1 else {}
        own = [creation_context(_well_formed(each)) for each in headers if has_context(each)]
        # Without a message to carry its context, it is the call that sends what others created.
        kind = SpanKind.CLIENT if own and len(own) == count else SpanKind.PRODUCER
        links = [Link(each) for each in islice(filter(None, own), LINKS_MAX)]
        is_current = _current().is_valid
        span = self._start(names.SEND, destination, kind, attributes=attributes, links=links)
        is_propagated = is_current or span.get_span_context().trace_flags.sampled
        context = _context_headers(span) if is_propagated else ()
        with _running(span):
            yield OtelSpan(span, context)

    @contextmanager
    def receive(self, queue: str) -> Generator[OtelSpan, None, None]:
        """Run the block in a `receive` span; see `Tracing.receive`."""
        with _running(self._start(names.RECEIVE, queue, SpanKind.CLIENT)) as span:
            yield OtelSpan(span)

    @contextmanager
    def settle(
        self, queue: str, operation: str, messages: Sequence[Delivered], *, count: int
    ) -> Generator[OtelSpan, None, None]:
        """Run the block in a span of a settlement, such as `delete`; see `Tracing.settle`."""
        attributes: _Attributes = {names.MESSAGE_COUNT: count} if count != 1 else {}
        if count == 1 and messages:
            attributes |= _place(messages[0])
        links = list(links_to(messages))
        span = self._start(
            operation,
            queue,
            SpanKind.CLIENT,
            operation_type=names.SETTLE,
            attributes=attributes,
            links=links,
        )
        with _running(span):
            yield OtelSpan(span)

    @contextmanager
    def process(self, queue: str, message: Delivered) -> Generator[OtelSpan, None, None]:
        """Run the block in a `process` span; see `Tracing.process`."""
        with self.processing(message, destination=queue) as span:
            yield OtelSpan(span)

    @contextmanager
    def processing(
        self, message: Delivered, *, destination: str, attributes: Mapping[str, str] | None = None
    ) -> Generator[Span, None, None]:
        """Run the block in a `process` span, linked to the span that sent the message."""
        links = list(links_to([message]))
        context = None
        if self._is_producer_parent and links:
            ambient = _current()
            context = trace.set_span_in_context(NonRecordingSpan(links[0].context))
            if ambient.is_valid:
                links.append(Link(ambient))
        span = self._start(
            names.PROCESS,
            destination,
            SpanKind.CONSUMER,
            attributes={**_place(message), **(attributes or {})},
            links=links,
            context=context,
        )
        with _running(span):
            yield span

    def _start(
        self,
        operation: str,
        destination: str,
        kind: SpanKind,
        *,
        operation_type: str | None = None,
        attributes: Mapping[str, str | int] | None = None,
        links: Sequence[Link] = (),
        context: Context | None = None,
    ) -> Span:
        return self._tracer.start_span(
            f"{operation} {destination}",
            context,
            kind,
            {
                **self._common,
                names.OPERATION_NAME: operation,
                names.OPERATION_TYPE: operation_type or operation,
                names.DESTINATION: destination,
                **(attributes or {}),
            },
            links,
        )


def creation_context(headers: Headers) -> SpanContext | None:
    """Return the context of the span that sent a message; `None` without a valid one."""
    carrier = carrier_of(headers)
    if TRACEPARENT not in carrier:
        return None
    return _extracted(carrier[TRACEPARENT], carrier.get(TRACESTATE))


@lru_cache(maxsize=256)  # The messages of a batch share a context.
def _extracted(traceparent: str, tracestate: str | None) -> SpanContext | None:
    carrier = {TRACEPARENT: traceparent}
    if tracestate is not None:
        carrier[TRACESTATE] = tracestate
    context = _PROPAGATOR.extract(carrier, Context())
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def links_to(messages: Iterable[Delivered]) -> Iterator[Link]:
    """Yield links to the spans that sent the messages, `LINKS_MAX` of them at most."""
    found = (
        Link(context, {names.MESSAGE_ID: f"{message.partition}-{message.offset}"})
        for message in messages
        if (context := creation_context(message.headers)) is not None
    )
    return islice(found, LINKS_MAX)


def record_failure(span: Span, error: Exception) -> None:
    """Set status and `error.type` of a span, and record the exception."""
    span.set_attribute(names.ERROR_TYPE, error_type(error))
    span.set_status(trace.StatusCode.ERROR, str(error))
    span.record_exception(error)


def error_type(error: Exception) -> str:
    """Return the name of an exception; those of tidelog have their public names."""
    cls = type(error)
    package = cls.__module__.split(".")[0]
    if package == "builtins":
        return cls.__qualname__
    return f"{package if package == names.TIDELOG else cls.__module__}.{cls.__qualname__}"


@contextmanager
def _running(span: Span) -> Generator[Span, None, None]:
    """Make a span the current one for a block, and end it; an exception fails it."""
    with trace.use_span(
        span, end_on_exit=True, record_exception=False, set_status_on_exception=False
    ):
        try:
            yield span
        except Exception as error:
            record_failure(span, error)
            raise


def _current() -> SpanContext:
    return trace.get_current_span().get_span_context()


def _context_headers(span: Span) -> Headers:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
    return headers_of(carrier)


def _place(message: Delivered) -> _Attributes:
    return {
        names.PARTITION: str(message.partition),
        names.MESSAGE_ID: f"{message.partition}-{message.offset}",
    }


def _well_formed(headers: Iterable[object]) -> Headers:
    """Return those of the application's headers that are pairs of str and bytes."""
    found: list[tuple[str, bytes]] = []
    for header in headers:
        match header:
            case (str() as name, bytes() as value):
                found.append((name, value))
            case _:
                pass  # The send refuses it.
    return tuple(found)
