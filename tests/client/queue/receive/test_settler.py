"""Settler with several brokers, with lost replies."""

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


async def test_a_delete_with_a_lost_reply_succeeds(
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


async def test_a_retried_delete_of_a_dead_letter_fails(
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


async def test_a_change_of_visibility_with_a_lost_reply_succeeds(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,), require_latest_receipt="on") as (queue, cluster):
        await fill(queue, 2)
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
        await messages[0].change_visibility(0)
        await messages[1].change_visibility(500)
        assert answers == 4
        assert [message.value for message in await queue.receive()] == [b"0"]
        assert [message.value for message in await queue.receive(wait=600)] == [b"0"]


async def test_a_cancelled_change_of_visibility_is_not_repeated(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 1)
        (message,) = await queue.receive()
        seen: list[int] = []

        async def lose(node_id: int, request: object) -> object:
            assert isinstance(request, SettleRequest)
            seen.extend(each.action for each in request.settlements)
            done, _ = await cluster.pass_on(api.SETTLE, request, b"")  # type: ignore[arg-type]
            if len(seen) == 1:
                cluster.fronts[node_id].break_connections()
                scope.cancel()
            return done

        cluster.answers[api.SETTLE] = lose  # type: ignore[index]
        with trio.CancelScope() as scope:
            await message.change_visibility(500)
        await message.release()
        await trio.sleep(60)
        assert seen == [SettleAction.CHANGE_VISIBILITY, SettleAction.RELEASE]
        assert len(await queue.receive(wait=0)) == 1


async def test_concurrent_settlements_share_requests(
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


async def test_a_partition_without_a_leader_delays_no_other(autojump_clock: MockClock) -> None:
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


async def test_a_failed_operation_does_not_hide_the_others(
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


async def test_a_settlement_at_a_dead_broker_fails_after_request_timeout(
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


async def test_a_settle_request_is_limited_in_messages(
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

        assert sorted(counts) == [2, 3, 5, 7]  # Two requests are in flight at a time.
        assert await drain(queue) == []


async def test_a_settlement_encodes_offsets_as_runs(
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


async def test_a_receipt_handle_of_an_unknown_partition_is_refused(
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


async def test_cancelling_the_sending_call_does_not_affect_other_settlements(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, _):
        # Tasks may run in an order in which requests are never seen to wait.
        while not await cancel_all_but_the_last(queue):
            pass


async def test_an_unanswered_settle_request_raises_a_timeout_for_each_caller(
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


def test_a_watched_message_records_its_settlement() -> None:
    settled = SettledMessages()
    settled.watch(PLACE)
    assert settled.action_of(PLACE) is None

    settled.note(1, b"receipt", range(5, 10), action=SettleAction.RELEASE)

    assert settled.action_of(PLACE) is SettleAction.RELEASE


@pytest.mark.parametrize("action", [SettleAction.EXTEND, SettleAction.CHANGE_VISIBILITY])
def test_an_extension_settles_nothing(action: SettleAction) -> None:
    settled = SettledMessages()
    settled.watch(PLACE)

    settled.note(1, b"receipt", [7], action=action)

    assert settled.action_of(PLACE) is None


def test_another_delivery_of_a_message_is_not_watched() -> None:
    settled = SettledMessages()
    settled.watch(PLACE)

    settled.note(1, b"later", [7], action=SettleAction.DELETE)
    settled.note(2, b"receipt", [7], action=SettleAction.DELETE)

    assert settled.action_of(PLACE) is None


def test_an_unwatched_message_records_nothing() -> None:
    settled = SettledMessages()
    settled.note(1, b"receipt", [7], action=SettleAction.DELETE)
    settled.watch(PLACE)
    settled.forget(PLACE)
    settled.note(1, b"receipt", [7], action=SettleAction.DELETE)

    assert settled.action_of(PLACE) is None
