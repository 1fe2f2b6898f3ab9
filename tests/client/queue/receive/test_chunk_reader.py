"""Reading large messages chunk by chunk."""

import pytest
from trio.testing import MockClock

from tests.client.large import LONG, KiB, MiB, parts
from tests.client.queue_world import work_queue
from tidelog.wire.errors import MessageBodyLostError, RecordTooLargeError


async def test_a_message_is_read_as_a_stream_by_whoever_does_not_want_it_in_memory(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send(LONG)
        await queue.send(b"short")

        large, short = await queue.receive(value_bytes_max=MiB)

        with pytest.raises(RecordTooLargeError, match=r"read it with message\.chunks"):
            _ = large.value
        assert await parts(large) == [512 * KiB] * 6
        assert b"".join([chunk async for chunk in large.chunks()]) == LONG
        with pytest.raises(RecordTooLargeError):
            await large.read(MiB)
        assert await large.read() == LONG
        assert (await short.read(), short.length) == (b"short", 5)
        assert await parts(short) == [5]


async def test_a_message_whose_chunks_the_topic_has_deleted_says_so(
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
