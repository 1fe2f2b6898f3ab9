"""What concerns all partitions of a queue is asked at all brokers that serve it."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.queue_world import fill, lead, queue_of
from tidelog.wire.errors import LogOfflineError, ShuttingDownError


async def test_counts_of_all_partitions_are_in_their_order(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (3, 1, 2)) as (queue, cluster):
        cluster.leaders = {0: (3, 0), 1: (1, 0), 2: (2, 0)}
        await fill(queue, 30)
        await queue.receive(4)
        counts = await queue.counts()
        assert [each.partition for each in counts] == [0, 1, 2]
        assert sum(each.visible for each in counts) == 26
        assert sum(each.leased for each in counts) == 4


async def test_a_leader_that_changes_meanwhile_is_followed(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 10)
        await queue.counts()
        cluster.fronts[2].refusal = ShuttingDownError("it stops")
        counted: list[int] = []

        async def count() -> None:
            counted.append(sum(each.visible for each in await queue.counts()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await trio.sleep(1)
            assert not counted
            lead(cluster, 1)
        assert counted == [10]
        assert await queue.purge() == 10


async def test_what_waiting_does_not_cure_is_said_at_once(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await queue.counts()
        cluster.fronts[2].refusal = LogOfflineError("its disk failed")
        with pytest.raises(LogOfflineError):
            await queue.purge()
        assert trio.current_time() < 1


async def test_a_queue_goes_back_to_a_time(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 10)
        await trio.sleep(60)
        moment = cluster.world.clock.now_ms()
        await fill(queue, 4)
        assert await queue.purge() == 14
        assert await queue.seek(moment) == 4
        assert await queue.seek("latest") == 0
        assert await queue.receive(wait=0) == []
