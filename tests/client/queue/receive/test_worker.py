"""Worker: calls a handler with messages, extends their leases, and settles them."""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from tests.client.queue_fixture import fill, left, work_queue
from tests.coordinator.raft_clients import until
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.worker import Handler, WorkerConfig, reason_of
from tidelog.wire.errors import ConfigError, UnknownQueueError


def noting(seen: list[bytes | None], seconds: float = 0.0) -> Handler:
    async def handle(message: Message) -> None:
        await trio.sleep(seconds)
        seen.append(message.value)

    return handle


def slow_from(count: int, seen: list[bytes | None]) -> Handler:
    """Return a handler that becomes slow after so many messages, when others are in hand."""
    begun = 0

    async def handle(message: Message) -> None:
        nonlocal begun
        begun += 1
        await trio.sleep(5 if begun > count else 0)
        seen.append(message.value)

    return handle


async def test_every_message_is_handled_once_and_deleted(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, partitions=3) as (_, queue):
        await fill(queue, 100)
        seen: list[bytes | None] = []
        worker = queue.worker(noting(seen, 0.1), concurrency=7)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: len(seen) == 100)
            worker.stop()
        assert sorted(seen) == sorted(b"%d" % n for n in range(100))  # type: ignore[type-var]
        assert worker.statistics.done_count == 100
        assert await left(queue) == (0, 0)


async def test_concurrency_limits_running_handlers(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 40)
        running = most = done = 0

        async def handle(message: Message) -> None:
            nonlocal running, most, done
            del message
            running += 1
            most = max(most, running)
            await trio.sleep(1)
            running -= 1
            done += 1

        worker = queue.worker(handle, concurrency=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: done == 40)
            worker.stop()
        assert most == 4
        assert 10 <= trio.current_time() < 12


async def test_a_message_stays_in_flight_during_a_long_handler(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=10) as (_, queue):
        await fill(queue, 2)
        seen: list[bytes | None] = []
        worker = queue.worker(noting(seen, 60), concurrency=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            for _ in range(5):
                await trio.sleep(10)
                assert await queue.receive(wait=0) == []
            await until(lambda: len(seen) == 2)
            worker.stop()
        assert worker.statistics.done_count == 2
        assert await left(queue) == (0, 0)


async def test_a_failing_handler_releases_its_message_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, retry_backoff="7s") as (_, queue):
        await fill(queue, 1)
        times: list[float] = []
        told: list[Exception] = []

        async def handle(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            times.append(trio.current_time())
            if message.receive_count < 3:
                raise ValueError(f"delivery {message.receive_count}")

        worker = queue.worker(handle, on_error=lambda _, error: told.append(error))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: len(times) == 3)
            worker.stop()
        assert [round(b - a) for a, b in pairwise(times)] == [7, 7]
        assert [str(error) for error in told] == ["delivery 1", "delivery 2"]
        assert worker.statistics.failed_count == 2
        assert await left(queue) == (0, 0)


async def test_an_error_in_reject_on_makes_a_dead_letter_at_once(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        await client.admin.create_queue("dead")
        await client.admin.alter_queue("work", set={"dead_letter_queue": "dead"})
        await fill(queue, 1)
        calls = 0

        async def handle(message: Message) -> None:
            nonlocal calls
            calls += 1
            await trio.lowlevel.checkpoint()
            raise KeyError(message.value)

        worker = queue.worker(handle, reject_on=(LookupError,))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: worker.statistics.rejected_count == 1)
            worker.stop()
        assert calls == 1
        assert await left(queue) == (0, 0)


async def test_a_message_settled_by_its_handler_is_left_as_it_is(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 2)
        handled = 0

        async def handle(message: Message) -> None:
            nonlocal handled
            await (message.release(delay=1000) if message.value == b"1" else message.delete())
            handled += 1

        worker = queue.worker(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: handled == 2)
            worker.stop()
        assert await left(queue) == (1, 0)


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_handler_that_settles_its_message_gets_the_next_one(
    autojump_clock: MockClock, concurrency: int
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 10)
        begun = done = 0

        async def handle(message: Message) -> None:
            nonlocal begun, done
            begun += 1
            await trio.sleep(60 if begun < concurrency else 0)
            await message.delete()
            done += 1

        worker = queue.worker(handle, concurrency=concurrency)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: done == 11 - concurrency, 5)
            worker.stop()
        assert await left(queue) == (0, 0)


async def test_a_stopped_worker_deletes_a_message_while_other_handlers_work(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 2)
        begun = 0

        async def handle(message: Message) -> None:
            nonlocal begun
            del message
            begun += 1
            await trio.sleep(2 if begun == 1 else 10)

        worker = queue.worker(handle, concurrency=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: begun == 2, 5)
            worker.stop()
            await until(lambda: worker.statistics.done_count == 1, 5)
            await trio.sleep(0.1)
            assert await left(queue) == (0, 1)
        assert await left(queue) == (0, 0)


async def test_a_stopped_worker_finishes_and_returns_messages_not_started(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=600) as (_, queue):
        await fill(queue, 20)
        seen: list[bytes | None] = []
        worker = queue.worker(slow_from(2, seen), concurrency=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(0.5)
            assert (await left(queue))[1] > 2, "some are in hand, because handlers were fast"
            worker.stop()
            await trio.sleep(0.1)
            assert (await left(queue))[1] == 2, "the others need not wait for the handlers"
        assert len(seen) == 4
        messages = await queue.receive(100)
        assert len(messages) == 16
        assert {message.receive_count for message in messages} == {1}


async def test_a_cancelled_worker_returns_all_messages_at_once(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=600) as (_, queue):
        await fill(queue, 20)
        with trio.move_on_after(0.5):
            await queue.work(slow_from(2, []), concurrency=2)
        messages = await queue.receive(100, wait=0)
        assert len(messages) == 18
        counts = sorted(message.receive_count for message in messages)
        assert counts == [1] * 16 + [2] * 2, "only what was begun counts"


async def test_a_handler_with_a_lost_lease_is_cancelled(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, visibility_timeout=60) as (_, queue):
        await fill(queue, 1)
        seen: list[bytes | None] = []
        worker = queue.worker(noting(seen, 600))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(10)
            await queue.purge()
            await until(lambda: worker.statistics.lost_count == 1, 60)
            worker.stop()
        assert seen == []


async def test_a_worker_ends_when_its_queue_is_deleted(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (client, queue), trio.open_nursery() as nursery:

        async def run() -> None:
            with pytest.raises(UnknownQueueError):
                await queue.work(noting([]))

        nursery.start_soon(run)
        await trio.sleep(1)
        await client.admin.delete_queue("work")


async def test_an_idle_worker_starts_a_new_message_at_once(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, partitions=2) as (_, queue):
        seen: list[bytes | None] = []
        worker = queue.worker(noting(seen))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(100)
            began = trio.current_time()
            await queue.send(b"v")
            await until(lambda: bool(seen))
            assert trio.current_time() - began < 0.1
            worker.stop()


def test_invalid_worker_settings_are_refused_together() -> None:
    with pytest.raises(ConfigError, match="worker: concurrency is from 1 to 1000; wait must be"):
        WorkerConfig(concurrency=0, wait=0)


def test_a_reason_has_type_message_and_traceback_and_is_not_too_long() -> None:
    def fail(depth: int) -> None:
        if depth:
            fail(depth - 1)
        raise ValueError("käse " * 3000)

    with pytest.raises(ValueError, match="käse") as caught:
        fail(50)
    reason = reason_of(caught.value)
    assert reason.startswith("ValueError: käse")
    assert len(reason) <= 8192
    with pytest.raises(IndexError) as short:
        list[int]().pop()
    reason = reason_of(short.value)
    assert reason.startswith("IndexError: pop from empty list\n\nTraceback")
    assert reason.endswith("IndexError: pop from empty list")
    assert "list[int]().pop()" in reason


async def test_an_error_text_with_surrogates_does_not_end_the_worker(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([b"file", b"other"])
        seen: list[bytes | None] = []

        async def handle(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            seen.append(message.value)
            if message.value == b"file":
                raise FileNotFoundError(2, "No such file", "caf\udce9.txt")

        worker = queue.worker(handle, concurrency=1, reject_on=(FileNotFoundError,))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: len(seen) == 2)
            worker.stop()
        (dead,) = await queue.dead_letters()

        assert dead.reason.startswith("FileNotFoundError: [Errno 2] No such file: 'caf\\udce9.txt'")


async def test_a_handler_that_is_not_async_ends_the_worker_without_dead_letters(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 5)

        with pytest.raises(TypeError, match="a handler is an async function"):
            await queue.work(lambda message: message.value, concurrency=1)  # type: ignore[arg-type, return-value]

        assert await left(queue) == (5, 0)


@pytest.mark.parametrize("classes", [5, ValueError, (ValueError, "KeyError"), (KeyboardInterrupt,)])
def test_only_exceptions_can_be_rejected_on(classes: object) -> None:
    with pytest.raises(ConfigError, match="reject_on is a tuple of exceptions"):
        WorkerConfig(reject_on=classes)  # type: ignore[arg-type]


async def test_a_message_settled_by_its_receipt_handle_is_left_as_it_is(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        await fill(queue, 2)
        handled = 0

        async def handle(message: Message) -> None:
            nonlocal handled
            mine = queue if message.value == b"0" else client.queue("work")
            await mine.release(message.receipt_handle, 3600)
            handled += 1

        worker = queue.worker(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: handled == 2)
            worker.stop()
        assert await left(queue) == (2, 0)
