"""Reassembler: joins large messages within a limit of memory."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.client.large_messages import LONG, KiB, MiB, parts
from tests.client.queue_fixture import left, values, work_queue
from tidelog.client.queue.receive.chunk_reader import ChunkReader
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.wire.errors import (
    ConnectError,
    CorruptRecordError,
    MessageBodyLostError,
    RecordTooLargeError,
    TidelogError,
)


async def test_a_receive_joins_up_to_max_value_bytes_and_returns_the_rest(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([LONG, b"a", LONG, b"b"])

        first = await queue.receive(max_value_bytes=4 * MiB)

        assert values(first) == [LONG, b"a"]
        assert await left(queue) == (2, 2)
        second = await queue.receive(max_value_bytes=4 * MiB)
        assert values(second) == [LONG, b"b"]
        assert second[0].receive_count == 1


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_cancelling_a_join_returns_the_message(
    autojump_clock: MockClock, *, is_fifo: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object, **__: object) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    async with work_queue(autojump_clock) as (client, _):
        await client.admin.create_queue("mine", partitions=1, fifo=is_fifo)
        queue = client.queue("mine")
        await queue.send(LONG, key=b"k")
        with monkeypatch.context() as patch, trio.move_on_after(5):
            patch.setattr("tidelog.client.queue.receive.chunk_reader.ChunkReader.join", hang)
            await queue.receive()

        (message,) = await queue.receive(wait=0)

        assert (message.value, message.receive_count) == (LONG, 1)


@pytest.mark.parametrize(
    "failure", [None, ConnectError("no broker"), CorruptRecordError("damaged")]
)
async def test_cancelling_while_messages_are_returned_returns_all(
    autojump_clock: MockClock, failure: TidelogError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> bytes:
        await trio.lowlevel.checkpoint()
        assert failure is not None
        raise failure

    settle = QueueSettler.settle
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([LONG, LONG])
        with monkeypatch.context() as patch, trio.CancelScope() as scope:

            async def settle_cancelled(*given: Any) -> None:  # noqa: ANN401  (as it was called)
                scope.cancel()
                await settle(*given)

            patch.setattr(QueueSettler, "settle", settle_cancelled)
            if failure is not None:
                patch.setattr("tidelog.client.queue.receive.chunk_reader.ChunkReader.join", fail)
            await queue.receive(max_value_bytes=4 * MiB)

        assert scope.cancelled_caught
        assert await left(queue) == (2, 0)


@pytest.mark.parametrize("first", [LONG, b"short"])
async def test_joined_messages_keep_their_lease_beside_an_unreadable_one(
    autojump_clock: MockClock, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = ChunkReader.join
    second = LONG[1:]

    async def hang(*given: Any, **more: Any) -> bytes:  # noqa: ANN401  (as it was called)
        whole = await join(*given, **more)
        if whole == second:
            await trio.sleep(30)
        return whole

    async with work_queue(autojump_clock, visibility_timeout=30) as (_, queue):
        await queue.send_batch([first, second, b"third"])
        monkeypatch.setattr("tidelog.client.queue.receive.chunk_reader.ChunkReader.join", hang)

        (message,) = await queue.receive(10)

        assert message.value == first
        assert message.lease.expires_at - trio.current_time() > 10
        assert await left(queue) == (2, 1)
        rest = await queue.receive(10, visibility_timeout=100)
        assert values(rest) == [second, b"third"]
        assert {each.receive_count for each in rest} == {1}


async def test_a_large_message_is_read_as_a_stream(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send(LONG)
        await queue.send(b"short")

        large, short = await queue.receive(max_value_bytes=MiB)

        with pytest.raises(RecordTooLargeError, match=r"read it with message\.chunks"):
            _ = large.value
        assert await parts(large) == [512 * KiB] * 6
        assert b"".join([chunk async for chunk in large.chunks()]) == LONG
        with pytest.raises(RecordTooLargeError):
            await large.read(MiB)
        assert await large.read() == LONG
        assert (await short.read(), short.length) == (b"short", 5)
        assert await parts(short) == [5]


async def test_a_message_with_deleted_chunks_raises_message_body_lost(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        await queue.send(LONG)
        await client.admin.delete_records("work", 0, 3)

        (message,) = await queue.receive()

        for _ in range(2):
            with pytest.raises(MessageBodyLostError, match="has deleted chunks"):
                _ = message.value
        with pytest.raises(MessageBodyLostError):
            await message.read()
        with pytest.raises(MessageBodyLostError):
            await parts(message)
