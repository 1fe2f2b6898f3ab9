"""Spans of producers, and of the processing of records."""

import pytest
import trio
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_OFF
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import MockClock

from tests.client.clients import orders_client
from tests.client.tracing.spans import Spans, attributes, ids, linked, names_of, parent_of
from tidelog import tracing
from tidelog.client.client import Client
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.tracing.otel_tracing import creation_context
from tidelog.wire.errors import UnknownTopicError


async def records_of(client: Client, topic: str = "orders") -> list[Record]:
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        return [record async for record in consumer.records(await consumer.end_offsets())]


async def test_a_record_has_the_context_of_its_send(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer() as producer:
            with spans.tracer.start_as_current_span("checkout"):
                await producer.send("orders", b"a", headers=[("x", b"1")], timestamp_ms=7)

        (record,) = await records_of(client)
        with tracing.process(record, group_id="billing", tracer_provider=spans.provider) as span:
            span.set_attribute("mine", 1)

    send, checkout, process = spans()
    assert parent_of(send) == ids(checkout)
    assert send.kind is SpanKind.PRODUCER
    assert attributes(send) == {
        "messaging.system": "tidelog",
        "messaging.client.id": client.client_id,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": "0-0",
    }
    assert names_of(record.headers) == ["x", "traceparent"]
    assert record.timestamp_ms == 7
    assert (process.name, process.kind) == ("process orders", SpanKind.CONSUMER)
    assert (linked(process), parent_of(process)) == ([ids(send)], None)
    assert attributes(process)["messaging.consumer.group.name"] == "billing"
    assert attributes(process)["mine"] == 1


async def test_the_records_of_a_batch_share_one_span(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock, 2) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer() as producer:
            values = [b"%d" % n for n in range(1000)]
            await producer.send_many("orders", values[:500])
            await producer.send_many("orders", values[500:], keys=values[500:])
        records = await records_of(client)

    first, second = spans()
    assert (first.name, attributes(first)["messaging.batch.message_count"]) == ("send orders", 500)
    assert sorted(record.value or b"" for record in records) == sorted(values)
    by_span = {ids(first): range(500), ids(second): range(500, 1000)}
    for record in records:
        with tracing.process(record, tracer_provider=spans.provider):
            pass
        ((link,), number) = linked(spans()[-1]), int(record.value or b"")
        assert number in by_span[link]
        assert names_of(record.headers) == ["traceparent"]


async def test_the_buffer_counts_the_headers_of_traced_records(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer(batch_size=4096, buffer_memory=8192) as producer:
            await producer.send_many("orders", [b"v" * 100] * 500)
            assert producer.statistics().buffered_bytes == 0
        assert len(await records_of(client)) == 500


async def test_a_context_of_the_application_is_linked_and_kept(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        own = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        async with client.producer() as producer:
            await producer.send("orders", b"a", headers=[own])
            mixed = [ProducerRecord("orders", b"b", headers=(own,)), ProducerRecord("orders", b"c")]
            await producer.send_records("orders", mixed)
        (first, second, third) = await records_of(client)

    single, batch = spans()
    link = (0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
    assert (first.headers, second.headers) == ((own,), (own,))
    assert names_of(third.headers) == ["traceparent"]
    assert third.headers != (own,)
    assert (linked(single), single.kind) == ([link], SpanKind.CLIENT)
    assert (linked(batch), batch.kind) == ([link], SpanKind.PRODUCER)


async def test_send_nowait_has_a_span_in_a_context_only(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer() as producer:
            producer.send_nowait("orders", b"alone")
            with spans.tracer.start_as_current_span("checkout"):
                producer.send_nowait("orders", b"traced")
        alone, traced = await records_of(client)

    create, checkout = spans()
    assert (create.name, create.kind) == ("create orders", SpanKind.PRODUCER)
    assert parent_of(create) == ids(checkout)
    assert alone.headers == ()
    assert names_of(traced.headers) == ["traceparent"]


async def test_an_unsampled_span_adds_no_headers(autojump_clock: MockClock) -> None:
    spans = Spans(ALWAYS_OFF)
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer() as producer:
            await producer.send("orders", b"a")
            await producer.send_many("orders", [b"b"])
            producer.send_nowait("orders", b"c")
        assert [record.headers for record in await records_of(client)] == [(), (), ()]
    assert spans() == []


async def test_an_unsampled_context_is_propagated(autojump_clock: MockClock) -> None:
    spans = Spans(DEFAULT_OFF)
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer() as producer:
            with spans.tracer.start_as_current_span("checkout"):
                await producer.send("orders", b"a")
        ((name, value),) = (await records_of(client))[0].headers
    is_sampled = int(value[-2:], 16) & 1
    assert (name, is_sampled) == ("traceparent", 0)
    assert spans() == []


async def test_without_instrument_there_are_no_headers(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        tracing.uninstrument(client)
        with spans.tracer.start_as_current_span("checkout"):
            async with client.producer() as producer:
                await producer.send("orders", b"a")
                await producer.send_many("orders", [b"b"])
                producer.send_nowait("orders", b"c")
        assert [record.headers for record in await records_of(client)] == [(), (), ()]
    assert [span.name for span in spans()] == ["checkout"]


async def test_a_failed_send_is_an_error(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer() as producer:
            with pytest.raises(UnknownTopicError):
                await producer.send("nope", b"a")

    (span,) = spans()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "tidelog.UnknownTopicError"
    assert [event.name for event in span.events] == ["exception"]


async def test_staged_records_have_the_topic_of_the_transaction(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        transaction = client.transaction("billing", 1)
        async with transaction.task() as task:
            await task.send_many("orders", [b"a", b"b"])
            await task.send_records("orders", [ProducerRecord("orders", b"c")])
        await transaction.commit([task.result])
        records = await records_of(client)

    assert [span.name for span in spans()] == ["send orders", "send orders"]
    assert [names_of(record.headers) for record in records] == [["traceparent"]] * 3


async def test_concurrent_tasks_keep_their_contexts(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer(linger=0.01) as producer, trio.open_nursery() as nursery:

            async def checkout(number: int) -> None:
                with spans.tracer.start_as_current_span(f"checkout {number}"):
                    await producer.send("orders", b"%d" % number)

            for number in range(10):
                nursery.start_soon(checkout, number)

    checkouts = {ids(span) for span in spans("checkout")}
    assert {parent_of(span) for span in spans("send")} == checkouts
    assert len(checkouts) == 10


async def test_a_failing_block_fails_its_span(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        async with client.producer() as producer:
            await producer.send("orders", b"a")
        (record,) = await records_of(client)
        with (
            pytest.raises(KeyError),
            tracing.process(record, tracer_provider=spans.provider),
        ):
            raise KeyError("amount")

    (span,) = spans()
    assert (span.status.status_code, attributes(span)["error.type"]) == (
        StatusCode.ERROR,
        "KeyError",
    )
    assert linked(span) == []


async def test_output_of_a_processor_is_linked_to_the_process_span_of_its_input(
    autojump_clock: MockClock,
) -> None:
    spans = Spans()
    async with orders_client(autojump_clock) as client:
        await client.admin.create_topic("copies")
        tracing.instrument(client, tracer_provider=spans.provider)
        async with client.producer() as producer:
            await producer.send("orders", b"a")

        def copied(record: Record) -> ProducerRecord:
            return ProducerRecord("copies", record.value)

        await client.process("orders", copied, name="copy", until_end=True)
        async with client.consumer("copies", auto_offset_reset="earliest") as consumer:
            copy = await anext(aiter(consumer))

    process, create = spans.one("process orders"), spans.one("create copies")
    assert linked(process) == [ids(spans.one("send orders"))]
    assert parent_of(create) == ids(process)
    context = creation_context(copy.headers)
    assert context is not None
    assert (context.trace_id, context.span_id) == ids(create)
