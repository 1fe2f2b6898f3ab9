"""Receiver with several brokers: leader changes, crashes and shutdowns."""

from functools import partial
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.client.queue_fixture import drain, fill, lead, queue_of, values, work_queue
from tests.coordinator.raft_clients import until
from tidelog.client.producer.partitioner import partition_for_key
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import (
    LogOfflineError,
    NotLeaderError,
    OverLimitError,
    ShuttingDownError,
    TidelogError,
    UnknownPartitionError,
)
from tidelog.wire.messages.queue_admin import DescribeQueuesReply
from tidelog.wire.messages.queues import ReceiveReply, ReceiveRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi


async def test_messages_are_received_and_settled_at_their_brokers(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1, 2, 3)) as (queue, cluster):
        await fill(queue, 30)

        messages = await queue.receive(100)

        assert len(messages) == 30
        assert {message.partition for message in messages} == {0, 1, 2}
        await queue.delete_batch(messages)
        for front in cluster.fronts.values():
            assert front.asked.count(api.SETTLE) == 1  # type: ignore[arg-type]


async def test_a_receive_takes_at_most_max_messages_from_all_brokers(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, _):
        await fill(queue, 40)
        messages = await queue.receive(35)
        assert len(messages) == 35
        assert {message.partition for message in messages} == {0, 1}
        counts = await queue.counts()
        assert sum(each.in_flight for each in counts) == 35


async def test_a_long_poll_costs_one_request_per_broker(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        assert await queue.receive(wait=20) == []
        for front in cluster.fronts.values():
            front.asked.clear()

        assert await queue.receive(wait=20) == []

        for front in cluster.fronts.values():
            assert [each.key.name for each in front.asked] == ["RECEIVE"]


async def test_a_broker_that_stops_during_a_long_poll_is_detected_early(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        assert await queue.receive(wait=0) == []
        received: list[Message] = []

        async def receive() -> None:
            received.extend(await queue.receive(wait=600))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(1)
            cluster.fronts[1].is_frozen = True
            lead(cluster, 2)
            await trio.sleep(30)
            await queue.send(b"late", key=b"any")

        assert [message.value for message in received] == [b"late"]
        assert trio.current_time() < 40


async def test_receives_rotate_the_first_broker(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, _):
        await fill(queue, 40)
        firsts = [(await queue.receive(1))[0].partition for _ in range(4)]
        assert firsts in ([0, 1, 0, 1], [1, 0, 1, 0])


async def test_receives_rotate_the_first_partition(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1, 2, 3)) as (queue, cluster):
        lead(cluster, 1)
        asked: list[list[int]] = []

        async def note(node_id: int, request: object) -> object:
            assert isinstance(request, ReceiveRequest)
            assert node_id == 1
            asked.append(request.partitions)
            await trio.lowlevel.checkpoint()
            return ReceiveReply([], 0)

        cluster.answers[api.RECEIVE] = note  # type: ignore[index]
        for _ in range(3):
            assert await queue.receive(wait=0) == []
        assert sorted(asked) == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


async def test_late_messages_are_returned_and_do_not_count(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, visibility_timeout=600) as (queue, _):
        got: list[Message] = []

        async def receive() -> None:
            got.extend(await queue.receive(1, wait=20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(2)
            await fill(queue, 20)
        assert len(got) == 1
        await trio.sleep(1)
        counts = await queue.counts()
        assert sum(each.in_flight for each in counts) == 1
        rest = await queue.receive(100)
        assert len(rest) == 19
        assert {message.receive_count for message in rest} == {1}


async def test_a_cancelled_receive_returns_its_messages(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, visibility_timeout=600) as (queue, cluster):
        await fill(queue, 4)
        await queue.counts()
        cluster.fronts[1].is_frozen = True  # It is asked after the other one.
        with trio.move_on_after(0.2) as scope:
            await queue.receive(100, wait=20)
        assert scope.cancelled_caught
        assert api.RECEIVE in cluster.fronts[2].asked
        cluster.fronts[1].is_frozen = False
        await trio.sleep(1)
        found = {number: each.in_flight for number, each in enumerate(await queue.counts())}
        assert found[1] == 0


@pytest.mark.parametrize("silent", [1, 2])
async def test_messages_do_not_wait_for_a_silent_broker(
    autojump_clock: MockClock, silent: int
) -> None:
    async with queue_of(autojump_clock, visibility_timeout=600) as (queue, cluster):
        await fill(queue, 40)
        await queue.counts()
        cluster.fronts[silent].is_frozen = True
        for wait_s in (20, 0, 20):
            began = trio.current_time()
            messages = await queue.receive(3, wait=wait_s)
            assert {message.partition for message in messages} == {2 - silent}
            assert trio.current_time() - began < 3


async def test_a_leader_change_is_followed_without_an_error(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        for number in range(6):
            lead(cluster, 1 + number % 2)
            await queue.send(b"%d" % number)
            (message,) = await queue.receive(wait=5)
            assert message.value == b"%d" % number
            lead(cluster, 1 + (number + 1) % 2)
            await message.delete()
        assert await drain(queue) == []


@pytest.mark.parametrize("trouble", ["killed", "refusing", "frozen"])
async def test_a_failed_broker_is_replaced_during_a_long_poll(
    autojump_clock: MockClock, trouble: str
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await queue.counts()
        got: list[Message] = []

        async def receive() -> None:
            while len(got) < 2:
                got.extend(await queue.receive(wait=60))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await until(lambda: api.RECEIVE in cluster.fronts[2].asked)
            if trouble == "killed":
                cluster.fronts[2].stop()
            elif trouble == "frozen":
                cluster.fronts[2].is_frozen = True
                cluster.fronts[2].break_connections()
            else:
                cluster.fronts[2].refusal = NotLeaderError("no more")
                cluster.fronts[2].break_connections()
            await trio.sleep(1)
            lead(cluster, 1)
            began = trio.current_time()
            for number in range(2):
                await queue.send(b"%d" % number)
            await until(lambda: len(got) >= 2)
            assert trio.current_time() - began < 15
        await queue.delete_batch(got)
        assert await drain(queue) == []


async def test_short_broker_outages_raise_no_error(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 20)
        seen: list[Message] = []

        async def disturb() -> None:
            while True:
                await trio.sleep(0.3)
                cluster.fronts[1].break_connections()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(disturb)
            while len({message.offset for message in seen}) < 20:
                messages = await queue.receive(3, visibility_timeout=5, wait=10)
                await trio.sleep(0.1)
                seen += messages
                await queue.delete_batch(messages)
            nursery.cancel_scope.cancel()
        await trio.sleep(6)
        assert await drain(queue) == []


async def test_a_queue_without_a_leader_raises_an_error_after_request_timeout(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await queue.counts()
        cluster.fronts[2].refusal = ShuttingDownError("it stops")
        began = trio.current_time()

        with pytest.raises(TidelogError, match="it stops"):
            await queue.receive(wait=1)

        assert 29 < trio.current_time() - began < 35
        cluster.fronts[2].refusal = None
        await fill(queue, 10)
        cluster.fronts[2].refusal = ShuttingDownError("it stops")
        assert await queue.receive(wait=0), "what the others have is handed out"


async def test_a_broker_that_does_not_know_a_partition_yet_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster), trio.open_nursery() as nursery:
        await fill(queue, 10)
        await queue.counts()
        for front in cluster.fronts.values():
            front.refused = {api.ApiKey.RECEIVE}
            front.refusal = UnknownPartitionError("there is no such partition")

        async def hear_of_it() -> None:
            await trio.sleep(3)
            for front in cluster.fronts.values():
                front.refusal = None

        nursery.start_soon(hear_of_it)
        messages = await queue.receive(10, wait=20)
        assert messages
        await queue.delete_batch(messages)


async def test_a_fatal_error_is_raised_at_once(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await queue.counts()
        cluster.fronts[2].refusal = LogOfflineError("its disk failed")
        with pytest.raises(LogOfflineError, match="its disk failed"):
            await queue.receive(wait=20)
        assert trio.current_time() < 1


async def test_a_queue_described_too_late_raises_an_error(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await queue.counts()

        async def refuse(_: int, message: object) -> object:
            raise NotLeaderError(f"another node leads {message}")

        async def describe_late(_: int, message: object) -> object:
            await trio.sleep(29.99)
            described = cast("AnyApi", api.DESCRIBE_QUEUES)
            reply, _data = await cluster.pass_on(described, message, b"")
            return cluster.with_leaders(cast("DescribeQueuesReply", reply))

        cluster.answers[api.RECEIVE] = refuse  # type: ignore[index]
        cluster.answers[api.DESCRIBE_QUEUES] = describe_late  # type: ignore[index]
        with pytest.raises(NotLeaderError, match="another node"):
            await queue.receive(wait=0)


@pytest.mark.parametrize("wait_s", [0, 3])
async def test_a_silent_broker_causes_no_busy_polling_of_others(
    autojump_clock: MockClock, wait_s: int
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        assert await queue.receive(wait=0) == []
        cluster.fronts[1].asked.clear()
        cluster.fronts[2].is_frozen = True

        with trio.move_on_after(wait_s + 10) as scope:
            await queue.receive(wait=wait_s)

        assert scope.cancelled_caught, "it waits for the other one"
        assert cluster.fronts[1].asked.count(api.RECEIVE) == 1  # type: ignore[arg-type]


async def test_a_recovered_failure_is_no_error_of_a_long_poll(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        assert await queue.receive(wait=0) == []
        cluster.fronts[2].refusal = ShuttingDownError("it stops")

        async def heal() -> None:
            await trio.sleep(2)
            cluster.fronts[2].refusal = None

        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal)
            assert await queue.receive(wait=60) == []


async def test_messages_arriving_during_a_lookup_are_not_requested_again(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, fifo=True) as (queue, cluster):
        assert await queue.receive(wait=1) == []
        group = next(each for each in map(str.encode, "abcd") if partition_for_key(each, 2) == 0)
        cluster.fronts[2].refused = {api.ApiKey.RECEIVE}
        cluster.fronts[2].refusal = NotLeaderError("another node leads now")

        async def describe_late(_: int, message: object) -> object:
            await trio.sleep(1)
            described = cast("AnyApi", api.DESCRIBE_QUEUES)
            reply, _data = await cluster.pass_on(described, message, b"")
            return cluster.with_leaders(cast("DescribeQueuesReply", reply))

        got: list[Message] = []

        async def receive() -> None:
            got.extend(await queue.receive(10, wait=20))

        async with trio.open_nursery() as nursery:
            cluster.answers[api.DESCRIBE_QUEUES] = describe_late  # type: ignore[index]
            nursery.start_soon(receive)
            await trio.sleep(0.5)
            await queue.send(b"during the lookup", group=group)
        cluster.fronts[2].refusal = None
        await trio.sleep(2)

        (message,) = got
        assert await queue.receive(wait=0) == [], "it is still leased"
        await message.delete()
        assert await drain(queue) == []


@pytest.mark.statement("b99")
async def test_a_receive_returns_messages_of_all_partitions_by_urgency(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1, 2, 3), priority_weights="4,2,1") as (queue, _):
        for priority in (2, 0, 1):
            await queue.send_batch(
                [
                    OutgoingMessage(value=b"%d" % priority, key=b"key %d" % n, priority=priority)
                    for n in range(10)
                ]
            )

        messages = await queue.receive(100)

        assert [each.value for each in messages] == [b"0"] * 10 + [b"1"] * 10 + [b"2"] * 10
        assert {each.partition for each in messages[:10]} == {0, 1, 2}
        places = [(each.value, each.partition, each.offset) for each in messages]
        assert len(set(places)) == 30
        for partition in range(3):
            mine = [each for each in messages[:10] if each.partition == partition]
            assert mine == sorted(mine, key=lambda each: each.offset)


async def test_a_receive_returns_groups_in_their_turn_and_each_in_order(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, fifo=True) as (_, queue):
        for value in (b"a1", b"b1", b"c1", b"a2", b"b2", b"b3"):
            await queue.send(value, group=value[:1])
        first = await queue.receive(2)
        assert values(first) == [b"a1", b"a2"]
        for message in reversed(first):
            await message.release(0)

        assert values(await queue.receive(10)) == [b"b1", b"b2", b"b3", b"c1", b"a1", b"a2"]


async def test_a_receive_at_the_limit_raises_only_if_no_broker_has_messages(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, max_in_flight=4) as (queue, _):
        await fill(queue, 20)
        messages = await queue.receive()
        assert [message.partition for message in messages].count(0) == 2
        assert await queue.receive(wait=0) == []

        for wait in (0, 7, 0):
            began = trio.current_time()
            with pytest.raises(OverLimitError, match=r"max_in_flight \(4\)"):
                await queue.receive(wait=wait, raise_at_limit=True)
            assert wait <= trio.current_time() - began < wait + 0.5

        last = next(message for message in messages if message.partition == 1)
        await last.delete()
        (message,) = await queue.receive(wait=0, raise_at_limit=True)
        assert message.partition == 1


async def test_concurrent_receives_at_the_limit_raise_where_they_asked_for_it(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), max_in_flight=1) as (queue, _):
        await fill(queue, 2)
        assert len(await queue.receive()) == 1
        found: list[object] = []

        async def receive(*, raise_at_limit: bool) -> None:
            try:
                found.append(await queue.receive(wait=1, raise_at_limit=raise_at_limit))
            except OverLimitError:
                found.append("over")

        async with trio.open_nursery() as nursery:
            for raise_at_limit in (True, False, True):
                nursery.start_soon(partial(receive, raise_at_limit=raise_at_limit))
        assert sorted(map(str, found)) == ["[]", "over", "over"]
