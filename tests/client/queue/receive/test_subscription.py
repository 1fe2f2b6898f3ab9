"""Subscription: a window of messages that are received ahead, extended, and given back."""

from contextlib import suppress
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import FakeCluster
from tests.client.large_messages import LONG
from tests.client.queue_fixture import drain, fill, left, queue_of, values, work_queue
from tests.coordinator.raft_clients import until
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.subscription import QueueSubscription
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.queue_layer.commands import settle
from tidelog.wire.errors import UnknownQueueError
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi


async def take(messages: QueueSubscription, count: int) -> list[Message]:
    """Return the next messages, which are not settled."""
    return [await anext(messages) for _ in range(count)]


async def fill_group(queue: Queue, count: int, group: bytes = b"g") -> None:
    await queue.send_batch(OutgoingMessage(value=b"%d" % n, group=group) for n in range(count))


def asked(cluster: FakeCluster) -> int:
    receive = cast("AnyApi", api.RECEIVE)
    return sum(front.asked.count(receive) for front in cluster.fronts.values())


async def test_every_message_is_handed_out_once_and_deleted(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 300)
        seen: list[bytes | None] = []
        async with queue.subscribe(max_messages=40) as messages:
            async for message in messages:
                seen.append(message.value)
                await message.delete()
                if len(seen) == 300:
                    break
        assert sorted(seen) == sorted(b"%d" % n for n in range(300))  # type: ignore[type-var]
        assert await left(queue) == (0, 0)
        assert asked(cluster) < 60, "a settled message alone is no reason for a receive"


async def test_a_program_that_settles_nothing_gets_no_more_than_the_window(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, partitions=2) as (_, queue):
        await fill(queue, 50)
        async with queue.subscribe(7) as messages:
            got = await take(messages, 7)
            with trio.move_on_after(300) as scope:
                await anext(messages)
            assert scope.cancelled_caught
            assert await left(queue) == (43, 7)

            await got[0].delete()
            await queue.release(got[1].receipt_handle, 3600)
            more = await take(messages, 2)

            assert not set(values(more)) & set(values(got))
            assert await left(queue) == (42, 7)


async def test_held_messages_stay_in_flight(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, visibility_timeout=10) as (_, queue):
        await fill(queue, 5)
        async with queue.subscribe(visibility_timeout=20) as messages:
            got = await take(messages, 2)
            for _ in range(20):
                await trio.sleep(15)
                assert await left(queue) == (0, 5), "also those that wait"
            got += await take(messages, 3)
            await queue.delete_batch(got)
        assert {message.receive_count for message in got} == {1}
        assert await left(queue) == (0, 0)


async def test_the_end_of_the_block_releases_seen_messages_and_returns_the_others(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=600) as (_, queue):
        await fill(queue, 20)
        async with queue.subscribe(15) as messages:
            seen = await take(messages, 4)
            await seen[0].delete()
        assert await left(queue) == (19, 0)
        counts = {message.value: message.receive_count for message in await queue.receive(100)}
        assert {counts.pop(message.value) for message in seen[1:]} == {2}
        assert set(counts.values()) == {1}
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        with pytest.raises(trio.ClosedResourceError, match="a subscription is used once"):
            async with messages:
                pass


@pytest.mark.parametrize("is_failing", [True, False])
async def test_a_cancelled_or_failed_block_gives_everything_back(
    autojump_clock: MockClock, *, is_failing: bool
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=600) as (_, queue):
        await fill(queue, 20)
        began = trio.current_time()
        with trio.move_on_after(5):
            with suppress(KeyError):
                async with queue.subscribe() as messages:
                    found = {(await anext(messages)).value: True}
                    while not (is_failing and found.pop(b"missing")):
                        await trio.sleep_forever()
        assert trio.current_time() - began < 6
        assert await left(queue) == (20, 0)


async def test_the_block_ends_although_no_broker_answers(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 20)
        async with queue.subscribe() as messages:
            await take(messages, 3)
            for front in cluster.fronts.values():
                front.is_frozen = True
            began = trio.current_time()
        assert trio.current_time() - began <= 3.1
        for front in cluster.fronts.values():
            front.is_frozen = False


async def test_a_lost_message_is_not_handed_out_and_frees_its_place(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=60) as (_, queue):
        await fill(queue, 3)
        async with queue.subscribe(3) as messages:
            await anext(messages)
            await trio.sleep(1)
            await queue.purge()
            await trio.sleep(31)
            await queue.send(b"later")
            assert (await anext(messages)).value == b"later"


async def test_a_place_is_free_again_when_no_extension_is_possible_any_more(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "VISIBILITY_TIMEOUT_MS_MAX", 60_000)
    async with work_queue(autojump_clock, visibility_timeout=20) as (_, queue):
        await fill(queue, 1)
        async with queue.subscribe(1) as messages:
            began = trio.current_time()
            await anext(messages)
            assert (await anext(messages)).receive_count == 2
            assert 50 <= trio.current_time() - began <= 61


async def test_tasks_share_a_subscription(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, partitions=3) as (_, queue):
        await fill(queue, 60)
        seen: list[bytes | None] = []

        async def work(messages: QueueSubscription) -> None:
            async for message in messages:
                await trio.sleep(1)
                seen.append(message.value)
                await message.delete()

        async with trio.open_nursery() as nursery, queue.subscribe(20) as messages:
            for _ in range(6):
                nursery.start_soon(work, messages)
            await until(lambda: len(seen) == 60, 60)
        assert len(set(seen)) == 60
        assert trio.current_time() < 15
        assert await left(queue) == (0, 0)


async def test_a_cancelled_iteration_loses_no_message(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue), queue.subscribe() as messages:
        for _ in range(3):
            with trio.move_on_after(0.5):
                await anext(messages)
        await queue.send(LONG)
        await trio.sleep(1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(messages)
        message = await anext(messages)
        assert (message.value, message.receive_count) == (LONG, 1)


async def test_messages_of_a_group_are_handed_out_in_order(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, fifo=True) as (_, queue):
        await fill_group(queue, 30)
        seen: list[bytes | None] = []
        async with queue.subscribe(10) as messages:
            together = await take(messages, 10)
            seen += values(together)
            await queue.delete_batch(together)
            while len(seen) < 30:
                message = await anext(messages)
                seen.append(message.value)
                await message.delete()
        assert seen == [b"%d" % n for n in range(30)]


async def test_messages_behind_a_released_one_of_their_group_come_again_behind_it(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, fifo=True) as (_, queue):
        await fill_group(queue, 5)
        seen: list[tuple[bytes | None, int]] = []
        async with queue.subscribe() as messages:
            first, second = await take(messages, 2)
            await first.delete()
            await second.release()
            while len(seen) < 4:
                message = await anext(messages)
                seen.append((message.value, message.receive_count))
                await message.delete()
        assert seen == [(b"1", 2), (b"2", 1), (b"3", 1), (b"4", 1)]


async def test_iterations_end_with_the_error_of_the_queue(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (client, queue), queue.subscribe() as messages:
        await trio.sleep(1)
        await client.admin.delete_queue("work")
        for _ in range(2):
            with pytest.raises(UnknownQueueError):
                await anext(messages)


async def test_a_subscription_waits_while_its_broker_is_away(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        async with queue.subscribe() as messages:
            await trio.sleep(1)
            cluster.fronts[1].stop()
            await trio.sleep(60)
            await cluster.start(1)
            await queue.send(b"later")
            await (await anext(messages)).delete()
        assert await drain(queue) == []


async def test_an_ended_subscription_watches_no_message(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 20)
        async with queue.subscribe(9) as messages:
            for message in await take(messages, 5):
                await message.delete()
        settled = vars(queue)["_settler"].settled
        assert (settled._watched, settled._callbacks) == ({}, {})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"max_messages": 0}, "max_messages is from 1 to 1000, not 0"),
        ({"visibility_timeout": 0.5}, "visibility_timeout is at least 1 second, not 0.5"),
        ({"wait": 0}, "wait is above 0 seconds, not 0"),
    ],
)
async def test_invalid_settings_of_a_subscription_are_refused(
    autojump_clock: MockClock, settings: dict[str, float], complaint: str
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        with pytest.raises(ValueError, match=complaint):
            queue.subscribe(**settings)  # type: ignore[arg-type]
        with pytest.raises(trio.ClosedResourceError, match="inside of `async with`"):
            await anext(queue.subscribe())
