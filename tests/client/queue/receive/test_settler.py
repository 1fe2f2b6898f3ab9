"""Settling messages at several brokers, also when answers are lost."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.queue_fixture import drain, fill, lead, queue_of
from tidelog.client.admin.queue_metadata import QueueMetadata
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive import settler as queue_settler
from tidelog.client.queue.receive.message import DELETE, Message
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace, handle_of
from tidelog.client.queue.receive.settled_messages import SettledMessages
from tidelog.client.queue.receive.settler import QueueSettler, runs_of
from tidelog.wire.errors import (
    BatchError,
    ConnectionLostError,
    InvalidReceiptError,
    MessageGoneError,
    NotLeaderError,
    RequestTimedOutError,
    TidelogError,
    UnknownPartitionError,
)
from tidelog.wire.messages.queues import SettleAction, SettleRequest
from tidelog.wire.protocol import api


async def test_a_message_is_deleted_although_the_answer_was_lost(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), require_latest_receipt="on") as (queue, cluster):
        await fill(queue, 3)
        messages = await queue.receive()
        answers = 0

        async def lose(node_id: int, request: object) -> object:
            nonlocal answers
            answers += 1
            done, _ = await cluster.pass_on(api.SETTLE, request, b"")  # type: ignore[arg-type]
            if answers % 2:
                cluster.fronts[node_id].break_connections()
            return done

        cluster.answers[api.SETTLE] = lose  # type: ignore[index]
        await messages[0].delete()
        await messages[1].release()
        await messages[2].reject("broken")
        assert answers == 6
        assert [message.value for message in await queue.receive()] == [b"1"]


async def test_a_deletion_that_is_repeated_is_no_success_if_the_message_is_dead_by_then(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 1)
        (first,) = await queue.receive(visibility_timeout=1)
        (second,) = await queue.receive(wait=5)
        asked = 0

        async def lose(node_id: int, request: object) -> object:
            nonlocal asked
            asked += 1
            if asked == 1:
                cluster.fronts[node_id].break_connections()
                await trio.sleep_forever()
            return (await cluster.pass_on(api.SETTLE, request, b""))[0]  # type: ignore[arg-type]

        await second.reject("broken")
        cluster.answers[api.SETTLE] = lose  # type: ignore[index]
        with pytest.raises(MessageGoneError, match="is a dead letter"):
            await first.delete()
        assert asked == 2


async def test_what_many_tasks_settle_at_the_same_time_goes_together(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 100)
        messages = await queue.receive(100)
        async with trio.open_nursery() as nursery:
            for message in messages:
                nursery.start_soon(message.delete)
        assert cluster.fronts[1].asked.count(api.SETTLE) <= 4  # type: ignore[arg-type]
        assert await drain(queue) == []


async def test_a_partition_that_nobody_leads_holds_up_no_other(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 10)
        messages = await queue.receive(100)
        cluster.fronts[2].refusal = NotLeaderError("not me")
        done: list[int] = []

        async def delete(partition: int) -> None:
            await queue.delete_batch(each for each in messages if each.partition == partition)
            done.append(partition)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete, 1)
            nursery.start_soon(delete, 0)
            await trio.sleep(2)
            assert done == [0]
            lead(cluster, 1)
        assert done == [0, 1]


async def test_what_is_given_up_at_once_does_not_hide_what_becomes_of_the_rest(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 10)
        messages = sorted(await queue.receive(100), key=lambda message: message.partition)
        settler: QueueSettler = vars(queue)["_settler"]
        queue_metadata: QueueMetadata = vars(settler)["_queue_metadata"]
        cluster.leaders[0] = (None, 1)  # type: ignore[assignment]
        queue_metadata.invalidate(await queue_metadata.find("work"))

        async def refuse(node_id: int, request: object) -> object:
            raise InvalidReceiptError(f"not of {node_id}: {request}")

        cluster.answers[api.SETTLE] = refuse  # type: ignore[index]
        with pytest.raises(BatchError, match="10 of 10 messages could not be settled") as caught:
            await settler.settle(messages, DELETE, deadline=trio.current_time())
        kinds = [type(caught.value.errors[index]) for index in range(10)]
        assert kinds == [NotLeaderError] * 5 + [InvalidReceiptError] * 5


async def test_nobody_waits_for_ever_for_a_broker_that_does_not_come_back(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 10)
        messages = await queue.receive(100)
        cluster.fronts[2].stop()
        began = trio.current_time()
        with pytest.raises(BatchError, match="5 of 10 messages could not be settled") as caught:
            await queue.delete_batch(messages)
        assert 25 < trio.current_time() - began < 70
        failed = {messages[index].partition for index in caught.value.errors}
        assert failed == {1}
        assert all(isinstance(e, ConnectionLostError) for e in caught.value.errors.values())


async def test_no_request_settles_more_than_some_messages_unless_they_are_of_one_receive(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_settler, "_MESSAGES_MAX", 5)
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 17)
        counts: list[int] = []

        async def note(node_id: int, request: object) -> object:
            del node_id
            assert isinstance(request, SettleRequest)
            counts.append(sum(count for each in request.settlements for _, count in each.runs))
            return (await cluster.pass_on(api.SETTLE, request, b""))[0]  # type: ignore[arg-type]

        cluster.answers[api.SETTLE] = note  # type: ignore[index]
        messages = [each for size in (2, 7, 3, 2, 3) for each in await queue.receive(size)]
        await queue.delete_batch(messages)

        assert sorted(counts) == [2, 3, 5, 7]  # Two requests are under way at a time.
        assert await drain(queue) == []


async def test_a_settlement_says_the_messages_of_a_receive_in_runs(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 6)
        messages = await queue.receive()
        asked: list[SettleRequest] = []

        async def note(node_id: int, request: object) -> object:
            del node_id
            assert isinstance(request, SettleRequest)
            asked.append(request)
            return (await cluster.pass_on(api.SETTLE, request, b""))[0]  # type: ignore[arg-type]

        cluster.answers[api.SETTLE] = note  # type: ignore[index]
        await queue.delete_batch([messages[n] for n in (4, 0, 1, 5)])
        assert [each.runs for each in asked[0].settlements] == [[(0, 2), (4, 2)]]


async def test_a_handle_of_a_partition_that_is_not_there_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, _):
        with pytest.raises(UnknownPartitionError, match="has 2 partitions, there is no 7"):
            await queue.delete(handle_of(ReceivedPlace(7, 0, b"receipt")))


def test_offsets_become_runs() -> None:
    assert runs_of([]) == []
    assert runs_of([5, 3, 4, 9]) == [(3, 3), (9, 1)]


async def cancel_all_but_the_last(queue: Queue) -> bool:
    """Delete messages in tasks; return whether some were cancelled while their request waited."""
    await fill(queue, 20)
    messages = await queue.receive(20)
    scopes = [trio.CancelScope() for _ in messages]
    done: list[int] = []
    is_cancelled = False

    async def delete(index: int) -> None:
        with scopes[index]:
            await messages[index].delete()
            done.append(index)

    async with trio.open_nursery() as nursery:
        for index in range(20):
            nursery.start_soon(delete, index)
        while len(done) < 20 and not is_cancelled:
            await trio.lowlevel.checkpoint()
            if any(each.waiting for each in vars(queue)["_settler"]._node_queues.values()):
                is_cancelled = True
                for scope in scopes[:-1]:
                    scope.cancel()

    assert 19 in done
    assert await queue.receive(wait=0) == []
    return is_cancelled


async def test_when_who_sends_for_all_is_cancelled_the_others_are_served(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, _):
        # Tasks may run in an order in which the requests are never seen to wait.
        while not await cancel_all_but_the_last(queue):
            pass


async def test_a_broker_that_does_not_answer_is_called_so_and_each_caller_has_its_own_error(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 3)
        messages = await queue.receive(10)
        errors: list[TidelogError] = []

        async def say_nothing(node_id: int, request: object) -> object:
            del node_id, request
            await trio.sleep_forever()

        async def delete(message: Message) -> None:
            with pytest.raises(
                RequestTimedOutError, match="did not answer SETTLE in 30 s"
            ) as caught:
                await message.delete()
            errors.append(caught.value)

        cluster.answers[api.SETTLE] = say_nothing  # type: ignore[index]
        async with trio.open_nursery() as nursery:
            for message in messages:
                nursery.start_soon(delete, message)

        assert len({id(error) for error in errors}) == 3


PLACE = ReceivedPlace(1, 7, b"receipt")


def test_what_is_watched_is_remembered_when_it_is_settled() -> None:
    settled = SettledMessages()
    settled.watch(PLACE)
    assert settled.action_of(PLACE) is None

    settled.note(1, b"receipt", range(5, 10), action=SettleAction.RELEASE)

    assert settled.action_of(PLACE) is SettleAction.RELEASE


def test_an_extension_settles_nothing() -> None:
    settled = SettledMessages()
    settled.watch(PLACE)

    settled.note(1, b"receipt", [7], action=SettleAction.EXTEND)

    assert settled.action_of(PLACE) is None


def test_another_delivery_of_a_message_is_another_one() -> None:
    settled = SettledMessages()
    settled.watch(PLACE)

    settled.note(1, b"later", [7], action=SettleAction.DELETE)
    settled.note(2, b"receipt", [7], action=SettleAction.DELETE)

    assert settled.action_of(PLACE) is None


def test_nothing_is_remembered_that_nobody_watches() -> None:
    settled = SettledMessages()
    settled.note(1, b"receipt", [7], action=SettleAction.DELETE)
    settled.watch(PLACE)
    settled.forget(PLACE)
    settled.note(1, b"receipt", [7], action=SettleAction.DELETE)

    assert settled.action_of(PLACE) is None
