"""Tests that a queue loses no message when its broker is killed repeatedly."""

import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

import tidelog
from tests.system.integration.processes import DEADLINE_S, serving
from tests.system.integration.test_kills import run_mortal_broker

QUEUE = "kills"
MESSAGES = 2000
KILLS = 3
WORKERS = 4


class Work:
    """Received messages, and acknowledged deletes."""

    def __init__(self) -> None:
        self.received: Counter[bytes] = Counter()
        self.counts: dict[bytes, set[int]] = {}
        self.deleted: set[bytes] = set()
        self.progressed = trio.Event()

    async def work(self, queue: tidelog.Queue) -> None:
        """Receive and delete without end, across restarts of brokers."""
        while True:
            deleted_before = frozenset(self.deleted)
            try:
                for message in await queue.receive(20, wait=1):
                    assert message.value is not None
                    assert message.value not in deleted_before, "a deleted message returned"
                    counts = self.counts.setdefault(message.value, set())
                    assert message.receive_count not in counts, "a delivery was forgotten"
                    counts.add(message.receive_count)
                    self.received[message.value] += 1
                    await message.delete()
                    self.deleted.add(message.value)
                    progressed, self.progressed = self.progressed, trio.Event()
                    progressed.set()
            except tidelog.TidelogError:
                await trio.sleep(0.1)

    async def wait_deleted(self, count: int) -> None:
        """Wait until `count` messages are deleted."""
        while len(self.deleted) < count:
            await self.progressed.wait()


@pytest.mark.statement("b73", "b78")
async def test_every_message_of_a_queue_is_accounted_for_across_kills(tmp_path: Path) -> None:
    work = Work()
    values = [b"%d" % number for number in range(MESSAGES)]
    is_done = trio.Event()

    def moment(kill: int) -> Callable[[], Awaitable[None]]:
        return lambda: work.wait_deleted((kill + 1) * MESSAGES // (KILLS + 2))

    moments = [moment(kill) for kill in range(KILLS)]
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            address: str = await nursery.start(run_mortal_broker, tmp_path, moments, is_done)
            async with tidelog.connect(address) as client:
                await client.admin.create_queue(
                    QUEUE, partitions=2, visibility_timeout="2s", receive_acks="all"
                )
                async with client.producer() as producer:
                    await producer.send_many(QUEUE, values, keys=values)
                queue = client.queue(QUEUE)
                async with trio.open_nursery() as working:
                    for _ in range(WORKERS):
                        working.start_soon(work.work, queue)
                    await is_done.wait()
                    await wait_until_empty(queue)
                    working.cancel_scope.cancel()
            nursery.cancel_scope.cancel()

    assert set(work.received) == set(values)
    # The other deletes lost their replies.
    assert len(work.deleted) >= MESSAGES - KILLS * WORKERS


async def wait_until_empty(queue: tidelog.Queue) -> None:
    """Wait until the queue is empty: there is no event for the end of leases."""
    while True:
        if not sum(each.visible + each.in_flight for each in await queue.counts()):
            return
        await trio.sleep(0.2)


@pytest.mark.statement("b73", "b77")
async def test_many_individual_acknowledgements_survive_a_kill(tmp_path: Path) -> None:
    """Statement 77: Pulsar keeps 10,000 of them."""
    holes = 11_000
    async with serving(tmp_path) as broker:
        async with tidelog.connect(broker.address) as client:
            await client.admin.create_queue(QUEUE, visibility_timeout="1h")
            queue = client.queue(QUEUE)
            await queue.send_batch([b""] * (2 * holes))
            for _ in range(2 * holes // 1000):
                messages = await queue.receive(1000)
                await queue.delete_batch(each for each in messages if each.offset % 2)
        broker.signal(signal.SIGKILL)
        await broker.wait_ended()

    async with serving(tmp_path) as broker, tidelog.connect(broker.address) as client:
        queue = client.queue(QUEUE)
        (counts,) = await queue.counts()
        assert (counts.in_flight, counts.visible) == (holes, 0)
        assert not any(seen.record.offset % 2 for seen in await queue.in_flight(2 * holes))
