"""Workers of queues in programs of asyncio: handlers are tasks, and end as tasks do."""

import asyncio
import logging
import os
import re
import signal
import threading
from contextvars import ContextVar
from pathlib import Path

import pytest
import sniffio
from prometheus_client import CollectorRegistry, generate_latest

from tests.client.tracing.spans import Spans, ids, parent_of
from tests.tidelog.aio.programs import Run, new_queue, new_topic, turns, until
from tests.tidelog.brokers import broker_in_a_thread
from tidelog import aio, tracing
from tidelog.prometheus import ClientCollector

TENANT: ContextVar[str] = ContextVar("TENANT", default="nothing")


def test_handlers_and_on_error_are_tasks_with_the_context_of_the_caller(
    run: Run, address: str
) -> None:
    async def main() -> None:
        seen: list[tuple[str, str]] = []

        def see() -> None:
            assert asyncio.current_task() is not None
            seen.append((TENANT.get(), sniffio.current_async_library()))

        async def handle(message: aio.Message) -> None:
            await asyncio.sleep(0)
            see()
            if message.receive_count == 1:
                raise ValueError(message.value)
            worker.stop()

        async def tell(message: aio.Message, error: Exception) -> None:
            assert isinstance(error, ValueError)
            await asyncio.sleep(0)
            await message.release(0)
            see()

        async with aio.connect(address) as client:
            queue = await new_queue(client, 1)
            TENANT.set("tenant 7")
            worker = queue.worker(handle, on_error=tell)
            await worker.run()

        assert seen == [("tenant 7", "asyncio")] * 3

    run(main())


def test_a_plain_on_error_is_a_task_too(run: Run, address: str) -> None:
    async def main() -> None:
        async def handle(_: aio.Message) -> None:
            await asyncio.sleep(0)
            raise ValueError("mine")

        def tell(message: aio.Message, error: Exception) -> None:
            seen.append((message.value, repr(error), sniffio.current_async_library()))
            assert asyncio.current_task() is not None
            worker.stop()

        seen: list[object] = []
        async with aio.connect(address) as client:
            worker = (await new_queue(client, 1)).worker(handle, on_error=tell)
            await worker.run()
        assert seen == [(b"0", "ValueError('mine')", "asyncio")]

    run(main())


def test_a_plain_handler_is_refused(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client, 1)
            with pytest.raises(TypeError, match="a handler is an async function"):
                await queue.work(lambda message: message.value)  # type: ignore[arg-type,return-value]
            (message,) = await queue.receive(1, wait=5)
            assert message.value == b"0"

    run(main())


def test_cancelling_a_worker_cancels_its_handlers_and_returns_its_messages(
    run: Run, address: str
) -> None:
    async def main() -> None:
        log: list[bytes | None] = []

        async def handle(message: aio.Message) -> None:
            log.append(message.value)
            try:
                await asyncio.sleep(60)
            finally:
                await message.extend(60)  # A handler may clean up.
                log.append(message.value)

        async with aio.connect(address) as client:
            queue = await new_queue(client, 3)
            working = asyncio.create_task(queue.work(handle, concurrency=3))
            await until(lambda: len(log) == 3)
            working.cancel()
            await asyncio.wait([working])

            assert working.cancelled()
            assert sorted(log, key=str) == [b"0", b"0", b"1", b"1", b"2", b"2"]
            received = [await queue.receive(3, wait=5) for _ in range(1)]
            assert {message.receive_count for message in received[0]} == {2}

    run(main())


def test_a_handler_is_cancelled_when_its_lease_is_lost(run: Run, address: str) -> None:
    async def main() -> None:
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def handle(_: aio.Message) -> None:
            began.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                worker.stop()
                raise

        async with aio.connect(address) as client, aio.connect(address) as operator:
            queue = await new_queue(client, 1)
            worker = queue.worker(handle, visibility_timeout=1)
            working = asyncio.create_task(worker.run())
            await began.wait()
            await operator.queue(queue.name).purge()
            await cancelled.wait()
            await working
            assert worker.statistics.lost_count == 1

    run(main())


def test_a_handler_that_the_application_cancels_has_failed(run: Run, address: str) -> None:
    async def main() -> None:
        async def handle(message: aio.Message) -> None:
            if message.receive_count == 1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(60)
            worker.stop()

        async def tell(message: aio.Message, error: Exception) -> None:
            told.append(str(error))
            await message.release(0)

        told: list[str] = []
        async with aio.connect(address) as client:
            worker = (await new_queue(client, 1)).worker(handle, on_error=tell)
            await worker.run()

        assert told == ["the application has cancelled the task of a handler or callback"]
        assert (worker.statistics.failed_count, worker.statistics.done_count) == (1, 1)

    run(main())


def test_a_program_that_ends_is_no_failure_of_its_handlers(run: Run, tmp_path: Path) -> None:
    """`asyncio.run` cancels all tasks at its end, handlers as well as the worker."""
    told: list[str] = []
    log: list[str] = []

    async def handle(_: aio.Message) -> None:
        log.append("handled")
        try:
            await asyncio.sleep(60)
        finally:
            log.append("ended")

    async def work(address: str) -> None:
        async with aio.connect(address) as client:
            await client.admin.create_queue("work", partitions=1)
            queue = client.queue("work")
            await queue.send(b"v")
            await queue.work(
                handle, reject_on=(Exception,), on_error=lambda _, error: told.append(repr(error))
            )

    async def main(address: str) -> None:
        background.append(asyncio.create_task(work(address)))
        await until(lambda: "handled" in log)

    background: list[asyncio.Task[None]] = []
    with broker_in_a_thread(tmp_path) as address:
        run(main(address))
        assert (told, log) == ([], ["handled", "ended"])

        async def again() -> int:
            async with aio.connect(address) as client:
                (message,) = await client.queue("work").receive(wait=5)
                return message.receive_count

        assert run(again()) == 2


class Unusual(BaseException):
    """Not an `Exception`."""


def test_a_base_exception_of_a_handler_ends_the_worker(run: Run, address: str) -> None:
    async def main() -> None:
        async def handle(_: aio.Message) -> None:
            await asyncio.sleep(0)
            raise Unusual

        async with aio.connect(address) as client:
            queue = await new_queue(client, 1)
            with pytest.raises(Unusual):
                await queue.work(handle)
            (message,) = await queue.receive(1, wait=5)
            assert message.value == b"0"

    run(main())


def test_a_signal_handler_of_the_loop_stops_a_worker_after_its_handlers(
    run: Run, address: str
) -> None:
    async def main() -> None:
        done: list[bytes | None] = []

        async def handle(message: aio.Message) -> None:
            if message.value == b"0":
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.05)
            done.append(message.value)

        async with aio.connect(address) as client:
            queue = await new_queue(client, 3)
            worker = queue.worker(handle, concurrency=1)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
            await worker.run()
            assert b"0" in done
            assert worker.statistics.done_count == len(done)
            rest = [] if len(done) == 3 else await queue.receive(wait=5)
            assert len(done) + len(rest) == 3
            assert {message.receive_count for message in rest} <= {1}

    run(main())


def test_rebalance_callbacks_of_a_config_are_tasks_of_asyncio(group_address: str) -> None:
    async def main() -> None:
        seen: list[str] = []

        async def see(_: object) -> None:
            await asyncio.sleep(0)
            seen.append(sniffio.current_async_library())

        async with aio.connect(group_address) as client:
            topic = await new_topic(client)
            config = aio.ConsumerConfig(on_assigned=see, on_revoked=see)
            async with client.consumer(topic, group_id=topic, config=config):
                await until(lambda: seen)
        assert seen == ["asyncio", "asyncio"]

    asyncio.run(main())


def test_spans_of_the_program_are_parents_of_those_of_the_client(run: Run, address: str) -> None:
    spans = Spans()

    async def main() -> None:
        async def handle(message: aio.Message) -> None:
            with spans.tracer.start_as_current_span("query"):
                await message.delete()
            worker.stop()

        async with aio.connect(address) as client:
            tracing.instrument(client, tracer_provider=spans.provider)
            queue = await new_queue(client)
            topic = await new_topic(client)
            async with client.producer() as producer:
                with spans.tracer.start_as_current_span("checkout"):
                    await producer.send(topic, b"one")
                    producer.send_nowait(topic, b"two")
                    await queue.send(b"three")
            worker = queue.worker(handle)
            await worker.run()
            tracing.uninstrument(client)
            assert client.tracing is None

        (checkout,) = spans("checkout")
        sent = [*spans(f"send {topic}"), *spans(f"create {topic}"), *spans(f"send {queue.name}")]
        assert [parent_of(span) for span in sent] == [ids(checkout)] * 3
        (process,) = spans(f"process {queue.name}")
        (query,) = spans("query")
        assert parent_of(query) == ids(process)

    run(main())


def test_a_collector_reads_the_statistics_from_any_thread(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address, client_id="billing") as client:
            topic = await new_topic(client)
            registry = CollectorRegistry(auto_describe=True)
            registry.register(ClientCollector(client))
            async with client.producer() as producer:
                await producer.send(topic, b"v")
            text = await asyncio.to_thread(generate_latest, registry)
        assert 'client="billing"' in text.decode()
        assert client.statistics().client_id == "billing"  # Also after the end.

    run(main())


def test_a_blocked_loop_is_logged(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def handle(message: aio.Message) -> None:
            if message.receive_count == 1:
                threading.Event().wait(1.8)  # A blocking library.
            worker.stop()

        async with aio.connect(address) as client:
            worker = (await new_queue(client, 1)).worker(handle, visibility_timeout=1)
            await worker.run()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    lines = [line for line in caplog.messages if "client.loop_blocked" in line]
    assert len(lines) == 1, caplog.messages


def test_a_failing_handler_is_logged_from_its_own_code_on(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> str:
        async def handle(message: aio.Message) -> None:
            if message.receive_count == 1:
                raise ValueError("no such card")
            worker.stop()
            raise LookupError  # Expected: not a warning.

        async with aio.connect(address) as client:
            queue = await new_queue(client, 1)
            worker = queue.worker(handle, reject_on=(LookupError,))
            await worker.run()
            return queue.name

    with caplog.at_level(logging.WARNING):
        name = asyncio.run(main())

    (line,) = [line for line in caplog.messages if line.startswith("client.handler_failed")]
    assert f"queue={name} message_id=0-0 receive_count=1 error=ValueError: no such card" in line
    frames = re.findall(r'^  File ".*", line \d+, in (\w+)$', line, re.MULTILINE)
    assert frames == ["handle"]


def test_a_worker_ends_with_its_client(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client)
            working = asyncio.create_task(queue.work(lambda _: asyncio.sleep(0)))
            await turns(20)
        with pytest.raises(aio.ClosedError):
            await working

    run(main())
