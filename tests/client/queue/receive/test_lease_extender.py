"""Lease extender: extends messages in time, independently of other brokers."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import FakeCluster
from tests.client.queue_fixture import fill, left, queue_of, work_queue
from tests.coordinator.raft_clients import until
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.wire.messages.queues import SettleAction, SettleRequest
from tidelog.wire.protocol import api


class Settling:
    """Settlement requests at the brokers."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.hanging: set[int] = set()
        """Nodes that do not answer."""
        self.extensions: list[tuple[int, int | None]] = []
        """Nodes that were asked to extend messages, with the milliseconds."""
        self._cluster = cluster
        cluster.answers[api.SETTLE] = self._answer  # type: ignore[index]

    async def _answer(self, node_id: int, request: object) -> object:
        assert isinstance(request, SettleRequest)
        self.extensions += [
            (node_id, each.delay_ms)
            for each in request.settlements
            if each.action == SettleAction.EXTEND
        ]
        if node_id in self.hanging:
            await trio.sleep_forever()
        return (await self._cluster.pass_on(api.SETTLE, request, b""))[0]  # type: ignore[arg-type]


def delay_next(queue: Queue, seconds: float) -> None:
    """Delay the delivery of the next messages to their receiver."""
    receiver = vars(queue)["_receiver"]
    receive = receiver.receive

    async def slowly(*args: object, **kwargs: object) -> list[Message]:
        messages: list[Message] = await receive(*args, **kwargs)
        if messages:
            receiver.receive = receive
            await trio.sleep(seconds)
        return messages

    receiver.receive = slowly


@pytest.mark.parametrize("visibility_timeout", [None, 10.0])
async def test_a_hanging_broker_does_not_lose_leases_of_another(
    autojump_clock: MockClock, visibility_timeout: float | None
) -> None:
    async with queue_of(autojump_clock, visibility_timeout=10) as (queue, cluster):
        await fill(queue, 10)
        settling = Settling(cluster)
        settling.hanging.add(1)
        begun: list[tuple[int, int]] = []

        async def handle(message: Message) -> None:
            begun.append((message.partition, message.offset))
            await trio.sleep(100)

        worker = queue.worker(handle, concurrency=20, visibility_timeout=visibility_timeout)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: len(begun) >= 10, 100)
            await trio.sleep(80)
            of_other = [place for place in begun if place[0] == 1]
            assert len(of_other) == len(set(of_other)), "each was handed out once"
            nursery.cancel_scope.cancel()


async def test_a_lease_is_extended_at_half_of_its_remaining_time(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 1)
        delay_next(queue, 7)
        begun = 0

        async def handle(message: Message) -> None:
            nonlocal begun
            del message
            begun += 1
            await trio.sleep(30)

        worker = queue.worker(handle, visibility_timeout=10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: worker.statistics.done_count == 1, 100)
            worker.stop()

        assert begun == 1
        assert await left(queue) == (0, 0)


async def test_no_handler_starts_a_message_with_an_expired_lease(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 1)
        delay_next(queue, 12)
        counts: list[int] = []

        async def handle(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            counts.append(message.receive_count)

        worker = queue.worker(handle, visibility_timeout=10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: bool(counts), 100)
            worker.stop()

        assert counts == [2]


async def test_a_worker_extends_by_the_visibility_timeout_of_the_queue(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=10) as (queue, cluster):
        await fill(queue, 1)
        settling = Settling(cluster)
        delay_next(queue, 3)

        async def handle(message: Message) -> None:
            del message
            await trio.sleep(20)

        worker = queue.worker(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: worker.statistics.done_count == 1, 100)
            worker.stop()

        assert settling.extensions
        assert set(settling.extensions) == {(1, 10_000)}


async def test_a_failed_extension_is_retried_before_the_lease_ends(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 1)
        settling = Settling(cluster)
        begun = 0

        async def handle(message: Message) -> None:
            nonlocal begun
            del message
            begun += 1
            await trio.sleep(400)

        worker = queue.worker(handle, visibility_timeout=200)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(90)
            settling.hanging.add(1)
            await trio.sleep(60)
            settling.hanging.clear()
            await until(lambda: worker.statistics.done_count == 1, 1000)
            worker.stop()

        assert begun == 1
