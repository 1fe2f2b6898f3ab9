"""Queues in programs of asyncio: settlements, and values in chunks."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.tidelog.aio.programs import Run, new_queue
from tidelog import aio

MiB = 1024 * 1024


def test_messages_are_settled_by_object_or_by_handle(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client, 6)
            messages: list[aio.Message] = []
            while len(messages) < 6:
                messages += await queue.receive(wait=20)
            one, two, three, four, five, six = messages

            await one.delete()
            await queue.delete(two.receipt_handle)
            await queue.delete_batch([three, four.receipt_handle])
            await five.extend(60)
            await queue.release_batch([five, six], 0)
            again: list[aio.Message] = []
            while len(again) < 2:
                again += await queue.receive(wait=20)

            assert {each.value for each in again} == {five.value, six.value}

    run(main())


def test_a_value_in_chunks_is_sent_and_read_by_programs_of_asyncio(run: Run, address: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(3):
            await asyncio.sleep(0)
            yield b"%d" % number * MiB

    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client)
            await queue.send(chunks())
            (message,) = await queue.receive(wait=20, max_value_bytes=0)
            read = b"".join([chunk async for chunk in message.chunks()])
            assert read == b"".join([chunk async for chunk in chunks()])

            reading = message.chunks()
            await anext(reading)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(reading)
            async for _ in message.chunks():
                break  # The event loop closes the iterator.
            await message.delete()

            async with client.consumer(queue.name, auto_offset_reset="earliest") as consumer:
                ends = await consumer.end_offsets()
                records = [each async for each in consumer.records(ends) if not each.is_chunk]
            async for _ in client.chunks(records[0]):
                break

    run(main())


def test_a_source_of_chunks_that_fails_or_is_cancelled_sends_nothing(
    run: Run, address: str
) -> None:
    async def chunks(error: Exception | None) -> AsyncIterator[bytes]:
        yield b"v" * 2 * MiB
        if error is not None:
            raise error
        closed.append("waits")
        try:
            await asyncio.sleep(60)
        finally:
            closed.append("ended")

    closed: list[str] = []

    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client)
            with pytest.raises(ValueError, match="mine"):
                await queue.send(chunks(ValueError("mine")))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await queue.send(chunks(None))
            assert closed == ["waits", "ended"]
            assert await queue.receive(wait=0.01) == []

    run(main())
