"""`tidelog.tracing`: blocking clients, threads, and replayed histories."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import MockClock

from tests.client.queue_fixture import made, work_queue
from tests.client.tracing.spans import Spans, attributes, ids, linked, names_of, parent_of
from tests.tidelog.brokers import broker_in_a_thread
from tests.tidelog.test_package import run_python
from tidelog import blocking, tracing
from tidelog.blocking.message import Message


def test_the_contexts_of_threads_reach_the_client(tmp_path: Path) -> None:
    spans = Spans()

    def checkout(number: int) -> None:
        with spans.tracer.start_as_current_span(f"checkout {number}"):
            producer.send("orders", b"%d" % number)
            producer.send_nowait("orders", b"%d" % number)

    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        client.admin.create_topic("orders")
        with client.producer() as producer, ThreadPoolExecutor(4) as threads:
            list(threads.map(checkout, range(8)))
        with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            records = list(consumer.records(consumer.end_offsets()))

    parents = {parent_of(span): span.name for span in spans("send")}
    assert parents == {ids(span): "send orders" for span in spans("checkout")}
    assert {parent_of(span) for span in spans("create orders")} == set(parents)
    assert [names_of(record.headers) for record in records] == [["traceparent"]] * 16


def test_a_handler_in_a_thread_has_the_context_of_its_span(tmp_path: Path) -> None:
    spans = Spans()
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        with spans.tracer.start_as_current_span("query"):
            message.delete()
        worker.stop()

    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        tracing.instrument(client, tracer_provider=spans.provider)
        client.admin.create_queue("work")
        queue = client.queue("work")
        with spans.tracer.start_as_current_span("checkout"):
            queue.send_batch([b"a"])
        worker = queue.worker(handle)
        worker.run()
        story = queue.story("0-0")

    send, process = spans.one("send work"), spans.one("process work")
    assert parent_of(send) == ids(spans.one("checkout"))
    assert seen == [ids(process)[1]]
    assert parent_of(spans.one("query")) == ids(process)
    assert parent_of(spans.one("delete work")) == ids(spans.one("query"))
    assert [each.outcome for each in story.intervals] == ["receive", "delete"]


async def test_a_history_is_replayed_as_spans(autojump_clock: MockClock) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (client, _):
        tracing.instrument(client, tracer_provider=spans.provider)
        await made(client, "dead")
        queue = await made(client, "jobs", dead_letter_queue="dead", visibility_timeout=30)
        receipt = await queue.send(b"a")
        await trio.sleep(5)
        await client.queue("jobs", holder="worker 7").receive(1)
        await trio.sleep(40)
        (message,) = await queue.receive(1)
        await message.reject("no number\nat line 1")
        await trio.sleep(5)
        story = await queue.story(receipt.message_id)
        assert story.sent_ms is not None
        before = len(spans())

        count = tracing.replay_history(story, tracer_provider=spans.provider)

    *children, root = spans()[before:]
    assert count == len(children) + 1
    send = ids(spans.one("send jobs"))
    assert (root.name, root.kind) == ("history jobs", SpanKind.INTERNAL)
    assert (parent_of(root), linked(root)) == (send, [send])
    assert [event.name for event in root.events] == ["receive", "receive", "dead-letter", "moved"]
    assert {parent_of(span) for span in children} == {ids(root)}
    wait, expired, again, rejected, moving = children
    assert [span.name for span in children] == [
        f"{each} jobs" for each in ("wait", "lease", "wait", "lease", "wait")
    ]
    sent_ns = story.sent_ms * 1_000_000
    assert (root.start_time, wait.start_time) == (sent_ns, sent_ns)
    assert wait.end_time == expired.start_time == sent_ns + 5_000_000_000
    assert expired.end_time == again.start_time == sent_ns + 35_000_000_000
    assert root.end_time == moving.end_time
    assert (expired.status.status_code, expired.status.description) == (
        StatusCode.ERROR,
        "lease-expired",
    )
    assert attributes(expired)["messaging.tidelog.message.holder"] == "worker 7"
    assert attributes(expired)["messaging.tidelog.message.receive_count"] == 1
    assert rejected.status.description == "no number"
    assert attributes(moving)["messaging.tidelog.message.outcome"] == "moved"


async def test_a_history_without_a_sampled_trace_is_not_replayed(
    autojump_clock: MockClock,
) -> None:
    spans = Spans()
    async with work_queue(autojump_clock) as (_, queue):
        receipt = await queue.send(b"a")
        (message,) = await queue.receive(1)
        await message.delete()
        story = await queue.story(receipt.message_id)
        nothing = await queue.story("0-99")

    assert tracing.replay_history(story, tracer_provider=Spans(ALWAYS_OFF).provider) == 0
    assert tracing.replay_history(nothing, tracer_provider=spans.provider) == 0
    assert tracing.replay_history(story, tracer_provider=spans.provider) == 3
    assert parent_of(spans.one("history work")) is None


def test_without_opentelemetry_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import tidelog\n"
        "try: tidelog.tracing\n"
        "except ImportError as error: print(error)"
    )

    assert run_python(program) == (
        "tidelog.tracing requires opentelemetry-api; pip install 'tidelog[otel]'"
    )


def test_a_client_does_not_import_opentelemetry() -> None:
    program = (
        "import sys, tidelog, tidelog.blocking; tidelog.connect\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )

    assert run_python(program) == "False"


def test_the_module_is_an_attribute_of_the_package() -> None:
    assert run_python("import tidelog; print(tidelog.tracing.process.__name__)") == "process"


def test_messages_of_the_blocking_client_are_processed(tmp_path: Path) -> None:
    spans = Spans()
    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        client.admin.create_queue("work", topic="orders", partitions=1)
        queue = client.queue("work")
        queue.send(b"a")
        (message,) = queue.receive(wait=5)
        with (
            pytest.raises(ZeroDivisionError),
            tracing.process(message, destination="work", tracer_provider=spans.provider),
        ):
            raise ZeroDivisionError

    assert spans.one("process work").status.status_code is StatusCode.ERROR
