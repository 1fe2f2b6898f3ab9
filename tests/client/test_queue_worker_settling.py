"""Settlement of messages when a worker is cancelled, or cannot read them."""

from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.client.large_messages import LONG
from tests.client.queue_fixture import fill, left, made, work_queue
from tests.coordinator.raft_clients import until
from tidelog.client.queue.receive.message import Message
from tidelog.wire.errors import ConnectionLostError, CorruptRecordError, TidelogError


async def test_a_finished_message_is_deleted_although_the_worker_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 5)
        seen: list[bytes | None] = []

        with trio.CancelScope() as scope:

            async def handle(message: Message) -> None:
                await trio.lowlevel.checkpoint()
                seen.append(message.value)
                if len(seen) == 5:
                    scope.cancel()

            await queue.work(handle, concurrency=1)

        assert len(seen) == 5
        assert await left(queue) == (0, 0)


async def test_a_failure_keeps_its_reason_although_the_worker_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 3)

        with trio.CancelScope() as scope:

            async def handle(message: Message) -> None:
                await trio.lowlevel.checkpoint()
                if message.value == b"0":
                    scope.cancel()
                    raise ValueError("broken")
                await trio.sleep_forever()

            await queue.work(handle, reject_on=(ValueError,))

        (dead,) = await queue.dead_letters()
        assert dead.reason.startswith("ValueError: broken")
        assert await left(queue) == (2, 0)


async def test_an_ended_worker_watches_no_message(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 30)
        settled = vars(queue)["_settler"].settled
        watched = cast("dict[object, object]", vars(settled)["_watched"])

        async def handle(message: Message) -> None:
            await trio.sleep(1)
            if message.value == b"3":
                raise ValueError

        with trio.move_on_after(2.5):
            await queue.work(handle, concurrency=4)
        assert watched == {}

        worker = queue.worker(handle, concurrency=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(1.5)
            assert len(watched) <= 12
            worker.stop()
        assert watched == {}


async def test_an_unreadable_large_message_is_no_failure_of_the_handler(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with work_queue(autojump_clock, max_receive_count=3) as (_, queue):
        await queue.send(LONG)
        counts: list[int] = []
        told: list[Exception] = []

        async def handle(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            assert message.value == LONG
            counts.append(message.receive_count)

        worker = queue.worker(
            handle, reject_on=(Exception,), on_error=lambda _, error: told.append(error)
        )
        with monkeypatch.context() as patch:
            reads = fail_to_read(patch, "the topic has no leader")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.run)
                await trio.sleep(100)
                assert 5 < len(reads) < 500
                patch.undo()
                await until(lambda: bool(counts), 100)
                worker.stop()

        assert counts == [1]
        assert told == []
        assert await queue.dead_letters() == []


async def test_a_corrupt_large_message_becomes_a_dead_letter(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with work_queue(autojump_clock, retry_backoff="1s") as (client, queue):
        dead = await made(client, "dead")
        settings = {"dead_letter_queue": "dead", "max_receive_count": "3"}
        await client.admin.alter_queue("work", set=settings)
        await queue.send(LONG)
        reads = fail_to_read(monkeypatch, "a chunk is damaged", CorruptRecordError)

        async def handle(message: Message) -> None:
            raise AssertionError(message)

        worker = queue.worker(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(60)
            worker.stop()

        assert len(reads) == 3
        (letter,) = await dead.peek()
        assert letter.origin is not None
        assert "a chunk is damaged" in letter.origin.reason


def fail_to_read(
    patch: pytest.MonkeyPatch, text: str, kind: type[TidelogError] = ConnectionLostError
) -> list[float]:
    """Fail every join of large messages; return the times of the attempts."""
    times: list[float] = []

    async def fail(*_: object, **__: object) -> bytes:
        await trio.lowlevel.checkpoint()
        times.append(trio.current_time())
        raise kind(text)

    patch.setattr("tidelog.client.queue.receive.chunk_reader.ChunkReader.join", fail)
    return times


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_in_on_error_does_not_end_the_worker(
    autojump_clock: MockClock, *, is_async: bool
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 4)
        told: list[Exception] = []

        def tell(message: Message, error: Exception) -> None:
            told.append(error)
            raise RuntimeError(message.value)

        async def tell_later(message: Message, error: Exception) -> None:
            await trio.sleep(1)
            tell(message, error)

        async def handle(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.value == b"2" and message.receive_count == 1:
                raise ValueError

        worker = queue.worker(handle, on_error=tell_later if is_async else tell)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: worker.statistics.done_count == 4, 100)
            worker.stop()

        assert [type(error) for error in told] == [ValueError]
        assert worker.statistics.failed_count == 1
        assert await left(queue) == (0, 0)


async def test_a_message_settled_by_on_error_is_left_as_it_is(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, retry_backoff="1s") as (_, queue):
        await fill(queue, 2)

        async def tell(message: Message, error: Exception) -> None:
            await message.reject(f"seen: {error!r}")

        async def handle(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            raise ValueError(message.value)

        worker = queue.worker(handle, on_error=tell)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: worker.statistics.failed_count == 2, 100)
            worker.stop()

        reasons = [each.reason for each in await queue.dead_letters()]
        assert reasons == ["seen: ValueError(b'0')", "seen: ValueError(b'1')"]
