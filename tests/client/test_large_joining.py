"""Joining large messages, as far as there is memory for them."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.large import LONG, MiB
from tests.client.queue_world import left, values, work_queue


async def test_a_receive_joins_no_more_than_is_allowed_for_and_gives_back_the_rest(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([LONG, b"a", LONG, b"b"])

        first = await queue.receive(value_bytes_max=4 * MiB)

        assert values(first) == [LONG, b"a"]
        assert await left(queue) == (2, 2)
        second = await queue.receive(value_bytes_max=4 * MiB)
        assert values(second) == [LONG, b"b"]
        assert second[0].receive_count == 1


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_whoever_is_cancelled_while_a_message_is_joined_gives_it_back(
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
            patch.setattr("client.large_reading.LargeReader.join", hang)
            await queue.receive()

        (message,) = await queue.receive(wait=0)

        assert (message.value, message.receive_count) == (LONG, 1)
