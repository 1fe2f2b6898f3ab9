"""Abandoned polls of receives: the next call adopts requests in flight."""

import trio
from trio.testing import MockClock

from tests.client.fake_cluster import FakeCluster
from tests.client.queue_fixture import drain, fill, queue_of, values
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.wire.protocol import api


async def _key_of(queue: Queue, partition: int) -> bytes:
    """Return a key whose messages go to a partition."""
    for number in range(100):
        key = b"%d" % number
        receipt = await queue.send(b"", key=key)
        if receipt.partition == partition:
            await drain(queue)
            return key
    raise AssertionError


def _asked_count(cluster: FakeCluster, node_id: int) -> int:
    return cluster.fronts[node_id].asked.count(api.RECEIVE)  # type: ignore[arg-type]


async def _received_later(queue: Queue, key: bytes, *, wait_s: float = 20) -> list[Message]:
    """Return the messages of a receive that waits while one is sent."""
    received: list[Message] = []

    async def receive() -> None:
        received.extend(await queue.receive(wait=wait_s))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.sleep(0.1)
        await queue.send(b"message", key=key)
    return received


async def test_requests_do_not_accumulate_at_an_idle_broker(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        keys = [await _key_of(queue, partition) for partition in (0, 1)]
        before = _asked_count(cluster, 2)

        for _ in range(30):
            (message,) = await _received_later(queue, keys[0])
            await message.delete()

        assert trio.current_time() < 10
        assert _asked_count(cluster, 2) - before <= 2
        (message,) = await _received_later(queue, keys[1])
        assert message.receive_count == 1
        assert message.partition == 1
        await message.delete()


async def test_messages_of_an_abandoned_poll_are_returned(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, visibility_timeout=600) as (queue, _):
        keys = [await _key_of(queue, partition) for partition in (0, 1)]
        await _received_later(queue, keys[0])
        await queue.send(b"between", key=keys[1])
        await trio.sleep(1)

        (message,) = await queue.receive(wait=0)

        assert (message.value, message.receive_count) == (b"between", 1)


async def test_an_abandoned_poll_does_not_delay_a_shorter_receive(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, _):
        key = await _key_of(queue, 0)
        for wait_s in (0, 3):
            (message,) = await _received_later(queue, key, wait_s=600)
            await message.delete()
            began = trio.current_time()
            assert await queue.receive(wait=wait_s) == []
            assert trio.current_time() - began < wait_s + 0.1


async def test_an_empty_abandoned_poll_does_not_end_a_later_receive(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, visibility_timeout=600) as (queue, cluster):
        key = await _key_of(queue, 0)
        (message,) = await _received_later(queue, key, wait_s=600)
        await message.delete()
        before = _asked_count(cluster, 1), _asked_count(cluster, 2)

        assert await queue.receive(wait=0) == []

        assert _asked_count(cluster, 1) > before[0]
        assert _asked_count(cluster, 2) > before[1]


async def test_a_receive_uses_its_own_visibility_timeout(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, _):
        keys = [await _key_of(queue, partition) for partition in (0, 1)]
        await _received_later(queue, keys[0])
        received: list[Message] = []

        async def receive() -> None:
            received.extend(await queue.receive(visibility_timeout=500, wait=20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(1)
            await queue.send(b"long", key=keys[1])
        assert values(received) == [b"long"]
        assert received[0].lease.expires_at > trio.current_time() + 400


async def test_an_adopted_poll_returns_at_most_max_messages(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, visibility_timeout=600) as (queue, _):
        keys = [await _key_of(queue, partition) for partition in (0, 1)]
        (message,) = await _received_later(queue, keys[0])
        await message.delete()
        received: list[Message] = []

        async def receive() -> None:
            received.extend(await queue.receive(1, wait=20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(1)
            await fill(queue, 20)
        assert len(received) == 1
        await trio.sleep(1)
        rest = await queue.receive(100)
        assert len(rest) == 19
        assert {message.receive_count for message in rest} == {1}
