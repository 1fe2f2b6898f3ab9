"""Traces: spans of OpenTelemetry for sends, receives, settlements and handlers.

    pip install 'tidelog[otel]'

    async with tidelog.connect("127.0.0.1:8433") as client:
        tidelog.tracing.instrument(client)

Nothing is traced without `instrument`. Spans follow the semantic conventions of OpenTelemetry for
messaging, which are not stable: names of spans and attributes may change in any version.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from tidelog import __version__, aio, blocking
from tidelog.client.client import Client
from tidelog.client.queue.inspect.history import HistoryEvent
from tidelog.client.queue.inspect.message_story import MessageInterval, MessageStory
from tidelog.client.tracing import names
from tidelog.client.tracing.tracing import Delivered

try:
    from opentelemetry import trace
    from opentelemetry.trace import Link, NonRecordingSpan, Span, Tracer, TracerProvider

    from tidelog.client.tracing.otel_tracing import OtelTracing, creation_context
except ImportError as error:
    raise ImportError(
        "tidelog.tracing requires opentelemetry-api; pip install 'tidelog[otel]'"
    ) from error

__all__ = ["instrument", "process", "replay_history", "uninstrument"]

_NS_PER_MS: Final = 1_000_000


def instrument(
    client: Client | aio.Client | blocking.Client,
    *,
    tracer_provider: TracerProvider | None = None,
    producer_as_parent: bool = False,
) -> None:
    """Make spans of the calls of a client, and propagate their contexts in headers.

    Call it right after `connect`: producers that exist already stay without spans.

    Args:
        client: The client.
        tracer_provider: Provider of tracers; by default, the global one of OpenTelemetry.
        producer_as_parent: Whether the span that sent a message is the parent of its `process` span
            in workers, so that both are in one trace. They are linked in any case.
    """
    client.tracing = OtelTracing(
        _tracer(tracer_provider),
        client_id=client.client_id,
        is_producer_parent=producer_as_parent,
    )


def uninstrument(client: Client | aio.Client | blocking.Client) -> None:
    """Make no more spans of the calls of a client; producers that exist already go on."""
    client.tracing = None


@contextmanager
def process(
    record: Delivered,
    *,
    destination: str | None = None,
    group_id: str | None = None,
    tracer_provider: TracerProvider | None = None,
    producer_as_parent: bool = False,
) -> Generator[Span, None, None]:
    """Run the block in a `process` span, linked to the span that sent the record.

    For records of consumers, and for messages of `receive` and `subscribe`; workers make these
    spans themselves. An exception that leaves the block fails the span.

    Args:
        record: Record or message.
        destination: Name for the span; by default the topic. For a message, give its queue.
        group_id: Consumer group of the program, an attribute.
        tracer_provider: Provider of tracers; by default, the global one of OpenTelemetry.
        producer_as_parent: As for `instrument`.
    """
    attributes = {} if group_id is None else {names.GROUP: group_id}
    tracing = _tracing(tracer_provider, is_producer_parent=producer_as_parent)
    with tracing.processing(
        record, destination=destination or record.topic, attributes=attributes
    ) as span:
        yield span


def replay_history(story: MessageStory, *, tracer_provider: TracerProvider | None = None) -> int:
    """Make spans of what happened to a message in a queue, with the times of then.

    `replay_history(await queue.story(message_id))` makes a span `history QUEUE` with one child for
    each time that the message waited (`wait QUEUE`) or was in flight (`lease QUEUE`). It is a child
    of the span that sent the message, if the record has its context; so the sampler decides as for
    other spans of that trace. A lease that expired, was released for a reason, or ended as a dead
    letter has the status of an error. Each call makes new spans.

    Returns:
        Number of recorded spans; 0 if the history has no event, or the trace is not sampled.
    """
    if not story.intervals:
        return 0
    tracer = _tracer(tracer_provider)
    creation = creation_context(story.headers)
    context = None
    if creation is not None:
        context = trace.set_span_in_context(NonRecordingSpan(creation))
    root = tracer.start_span(
        f"{names.HISTORY} {story.queue}",
        context,
        attributes=_attributes(names.HISTORY, story),
        links=[Link(creation)] if creation else None,
        start_time=min(each.start_ms for each in story.intervals) * _NS_PER_MS,
    )
    is_recorded = root.is_recording()
    for event in story.events:
        root.add_event(str(event.kind), _event_attributes(event), event.time_ms * _NS_PER_MS)
    for interval in story.intervals:
        _replay(tracer, story, interval, root=root)
    root.end(max(each.end_ms for each in story.intervals) * _NS_PER_MS)
    return 1 + len(story.intervals) if is_recorded else 0


def _replay(tracer: Tracer, story: MessageStory, interval: MessageInterval, *, root: Span) -> None:
    operation = names.LEASE if interval.is_lease else names.WAIT
    found = {names.HOLDER: interval.holder, names.REASON: interval.reason}
    attributes = _attributes(operation, story)
    attributes |= {name: text for name, text in found.items() if text}
    attributes[names.OUTCOME] = interval.outcome
    if interval.receive_count:
        attributes[names.RECEIVE_COUNT] = interval.receive_count
    span = tracer.start_span(
        f"{operation} {story.queue}",
        trace.set_span_in_context(root),
        attributes=attributes,
        start_time=interval.start_ms * _NS_PER_MS,
    )
    if interval.is_failure:
        span.set_attribute(names.ERROR_TYPE, interval.outcome)
        reason = interval.reason.partition("\n")[0]
        span.set_status(trace.StatusCode.ERROR, reason or interval.outcome)
    span.end(interval.end_ms * _NS_PER_MS)


def _attributes(operation: str, story: MessageStory) -> dict[str, str | int]:
    return {
        names.SYSTEM: names.TIDELOG,
        names.OPERATION_NAME: operation,
        names.DESTINATION: story.queue,
        names.PARTITION: story.message_id.partition("-")[0],
        names.MESSAGE_ID: story.message_id,
    }


def _event_attributes(event: HistoryEvent) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {names.RECEIVE_COUNT: event.receive_count}
    found = {names.HOLDER: event.holder, names.REASON: event.reason}
    return attributes | {name: text for name, text in found.items() if text}


@lru_cache(maxsize=4)  # A tracer costs more than a span.
def _tracing(provider: TracerProvider | None, *, is_producer_parent: bool) -> OtelTracing:
    return OtelTracing(_tracer(provider), is_producer_parent=is_producer_parent)


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("tidelog", __version__, provider)
