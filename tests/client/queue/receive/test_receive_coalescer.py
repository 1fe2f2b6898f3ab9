"""Receive coalescer: one request for concurrent receives, and the share of each."""

from collections import Counter
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.client.queue_fixture import drain, fill, left, queue_of, values
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.receiver import QueueReceiver
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queues import SettleRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


async def _received(
    queue: Queue, calls: int, max_messages: int, *, wait_s: float = 20
) -> list[list[Message]]:
    """Return the messages of receives that start at the same time."""
    found: list[list[Message]] = []

    async def receive() -> None:
        found.append(await queue.receive(max_messages, wait=wait_s))

    async with trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(receive)
    return found


async def test_concurrent_receives_are_one_request(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 40)
        cluster.fronts[1].asked.clear()

        found = await _received(queue, 8, 5)

        assert cluster.fronts[1].asked.count(api.RECEIVE) == 1  # type: ignore[arg-type]
        assert [len(messages) for messages in found] == [5] * 8
        everything = Counter(value for messages in found for value in values(messages))
        assert everything == Counter(b"%d" % n for n in range(40))


async def test_concurrent_settlements_of_one_receive_are_one_settlement(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 40)
        found = await _received(queue, 8, 5)
        asked: list[SettleRequest] = []

        async def note(node_id: int, request: object) -> object:
            del node_id
            assert isinstance(request, SettleRequest)
            asked.append(request)
            return (await cluster.pass_on(api.SETTLE, request, b""))[0]  # type: ignore[arg-type]

        cluster.answers[api.SETTLE] = note  # type: ignore[index]
        async with trio.open_nursery() as nursery:
            for messages in found:
                nursery.start_soon(queue.delete_batch, messages)

        assert [each.runs for request in asked for each in request.settlements] == [[(0, 40)]]
        assert await left(queue) == (0, 0)


async def test_receives_answered_together_are_coalesced_again(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 40)
        asked = cluster.fronts[1].asked
        asked.clear()

        async def work() -> None:
            for _ in range(5):
                await queue.delete_batch(await queue.receive(1, wait=20))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(work)

        assert asked.count(api.RECEIVE) == asked.count(api.SETTLE) == 5  # type: ignore[arg-type]
        assert await left(queue) == (0, 0)


async def test_a_coalesced_receive_without_messages_keeps_waiting(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=600) as (queue, _):
        found: list[bytes | None] = []
        ends: list[float] = []

        async def receive() -> None:
            found.extend(values(await queue.receive(2, wait=10)))
            ends.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            for _ in range(4):
                nursery.start_soon(receive)
            await trio.sleep(1)
            await queue.send_batch([b"0", b"1", b"2"])
            await trio.sleep(1)
            await queue.send(b"3")

        assert sorted(value for value in found if value) == [b"0", b"1", b"2", b"3"]
        assert [round(end) for end in ends] == [1, 1, 2, 10]
        assert await left(queue) == (0, 4)


async def test_an_empty_queue_returns_nothing_to_all_coalesced_receives(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await queue.receive(wait=0)
        before = {node_id: len(front.asked) for node_id, front in cluster.fronts.items()}

        assert await _received(queue, 10, 10, wait_s=20) == [[]] * 10

        for node_id, front in cluster.fronts.items():
            assert len(front.asked) - before[node_id] <= 3


async def test_receives_with_different_options_are_not_coalesced(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 40)
        asked = cluster.receives

        async with trio.open_nursery() as nursery:
            for timeout in (60, 70):
                for _ in range(2):
                    nursery.start_soon(partial(queue.receive, 3, visibility_timeout=timeout))

        wanted = sorted((each.visibility_timeout_ms, each.max_messages) for each in asked)
        assert wanted == [(60_000, 6), (70_000, 6)]


async def test_a_coalesced_request_is_limited_in_messages(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 700)
        asked = cluster.receives

        assert sum(map(len, await _received(queue, 5, 80))) == 400
        assert sorted(each.max_messages for each in asked) == [80, 160, 160]
        assert sum(map(len, await _received(queue, 1, 300))) == 300


async def test_fifo_receive_attempts_are_not_coalesced(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1,), fifo=True) as (queue, cluster):
        await fill(queue, 10)
        asked = cluster.receives

        assert sum(map(len, await _received(queue, 2, 5))) == 10

        assert len({each.attempt_id for each in asked}) == 2


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_fifo_receives_of_one_turn_leave_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    async with queue_of(autojump_clock, (1,), fifo=True, visibility_timeout=600) as (
        queue,
        cluster,
    ):
        await fill(queue, 8)
        await queue.receive(1, visibility_timeout=0)
        cluster.receives.clear()
        sent: list[int] = []
        found: list[bytes | None] = []
        scopes: dict[trio.lowlevel.Task, trio.CancelScope] = {}
        flush = RpcConnection.flush
        send = QueueReceiver._send_together  # pyright: ignore[reportPrivateUsage]

        def note(connection: RpcConnection) -> None:
            sent.append(len(cluster.receives))
            flush(connection)

        async def send_together(receiver: QueueReceiver, connection: RpcConnection) -> None:
            if is_cancelled:  # The others need it nevertheless.
                scopes[trio.lowlevel.current_task()].cancel()
            await send(receiver, connection)

        async def receive() -> None:
            with trio.CancelScope() as scopes[trio.lowlevel.current_task()]:
                found.extend(values(await queue.receive(1, wait=20)))

        monkeypatch.setattr(RpcConnection, "flush", note)
        monkeypatch.setattr(QueueReceiver, "_send_together", send_together)
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(receive)

        # The first one does not wait for others.
        assert sent in ([0], [1])
        assert len({each.attempt_id for each in cluster.receives}) == 8
        assert len(found) == 8 - is_cancelled
        await trio.sleep(1)
        assert await left(queue) == (int(is_cancelled), len(found))


@pytest.mark.parametrize("number", [0, 2])
async def test_a_cancelled_coalesced_receive_does_not_affect_others(
    autojump_clock: MockClock, number: int
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=600) as (queue, _):
        scopes = [trio.CancelScope() for _ in range(4)]
        found: list[bytes | None] = []

        async def receive(scope: trio.CancelScope) -> None:
            with scope:
                found.extend(values(await queue.receive(2, wait=20)))

        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(receive, scope)
            await trio.sleep(1)
            scopes[number].cancel()
            await trio.sleep(1)
            await fill(queue, 10)

        assert len(found) == 6
        await trio.sleep(1)
        assert await left(queue) == (4, 6)
        rest = await queue.receive(100)
        assert {message.receive_count for message in rest} == {1}


async def test_after_all_coalesced_receives_are_cancelled_the_next_is_served(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=600) as (queue, _):
        await fill(queue, 4)
        with trio.CancelScope() as scope:
            scope.cancel()
            await queue.receive(10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queue.receive, 10)
            nursery.start_soon(queue.receive, 10)
            nursery.cancel_scope.cancel()

        assert len(await drain(queue)) == 4


async def test_a_receive_cancelled_on_arrival_returns_its_messages(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=600) as (queue, _):
        receiver: QueueReceiver = vars(queue)["_receiver"]
        on_complete = receiver.on_complete
        scope = trio.CancelScope()

        def land_and_cancel(*what: object) -> None:
            on_complete(*what)  # type: ignore[arg-type]
            scope.cancel()

        async def receive(scope: trio.CancelScope) -> None:
            with scope:
                found.extend(await queue.receive(1, wait=20))

        monkeypatch.setattr(receiver, "on_complete", land_and_cancel)
        # The scheduler decides which of them asks, and which continues first.
        for _ in range(20):
            found: list[Message] = []
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive, trio.CancelScope())
                nursery.start_soon(receive, scope)
                await trio.sleep(1)
                await queue.send_batch([b"1", b"2"])
            await trio.sleep(1)
            assert await left(queue) == (2 - len(found), len(found))
            await queue.purge()


async def test_each_coalesced_receive_raises_its_own_copy_of_an_error(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await queue.receive(wait=0)
        cluster.fronts[1].refusal = InvalidRequestError("no")
        errors: list[InvalidRequestError] = []

        async def receive() -> None:
            with pytest.raises(InvalidRequestError, match="no") as caught:
                await queue.receive(3)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(receive)
        assert len({id(error) for error in errors}) == 3


async def test_receives_at_an_idle_queue_are_one_request(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        asked = cluster.receives
        ends: list[float] = []

        async def receive(place: int) -> None:
            await trio.sleep(place / 10)
            began = trio.current_time()
            assert await queue.receive(wait=10) == []
            ends.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            for place in range(100):
                nursery.start_soon(receive, place)

        assert len(asked) <= 6
        assert len(ends) == 100
        assert {round(end, 1) for end in ends} == {10.0}


async def test_receives_at_an_idle_queue_are_served_in_order(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=600) as (queue, cluster):
        found: dict[int, list[bytes | None]] = {}

        async def receive(place: int) -> None:
            found[place] = values(await queue.receive(2, wait=100))

        async with trio.open_nursery() as nursery:
            for place in range(20):
                nursery.start_soon(receive, place)
                await trio.sleep(1)
            cluster.receives.clear()
            await queue.send_batch([b"%d" % number for number in range(40)])

        assert sorted(value for each in found.values() for value in each if value) == sorted(
            b"%d" % number for number in range(40)
        )
        assert [len(found[place]) for place in range(20)] == [2] * 20
        assert len(cluster.receives) <= 4
        assert await left(queue) == (0, 40)


@pytest.mark.parametrize("fifo", [False, True])
async def test_receives_at_an_idle_queue_that_are_cancelled_leave_nothing_leased(
    autojump_clock: MockClock, fifo: bool
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=600, fifo=fifo) as (queue, _):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(partial(queue.receive, 1, wait=20))
                await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        await fill(queue, 10)
        await trio.sleep(1)

        assert await left(queue) == (10, 0)


async def test_a_receive_of_a_fifo_queue_gets_the_messages_of_one_request(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), visibility_timeout=600, fifo=True) as (
        queue,
        cluster,
    ):
        found: list[list[Message]] = []

        async def receive() -> None:
            found.append(await queue.receive(3, wait=60))

        async with trio.open_nursery() as nursery:
            for _ in range(150):
                nursery.start_soon(receive)
                await trio.sleep(0.1)
            await trio.sleep(0.1)
            waiting = len(cluster.receives)
            for group in range(150):
                await queue.send_batch(
                    [OutgoingMessage(b"%d" % number, group=b"%d" % group) for number in range(3)]
                )

        assert waiting <= 102
        assert [values(each) for each in found] == [[b"0", b"1", b"2"]] * 150
        assert all(len({message.key for message in each}) == 1 for each in found)
        assert len({each.attempt_id for each in cluster.receives}) == len(cluster.receives)


async def test_the_error_of_a_request_at_an_idle_queue_is_that_of_all(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        errors: list[InvalidRequestError] = []
        empty: list[list[Message]] = []

        async def receive() -> None:
            try:
                empty.append(await queue.receive(3, wait=5))
            except InvalidRequestError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(receive)
                await trio.sleep(0.5)
            # The request that waits now is that of the first call; the next one is for the others.
            cluster.fronts[1].refusal = InvalidRequestError("no")

        assert empty == [[]]
        assert len({id(error) for error in errors}) == 4

        cluster.fronts[1].refusal = None
        await queue.send(b"later")
        assert values(await queue.receive(3, wait=5)) == [b"later"]


async def test_after_the_error_of_a_request_the_next_receives_ask_again(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await queue.receive(wait=0)
        cluster.fronts[1].refusal = InvalidRequestError("no")

        async def receive() -> None:
            with pytest.raises(InvalidRequestError, match="no"):
                await queue.receive(3, wait=5)

        for _ in range(3):
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                nursery.start_soon(receive)
            assert trio.current_time() - began < 1
            await trio.sleep(1)
