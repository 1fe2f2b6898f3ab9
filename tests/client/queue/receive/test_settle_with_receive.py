"""Workers settle messages and receive others in one request."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from tests.client.fake_cluster import FakeCluster
from tests.client.queue_fixture import fill, lead, left, queue_of, work_queue
from tests.coordinator.raft_clients import until
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.worker import QueueWorker
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import NotLeaderError
from tidelog.wire.messages.queues import (
    PartitionReceived,
    ReceiveReply,
    ReceiveRequest,
    Settled,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi, ApiKey
from tidelog.wire.transport.rpc import RpcConnection

_Reply = tuple[object, bytes]
_Change = Callable[[ReceiveRequest, _Reply], Awaitable[_Reply]]


def counting(seen: Counter[bytes | None], seconds: float) -> Callable[[Message], Awaitable[None]]:
    async def handle(message: Message) -> None:
        await trio.sleep(seconds)
        seen[message.value] += 1

    return handle


async def run_until(worker: QueueWorker, is_done: Callable[[], bool], seconds: float = 60) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        await until(is_done, seconds)
        worker.stop()


async def done(worker: QueueWorker, count: int) -> None:
    """Wait until a worker has handled so many messages."""
    await until(lambda: worker.statistics.done_count == count, 60)


def change_replies(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, change: _Change
) -> list[int]:
    """Change the replies to receives that settle; return the list of their settlements' counts."""
    pass_on = cluster.pass_on
    counts: list[int] = []

    async def changed(served: AnyApi, message: object, attachment: bytes) -> _Reply:
        reply = await pass_on(served, message, attachment)
        if isinstance(message, ReceiveRequest) and message.settlements:
            counts.append(len(message.settlements))
            reply = await change(message, reply)
        return reply

    monkeypatch.setattr(cluster, "pass_on", changed)
    return counts


def asked(cluster: FakeCluster, kind: str) -> int:
    return sum(
        [each.key.name for each in front.asked].count(kind) for front in cluster.fronts.values()
    )


async def test_a_busy_worker_needs_one_request_for_each_message(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 100)
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0.01), concurrency=1)

        await run_until(worker, lambda: len(seen) == 100)

        assert set(seen.values()) == {1}
        assert asked(cluster, "RECEIVE") <= 104
        assert asked(cluster, "SETTLE") <= 2
        assert sum(len(each.settlements) for each in cluster.receives) >= 98
        assert await left(queue) == (0, 0)


async def test_a_worker_with_many_handlers_settles_and_receives_several_at_a_time(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 200)
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0.01), concurrency=10)

        await run_until(worker, lambda: len(seen) == 200)

        assert set(seen.values()) == {1}
        assert asked(cluster, "RECEIVE") + asked(cluster, "SETTLE") <= 60
        assert await left(queue) == (0, 0)


async def test_a_delete_is_acknowledged_at_once_when_nothing_else_is_there(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 1)
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0.01), concurrency=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: bool(seen), 5)
            await trio.sleep(0.1)
            assert await left(queue) == (0, 0)
            began = trio.current_time()
            await queue.send(b"next")
            await until(lambda: len(seen) == 2, 5)
            assert trio.current_time() - began < 0.1, "the worker waits at the broker"
            worker.stop()


async def test_a_worker_of_an_empty_queue_settles_and_waits_for_the_next_message_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[RpcConnection, list[tuple[str, bool]]] = {}
    submit = RpcConnection.submit

    def submit_and_note(
        self: RpcConnection, api_: AnyApi, *what: object, is_followed: bool = False, **how: object
    ) -> int:
        if api_.key in {ApiKey.SETTLE, ApiKey.RECEIVE}:
            sent.setdefault(self, []).append((api_.key.name, is_followed))
        return cast("int", cast("Any", submit)(self, api_, *what, is_followed=is_followed, **how))

    monkeypatch.setattr(RpcConnection, "submit", submit_and_note)
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        seen: Counter[bytes | None] = Counter()

        async def handle(message: Message) -> None:
            await trio.lowlevel.checkpoint_if_cancelled()
            seen[message.value] += 1

        worker = queue.worker(handle, concurrency=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            for number in range(10):
                await queue.send(b"message %d" % number)
                await done(worker, number + 1)
                await trio.sleep(0.1)
                assert await left(queue) == (0, 0)
            # The first handlers may be slow.
            of_client = next(iter(sent.values()))
            assert of_client[-12:] == [("SETTLE", True), ("RECEIVE", False)] * 6
            assert not any(each.settlements for each in cluster.receives[-6:])
            worker.stop()
        assert seen.total() == 10


async def test_a_handler_that_waits_leaves_messages_to_the_next_one(
    autojump_clock: MockClock,
) -> None:
    """Handlers before it did not wait, so settlements were expected at once."""
    async with queue_of(autojump_clock, (1,)) as (queue, _):
        begun: list[bytes | None] = []

        async def handle(message: Message) -> None:
            begun.append(message.value)
            if message.value == b"slow":
                await trio.sleep(5)

        worker = queue.worker(handle, concurrency=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            for number in range(20):
                await queue.send(b"fast")
                await done(worker, number + 1)
            await queue.send(b"slow")
            await until(lambda: begun[-1] == b"slow", 5)
            began = trio.current_time()
            await queue.send(b"next")
            await until(lambda: begun[-1] == b"next", 5)
            assert trio.current_time() - began < 0.1
            worker.stop()


async def test_a_poll_ends_with_its_worker_and_the_next_one_gets_its_messages(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, _):
        seen: Counter[bytes | None] = Counter()
        first = queue.worker(counting(seen, 0), concurrency=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.run)
            for number in range(10):
                await queue.send(b"%d" % number)
                await done(first, number + 1)
            began = trio.current_time()
            first.stop()
        assert trio.current_time() - began < 0.5, "it does not wait for its poll"
        await queue.send(b"without a worker")
        await trio.sleep(0.1)
        assert await left(queue) == (1, 0), "the poll returns what comes late"
        second = queue.worker(counting(seen, 0), concurrency=1)
        await run_until(second, lambda: seen[b"without a worker"] == 1, 5)
        assert await left(queue) == (0, 0)
        assert seen.total() == 11


async def test_a_poll_that_fails_is_followed_by_a_receive_that_retries(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), fifo=True, visibility_timeout=3600) as (
        queue,
        cluster,
    ):
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0), concurrency=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            for number in range(40):
                if number % 8 == 7:
                    cluster.fronts[1].break_connections()
                await queue.send(b"%d" % number, group=b"only")
                await done(worker, number + 1)
            worker.stop()
        assert await left(queue) == (0, 0)


async def test_a_delete_does_not_wait_for_an_open_poll(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 3), concurrency=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(1)
            await queue.send(b"only")
            await trio.sleep(3.1)
            assert await left(queue) == (0, 0)
            assert asked(cluster, "SETTLE") == 1, "the second handler waits at the broker"
            worker.stop()


async def test_an_older_broker_gets_settlements_by_themselves(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.RECEIVE, "max_version", 2)
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 30)
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0.01), concurrency=2)

        await run_until(worker, lambda: len(seen) == 30)

        assert set(seen.values()) == {1}
        assert not any(each.settlements for each in cluster.receives)
        assert await left(queue) == (0, 0)


async def test_a_lost_reply_loses_no_message_and_repeats_the_settlement(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=20) as (queue, cluster):
        await fill(queue, 40)
        number = 0

        async def lose(request: ReceiveRequest, reply: _Reply) -> _Reply:
            nonlocal number
            number += 1
            if number % 3 == 0:
                cluster.fronts[1].break_connections()
            await trio.lowlevel.checkpoint()
            assert request.max_wait_ms == 0
            return reply

        change_replies(monkeypatch, cluster, lose)
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0.01), concurrency=1)

        await run_until(worker, lambda: len(seen) == 40, 300)

        assert number > 5
        assert worker.statistics.done_count == sum(seen.values())
        assert await left(queue) == (0, 0)


async def test_a_fifo_queue_goes_on_at_once_after_a_lost_reply(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_of(autojump_clock, (1,), fifo=True, visibility_timeout=3600) as (
        queue,
        cluster,
    ):
        names = [f"{group}{n}" for n in range(10) for group in "ab"]
        await queue.send_batch(
            OutgoingMessage(value=name.encode(), group=name[:1].encode()) for name in names
        )
        number = 0

        async def lose(request: ReceiveRequest, reply: _Reply) -> _Reply:
            nonlocal number
            number += 1
            if number % 2:
                cluster.fronts[1].break_connections()
            await trio.lowlevel.checkpoint()
            assert request.attempt_id is not None
            return reply

        change_replies(monkeypatch, cluster, lose)
        done: list[str] = []

        async def handle(message: Message) -> None:
            await trio.sleep(0.01)
            assert message.value is not None
            done.append(message.value.decode())

        worker = queue.worker(handle, concurrency=2)
        await run_until(worker, lambda: len(done) == 20, 300)

        assert number >= 2
        for group in "ab":
            assert [each for each in done if each[0] == group] == [f"{group}{n}" for n in range(10)]
        assert await left(queue) == (0, 0)


async def test_an_error_of_one_partition_brings_the_messages_of_another_only_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_of(autojump_clock, (1, 2), fifo=True, visibility_timeout=3600) as (
        queue,
        cluster,
    ):
        lead(cluster, 1)
        await queue.send_batch(OutgoingMessage(value=b"%d" % n, group=b"only") for n in range(3))
        error = NotLeaderError("another broker leads the partition").to_wire()
        failed_count = 0

        async def fail_one(request: ReceiveRequest, reply: _Reply) -> _Reply:
            nonlocal failed_count
            await trio.lowlevel.checkpoint()
            received = cast("ReceiveReply", reply[0])
            others = list({*request.partitions} - {each.partition for each in received.results})
            if len(others) != 1:
                return reply
            failed_count += 1
            results = [*received.results, PartitionReceived(others[0], error=error)]
            return replace(received, results=results), reply[1]

        change_replies(monkeypatch, cluster, fail_one)
        seen: Counter[bytes | None] = Counter()

        async def handle(message: Message) -> None:
            await trio.sleep(1 if seen else 0)  # The first one is fast, so others come ahead.
            seen[message.value] += 1

        worker = queue.worker(handle, concurrency=1)
        await run_until(worker, lambda: worker.statistics.done_count >= 3)

        assert failed_count
        assert set(seen.values()) == {1}, seen
        assert await left(queue) == (0, 0)


async def test_a_refused_settlement_is_retried_by_the_same_rules(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=30) as (queue, cluster):
        await fill(queue, 10)
        retriable = NotLeaderError("another broker leads the partition").to_wire()
        is_first = True

        async def refuse(request: ReceiveRequest, reply: _Reply) -> _Reply:
            nonlocal is_first
            await trio.lowlevel.checkpoint()
            if not is_first:
                return reply
            is_first = False
            settled = [Settled(error=retriable) for _ in request.settlements]
            return replace(cast("ReceiveReply", reply[0]), settled=settled), reply[1]

        change_replies(monkeypatch, cluster, refuse)
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0.01), concurrency=1)

        await run_until(worker, lambda: len(seen) == 10)

        assert set(seen.values()) == {1}
        assert await left(queue) == (0, 0)


async def test_a_reply_without_the_results_of_all_settlements_is_wrong(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=20) as (queue, cluster):
        await fill(queue, 10)
        number = 0

        async def drop(request: ReceiveRequest, reply: _Reply) -> _Reply:
            nonlocal number
            number += 1
            await trio.lowlevel.checkpoint()
            if number > 1:
                return reply
            assert request.settlements
            return replace(cast("ReceiveReply", reply[0]), settled=[]), reply[1]

        change_replies(monkeypatch, cluster, drop)
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0.01), concurrency=1)

        await run_until(worker, lambda: len(seen) == 10, 300)

        assert cluster.fronts[1].asked.count(cast("AnyApi", api.HELLO)) >= 2, "it was closed"
        assert await left(queue) == (0, 0)


async def test_messages_that_arrive_after_the_end_of_a_worker_are_returned(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=3600) as (queue, cluster):
        await fill(queue, 10)

        async def delay(request: ReceiveRequest, reply: _Reply) -> _Reply:
            assert request.settlements
            scope.cancel()
            await trio.sleep(0.5)
            return reply

        change_replies(monkeypatch, cluster, delay)
        seen: Counter[bytes | None] = Counter()
        with trio.CancelScope() as scope:
            await queue.work(counting(seen, 0.01), concurrency=1)

        assert await left(queue) == (10 - len(seen), 0), "the worker has waited for that"
        assert {each.receive_count for each in await queue.receive(100)} == {1}


async def test_all_brokers_of_a_queue_have_their_turn(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1, 2, 3)) as (queue, _):
        await fill(queue, 600)
        partitions: list[int] = []

        async def handle(message: Message) -> None:
            await trio.sleep(0.01)
            partitions.append(message.partition)

        worker = queue.worker(handle, concurrency=1)
        await run_until(worker, lambda: len(partitions) >= 90)

        shares = Counter(partitions[:90])
        assert len(shares) == 3
        assert min(shares.values()) >= 10, shares


async def test_a_moved_leader_gets_the_settlements_and_the_receives(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1, 2), visibility_timeout=20) as (queue, cluster):
        await fill(queue, 60)
        seen: Counter[bytes | None] = Counter()
        worker = queue.worker(counting(seen, 0.05), concurrency=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: len(seen) > 10)
            lead(cluster, 2)
            await until(lambda: len(seen) == 60, 120)
            worker.stop()
        assert await left(queue) == (0, 0)


async def received_by_two(queue: Queue, seconds: float) -> tuple[int, int]:
    """Return how many of few messages each of two workers handles, if the first begins first."""
    counts = [0, 0]

    def handler(number: int) -> Callable[[Message], Awaitable[None]]:
        async def handle(message: Message) -> None:
            del message
            counts[number] += 1
            await trio.sleep(seconds)

        return handle

    workers = [queue.worker(handler(number), concurrency=1) for number in range(2)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workers[0].run)
        await trio.sleep(0.1)
        nursery.start_soon(workers[1].run)
        await until(lambda: sum(worker.statistics.done_count for worker in workers) == 4)
        for worker in workers:
            worker.stop()
    return counts[0], counts[1]


async def test_a_worker_with_slow_handlers_leaves_messages_to_others(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 4)
        assert await received_by_two(queue, 5) == (2, 2)


async def test_messages_in_hand_are_returned_when_a_handler_becomes_slow(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=3600) as (_, queue):
        await fill(queue, 30)
        begun = 0

        async def handle(message: Message) -> None:
            nonlocal begun
            del message
            begun += 1
            await trio.sleep(0 if begun <= 5 else 60)

        worker = queue.worker(handle, concurrency=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: begun == 6, 5)
            await trio.sleep(0.5)
            assert (await left(queue))[1] > 1, "fast handlers have messages in hand"
            await trio.sleep(1)
            assert (await left(queue))[1] == 1
            rest = await queue.receive(100)
            assert {message.receive_count for message in rest} == {1}
            worker.stop()
            nursery.cancel_scope.cancel()


async def test_messages_behind_the_first_slow_one_of_a_receive_are_returned(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=3600) as (_, queue):
        begun = 0

        async def handle(message: Message) -> None:
            nonlocal begun
            del message
            begun += 1
            await trio.sleep(0 if begun <= 5 else 60)

        worker = queue.worker(handle, concurrency=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await fill(queue, 5)
            await until(lambda: worker.statistics.done_count == 5, 5)
            await trio.sleep(1)
            await fill(queue, 4)  # Fast handlers were seen: the idle worker takes all of them.
            await trio.sleep(0.1)
            assert (await left(queue))[1] == 4
            await trio.sleep(2)
            assert (await left(queue))[1] == 1
            worker.stop()
            nursery.cancel_scope.cancel()


async def test_a_program_that_holds_messages_gets_more_from_its_subscription(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 40)
        got: list[Message] = []
        async with queue.subscribe(20) as messages:
            async for message in messages:
                got.append(message)
                if len(got) == 20:
                    await queue.delete_batch(got[:15])
                if len(got) == 35:
                    break
        assert len({message.offset for message in got}) == 35
        assert asked(cluster, "RECEIVE") <= 6


async def test_a_message_whose_group_was_busy_for_long_is_returned_if_all_handlers_are_busy(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_of(autojump_clock, (1,), fifo=True, visibility_timeout=3600) as (
        queue,
        cluster,
    ):
        pass_on = cluster.pass_on
        is_slow = False

        async def delay(served: AnyApi, message: object, attachment: bytes) -> _Reply:
            if is_slow and served.key in {ApiKey.SETTLE, ApiKey.RECEIVE}:
                await trio.sleep(5)
            return await pass_on(served, message, attachment)

        monkeypatch.setattr(cluster, "pass_on", delay)

        async def handle(message: Message) -> None:
            await trio.sleep(3600 if message.value == b"slow" else 0)

        worker = queue.worker(handle, concurrency=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            for number in range(5):
                await queue.send(b"fast", group=b"fast")
                await done(worker, number + 1)
            await queue.send_batch(
                OutgoingMessage(value=value, group=group)
                for value, group in [(b"1", b"a"), (b"slow", b"b"), (b"2", b"a")]
            )
            is_slow = True
            await done(worker, 6)
            await trio.sleep(4)
            assert (await left(queue))[0] == 0, "the first message of the group is not deleted yet"
            await trio.sleep(1.5)
            is_slow = False
            assert (await left(queue))[0] == 0, "the second one is in hand for half a second"
            await trio.sleep(6)
            assert (await left(queue)) == (1, 1)
            nursery.cancel_scope.cancel()
