"""Spans of queues: sends, receives, settlements and workers."""

from collections.abc import Callable

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import MockClock

from tests.client.queue_fixture import made, work_queue
from tests.client.tracing.spans import Spans, attributes, ids, linked, names_of, parent_of
from tidelog import tracing
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.worker import WorkerStatistics
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import BatchError


async def work(
    queue: Queue, handle: Callable[[Message], object], *, count: int = 1
) -> WorkerStatistics:
    """Handle so many messages, and stop when they are settled."""
    handled = 0

    async def handler(message: Message) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            worker.stop()
        await trio.lowlevel.checkpoint()
        handle(message)

    worker = queue.worker(handler, reject_on=(ValueError,))
    await worker.run()
    return worker.statistics


async def test_a_handler_is_linked_to_the_send(autojump_clock: MockClock) -> None:
    spans = Spans()
    seen: list[tuple[int, int]] = []

    def handle(message: Message) -> None:
        assert names_of(message.headers) == ["traceparent"]
        current = trace.get_current_span().get_span_context()
        seen.append((current.trace_id, current.span_id))

    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider)
        await queue.send(b"a")
        await work(queue, handle)

    send, process, delete = spans()
    assert (send.name, send.kind) == ("send work", SpanKind.PRODUCER)
    assert attributes(send)["messaging.message.id"] == "0-0"
    assert (process.name, process.kind) == ("process work", SpanKind.CONSUMER)
    assert (linked(process), parent_of(process)) == ([ids(send)], None)
    assert seen == [ids(process)]
    assert (delete.name, delete.kind) == ("delete work", SpanKind.CLIENT)
    assert (parent_of(delete), linked(delete)) == (ids(process), [ids(send)])
    assert attributes(delete)["messaging.operation.type"] == "settle"


async def test_the_send_may_be_the_parent_of_the_handler(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider, producer_as_parent=True)
        await queue.send(b"a")
        with spans.tracer.start_as_current_span("worker"):
            await work(queue, lambda _: None)

    send, process = spans.one("send work"), spans.one("process work")
    assert parent_of(process) == ids(send)
    assert linked(process) == [ids(send), ids(spans.one("worker"))]


async def test_a_receive_is_linked_to_its_messages(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider)
        for number in range(3):
            await queue.send(b"%d" % number)
        await queue.send_batch([b"3", OutgoingMessage(value=b"4", headers=iter([("x", b"1")]))])
        with spans.tracer.start_as_current_span("poll"):
            messages = await queue.receive(10)
        assert await queue.receive(10, wait=0) == []
        await queue.delete_batch(messages[:4])
        await messages[4].release()

    sends = [ids(span) for span in spans("send")]
    full, empty = spans("receive")
    assert (full.name, full.kind) == ("receive work", SpanKind.CLIENT)
    assert parent_of(full) == ids(spans.one("poll"))
    assert linked(full) == [*sends, sends[-1]]
    assert [(link.attributes or {})["messaging.message.id"] for link in full.links] == [
        f"0-{offset}" for offset in range(5)
    ]
    assert attributes(full)["messaging.batch.message_count"] == 5
    assert attributes(empty)["messaging.batch.message_count"] == 0
    delete, release = spans.one("delete work"), spans.one("release work")
    assert attributes(delete)["messaging.batch.message_count"] == 4
    assert linked(delete) == sends
    assert (linked(release), attributes(release)["messaging.message.id"]) == (sends[-1:], "0-4")
    assert names_of(messages[4].headers) == ["x", "traceparent"]


async def test_a_span_has_at_most_128_links(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider)
        await queue.send_batch([b"%d" % number for number in range(200)])
        messages = await queue.receive(1000)
        await queue.delete_batch(messages)

    receive = spans.one("receive work")
    assert attributes(receive)["messaging.batch.message_count"] == len(messages) == 200
    assert [len(span.links) for span in (receive, spans.one("delete work"))] == [128, 128]
    assert receive.dropped_links == 0


async def test_a_failing_handler_fails_its_span(autojump_clock: MockClock) -> None:
    spans = Spans()

    def handle(message: Message) -> None:
        raise {b"a": ValueError, b"b": KeyError}[message.value or b""]("bad")

    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider)
        await queue.send_batch([b"a", b"b"])
        statistics = await work(queue, handle, count=2)

    assert (statistics.rejected_count, statistics.failed_count) == (1, 1)
    failed = {attributes(span)["error.type"]: span for span in spans("process")}
    assert failed.keys() == {"ValueError", "KeyError"}
    for span in failed.values():
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]
    assert parent_of(spans.one("reject work")) == ids(failed["ValueError"])
    assert parent_of(spans.one("release work")) == ids(failed["KeyError"])


async def test_dead_letters_and_redrives_keep_the_context(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (client, _):
        tracing.instrument(client, tracer_provider=spans.provider)
        dead = await made(client, "dead")
        queue = await made(client, "jobs", dead_letter_queue="dead")
        await queue.send(b"a")
        (message,) = await queue.receive(1)
        await message.reject("no number")
        (letter,) = await dead.receive(1, wait=60)
        assert letter.origin is not None
        await letter.release(0)
        await dead.redrive()
        (again,) = await queue.receive(1, wait=60)
        await again.delete()

    for found in (letter, again):
        assert dict(found.headers)["traceparent"] == dict(message.headers)["traceparent"]
    send = ids(spans.one("send jobs"))
    assert linked(spans.one("receive dead")) == [send]
    assert linked(spans("receive jobs")[1]) == [send]


async def test_a_fifo_queue_drops_duplicates_of_other_traces(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock, fifo=True, content_based_deduplication="on") as (
        client,
        queue,
    ):
        tracing.instrument(client, tracer_provider=spans.provider)
        receipts = [await queue.send(b"a", group=b"g") for _ in range(2)]
        messages = await queue.receive(10)

    assert [receipt.is_duplicate for receipt in receipts] == [False, True]
    assert linked(spans.one("receive work")) == [ids(spans("send")[0])]
    assert names_of(messages[0].headers).count("traceparent") == 1


async def test_a_large_message_has_the_context_once(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider)
        await queue.send(b"v" * (3 << 20))
        (message,) = await queue.receive(10)

    assert message.length == 3 << 20
    assert names_of(message.headers).count("traceparent") == 1
    assert [span.name for span in spans()] == ["send work", "receive work"]


async def test_a_batch_with_refused_messages_is_an_error(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider)
        with pytest.raises(BatchError):
            await queue.send_batch([b"a", OutgoingMessage(value=b"b", deduplication_id="x")])
        with pytest.raises(TypeError, match="headers must be pairs"):
            await queue.send(b"c", headers=["no pair"])  # type: ignore[list-item]

    batch, malformed = spans()
    assert attributes(batch)["error.type"] == "tidelog.InvalidRequestError"
    assert attributes(batch)["messaging.tidelog.batch.failed_count"] == 1
    assert attributes(malformed)["error.type"] == "TypeError"


async def test_a_lost_lease_is_an_error(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider)
        await queue.send(b"a")

        async def handler(message: Message) -> None:
            del message
            worker.stop()
            await queue.purge()
            await trio.sleep_forever()

        worker = queue.worker(handler, visibility_timeout=2)
        await worker.run()

    assert worker.statistics.lost_count == 1
    assert attributes(spans.one("process work"))["error.type"] == "tidelog.ReceiptExpiredError"


async def test_a_queue_without_sampled_spans_has_no_headers(autojump_clock: MockClock) -> None:
    spans = Spans(ALWAYS_OFF)
    async with work_queue(autojump_clock) as (client, queue):
        tracing.instrument(client, tracer_provider=spans.provider)
        await queue.send_batch([b"a", OutgoingMessage(value=b"b", headers=[("x", b"1")])])
        tracing.uninstrument(client)
        with spans.tracer.start_as_current_span("checkout"):
            await queue.send(b"c")
        messages = await queue.receive(10)

    assert [message.headers for message in messages] == [(), (("x", b"1"),), ()]
    assert spans() == []
