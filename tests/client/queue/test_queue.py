"""Queue client with a real broker, on virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tests.client.queue_fixture import fill, lead, left, made, queue_of, values, work_queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace, handle_of
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import (
    BatchError,
    InvalidReceiptError,
    InvalidRequestError,
    LogOfflineError,
    MessageGoneError,
    ReceiptExpiredError,
    RecordTooLargeError,
    ShuttingDownError,
    UnknownPartitionError,
    UnknownQueueError,
)


async def test_a_message_is_sent_received_and_deleted(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        receipt = await queue.send(b"paid", key=b"k", headers=[("trace", b"1")])

        (message,) = await queue.receive()

        assert (message.value, message.key, message.headers) == (b"paid", b"k", (("trace", b"1"),))
        assert (message.topic, message.partition, message.offset) == ("work", 0, 0)
        assert (receipt.partition, receipt.offset) == (0, 0)
        assert (message.receive_count, message.message_id) == (1, "0-0")
        assert await queue.receive(wait=0) == []
        await message.delete()
        await trio.sleep(3600)
        assert await queue.receive(wait=0) == []


async def test_a_message_is_redelivered_after_its_visibility_timeout(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send(b"paid")
        (first,) = await queue.receive(visibility_timeout=5)
        began = trio.current_time()

        (second,) = await queue.receive(wait=20)

        assert 4 < trio.current_time() - began < 6
        assert second.receive_count == 2
        assert second.first_received_ms == first.first_received_ms
        assert second.receipt_handle != first.receipt_handle


async def test_a_message_that_arrives_after_its_lease_is_not_returned(
    autojump_clock: MockClock,
) -> None:
    """Another receiver may have it by then: the deliveries were durable late."""
    world = World(autojump_clock)
    async with client_of(world) as client:
        queue = await made(client, "work", visibility_timeout=5, receive_acks="all")
        await queue.send(b"paid")
        world.work.hold_syncs()
        got: list[Message] = []

        async def receive() -> None:
            got.extend(await queue.receive(wait=20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(6)
            world.work.let_all_sync()

        assert [message.receive_count for message in got] == [2]
        assert all(message.lease.expires_at > trio.current_time() for message in got)


async def test_a_receive_with_visibility_timeout_0_returns_messages(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=0) as (_, queue):
        await fill(queue, 3)

        assert len(await queue.receive(3)) == 3
        assert len(await queue.receive(3, visibility_timeout=0)) == 3


async def test_a_long_poll_ends_with_a_message(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, partitions=3) as (_, queue):
        got: list[Message] = []

        async def receive() -> None:
            got.extend(await queue.receive(wait=20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(7)
            assert not got
            sent_at = trio.current_time()
            await queue.send(b"paid")
        assert values(got) == [b"paid"]
        assert trio.current_time() - sent_at < 1


async def test_a_long_poll_ends_after_its_wait_time(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, receive_message_wait_time=3) as (_, queue):
        began = trio.current_time()
        assert await queue.receive(wait=7) == []
        assert 7 <= trio.current_time() - began < 7.5
        assert await queue.receive() == []
        assert 10 <= trio.current_time() - began < 11


async def test_messages_of_all_partitions_are_received(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, partitions=3) as (_, queue):
        sent = [OutgoingMessage(value=b"%d" % number, key=b"%d" % number) for number in range(60)]
        receipts = await queue.send_batch(sent)
        assert {receipt.partition for receipt in receipts} == {0, 1, 2}

        seen: list[Message] = []
        for _ in range(6):
            batch = await queue.receive(10)
            assert len(batch) == 10
            seen += batch
        assert sorted(values(seen)) == sorted(message.value for message in sent)  # type: ignore[type-var]

        await queue.delete_batch(seen)
        counts = await queue.counts()
        assert [(each.visible, each.in_flight) for each in counts] == [(0, 0)] * 3


async def test_a_message_is_extended_released_and_released_with_a_delay(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=10) as (_, queue):
        await queue.send(b"paid")
        (message,) = await queue.receive()
        await trio.sleep(8)
        await message.extend(30)
        await trio.sleep(25)
        assert await queue.receive(wait=0) == []
        await message.release()
        (message,) = await queue.receive(wait=0)
        await message.release(delay=60)
        began = trio.current_time()
        (message,) = await queue.receive(wait=100)
        assert 59 < trio.current_time() - began < 61
        assert message.receive_count == 3


async def test_visibility_is_changed_to_0_and_back_also_after_a_release(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, visibility_timeout=10) as (_, queue):
        await queue.send_batch([b"1", b"2"])
        first, second = await queue.receive()
        await queue.change_visibility_batch([first, second], 100)
        await trio.sleep(90)
        assert await queue.receive(wait=0) == []
        await first.change_visibility(0)
        await queue.change_visibility(second.receipt_handle, 0)
        await second.change_visibility(30)
        began = trio.current_time()
        assert values(await queue.receive(wait=0)) == [b"1"]
        with pytest.raises(ReceiptExpiredError, match="received again since"):
            await first.change_visibility(30)
        assert values(await queue.receive(wait=100, visibility_timeout=100)) == [b"1"]
        assert 9 < trio.current_time() - began < 11
        assert values(await queue.receive(wait=100)) == [b"2"]
        assert 29 < trio.current_time() - began < 31


async def test_the_history_shows_changes_of_visibility(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send(b"paid")
        (message,) = await queue.receive()
        for seconds in (20, 0, 40):
            await message.change_visibility(seconds)

        kinds = [event.kind.value for event in await queue.history()]

        assert kinds[-3:] == ["extend", "release", "release"]


async def test_a_receipt_handle_works_in_another_client(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        queue = await made(client, "work")
        await queue.send_batch([b"1", b"2"])
        handles = [message.receipt_handle for message in await queue.receive(visibility_timeout=60)]
    async with client_of(world) as client:
        queue = client.queue("work")
        await queue.extend(handles[0], 600)
        await queue.delete(handles[1])
        await trio.sleep(120)
        assert await queue.receive(wait=0) == []
        await queue.release(handles[0])
        assert values(await queue.receive(wait=0)) == [b"1"]


async def test_a_delayed_message_is_delivered_at_its_time(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send(b"later", delay=300)
        await queue.send(b"now")
        (now,) = await queue.receive(wait=0)
        (counts,) = await queue.counts()
        assert (counts.visible, counts.in_flight, counts.delayed) == (0, 1, 1)
        await now.delete()
        began = trio.current_time()
        assert values(await queue.receive(wait=500)) == [b"later"]
        assert 299 < trio.current_time() - began < 301


async def test_invalid_receipt_handles_raise_different_errors(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        queue = await made(client, "work", require_latest_receipt="on", visibility_timeout=10)
        other = await made(client, "other")
        await queue.send(b"paid")
        (first,) = await queue.receive()
        with pytest.raises(InvalidReceiptError, match="'garbage' is no receipt handle"):
            await queue.delete("garbage")
        with pytest.raises(InvalidReceiptError, match="this receipt is of another queue"):
            await other.delete(first.receipt_handle)
        await trio.sleep(11)
        (second,) = await queue.receive()
        with pytest.raises(ReceiptExpiredError, match="received again since"):
            await first.delete()
        await second.delete()
        await second.delete()
        with pytest.raises(MessageGoneError, match="not there any more"):
            await second.extend(10)


async def test_a_batch_error_names_the_messages_not_settled(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([b"1", b"2", b"3"])
        messages = await queue.receive()
        await messages[1].delete()

        with pytest.raises(BatchError, match="1 of 3 messages could not be settled") as caught:
            await queue.extend_batch(messages, 100)

        assert [*caught.value.errors] == [1]
        assert isinstance(caught.value.errors[1], MessageGoneError)


async def test_a_wrong_handle_affects_no_other_settlement_of_a_batch(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        other = await made(client, "other")
        await other.send(b"other")
        await queue.send_batch([b"1", b"2"])
        messages = await queue.receive()
        (foreign,) = await other.receive()
        unknown = handle_of(ReceivedPlace(7, 0, b"receipt"))
        given: list[Message | str] = ["garbage", messages[0], unknown]
        given += [foreign.receipt_handle, messages[1]]

        with pytest.raises(
            BatchError, match=r"3 of 5 .* because: 'garbage' is no receipt"
        ) as caught:
            await queue.delete_batch(given)

        kinds = {index: type(error) for index, error in caught.value.errors.items()}
        assert kinds == {0: InvalidReceiptError, 2: UnknownPartitionError, 3: InvalidReceiptError}
        assert await left(queue) == (0, 0)
        assert await left(other) == (0, 1)
        with pytest.raises(BatchError) as all_wrong:
            await queue.delete_batch(["a", "b"])
        assert [*all_wrong.value.errors] == [0, 1]


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_a_refused_message_affects_no_other_message_of_a_batch(
    autojump_clock: MockClock, *, is_fifo: bool
) -> None:
    async with work_queue(autojump_clock, fifo=is_fifo) as (_, queue):
        given = [
            OutgoingMessage(value=b"0", key=b"g"),
            OutgoingMessage(value=b"1", key=b"g", priority=1),
            OutgoingMessage(value=b"2", key=b"x" * 2_000_000),
            OutgoingMessage(value=b"3", key=None if is_fifo else b"g", deduplication_id="id"),
            OutgoingMessage(value=b"4", key=b"g"),
        ]

        with pytest.raises(BatchError, match="3 of 5 messages were not acknowledged") as caught:
            await queue.send_batch(given)

        kinds = {index: type(error) for index, error in caught.value.errors.items()}
        assert kinds == {1: InvalidRequestError, 2: RecordTooLargeError, 3: InvalidRequestError}
        ids = {index: receipt.message_id for index, receipt in caught.value.receipts.items()}
        assert ids == {0: "0-0", 4: "0-1"}
        assert values(await queue.receive()) == [b"0", b"4"]


async def test_a_message_of_a_wrong_type_refuses_the_whole_batch(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        wrong = OutgoingMessage(value=b"1", key="text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await queue.send_batch([b"0", wrong])
        assert await queue.receive() == []


async def test_a_cancelled_receive_leaves_nothing_in_flight(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, partitions=2) as (_, queue):
        with trio.move_on_after(3):
            await queue.receive(wait=20)
        await queue.send(b"paid")
        await trio.sleep(1)

        (message,) = await queue.receive(wait=5)

        assert message.receive_count == 1, "what was given back does not count"


async def test_a_queue_is_purged_and_sought_back(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, partitions=2) as (_, queue):
        keys = [OutgoingMessage(value=b"v", key=b"%d" % number) for number in range(20)]
        await queue.send_batch(keys)
        await queue.receive(3)
        assert await queue.purge() == 20
        assert await queue.receive(wait=0) == []
        assert await queue.seek("earliest") == 20
        assert len(await queue.receive(100)) == 20


async def test_an_unknown_queue_is_named(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        queue = client.queue("nope")
        for call in (queue.receive, queue.counts, queue.purge):
            with pytest.raises(UnknownQueueError, match="'nope'"):
                await call()
        with pytest.raises(UnknownQueueError, match="'nope'"):
            await queue.send(b"v")


async def test_deleting_a_queue_ends_a_long_poll_and_a_recreated_queue_is_found(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        queue = await made(client, "work")
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(UnknownQueueError):
                    await queue.receive(wait=20)

            nursery.start_soon(wait)
            await trio.sleep(1)
            began = trio.current_time()
            await client.admin.delete_queue("work")
        assert trio.current_time() - began < 5
        await made(client, "work", start="latest")
        await queue.send(b"new")
        assert values(await queue.receive(wait=1)) == [b"new"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"max_messages": 0}, "max_messages is from 1 to 1000, not 0"),
        ({"max_messages": 1001}, "max_messages is from 1 to 1000"),
        ({"wait": -1}, "wait must be a number of seconds from 0 on, not -1"),
        ({"visibility_timeout": float("nan")}, "visibility_timeout must be a number of seconds"),
    ],
)
async def test_numbers_out_of_range_are_refused(
    autojump_clock: MockClock, arguments: dict[str, Any], complaint: str
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        with pytest.raises(ValueError, match=complaint):
            await queue.receive(**arguments)
        with pytest.raises(ValueError, match="delay must be a number of seconds"):
            await queue.send(b"v", delay=-1)
        with pytest.raises(ValueError, match=r"'tidelog.x' is one"):
            await queue.send(b"v", headers=[("tidelog.x", b"1")])


async def test_a_value_that_is_no_message_settles_nothing(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([b"1", b"2"])
        handles = [message.receipt_handle for message in await queue.receive()]

        with pytest.raises(TypeError, match="not a single receipt handle"):
            await queue.delete_batch(handles[0])
        with pytest.raises(TypeError, match="a message or a receipt handle is expected, not"):
            await queue.delete_batch([handles[0], b"x"])  # type: ignore[list-item]
        assert await left(queue) == (0, 2)


async def test_an_invalid_reason_is_refused_and_affects_no_other_settlement(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([b"1", b"2", b"3"])
        messages = await queue.receive()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(messages[0].delete)
            with pytest.raises(TypeError, match="a reason is a str, not NoneType"):
                await messages[1].reject(None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="a reason has at most 8192 characters, not 8193"):
            await messages[1].release(reason="x" * 8193)
        await messages[1].reject("caf\udce9")
        await messages[2].delete()

        assert [dead.reason for dead in await queue.dead_letters()] == ["caf\\udce9"]
        assert await queue.receive(wait=0) == []


async def test_each_value_of_a_batch_has_its_own_receipt(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, partitions=3) as (_, queue):
        sent = [b"%d" % number for number in range(500)]

        receipts = await queue.send_batch(sent)

        found = {
            (message.partition, message.offset): message.value
            for message in await queue.receive(1000) + await queue.receive(1000, wait=0)
        }
        assert [found[each.partition, each.offset or 0] for each in receipts] == sent


async def test_messages_of_many_receives_are_deleted_together(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, partitions=2) as (_, queue):
        await queue.send_batch([b"%d" % number for number in range(40)])
        messages: list[Message] = []
        while len(messages) < 40:
            messages += await queue.receive(7)
        handles = [each if each.offset % 2 else each.receipt_handle for each in messages]

        await queue.delete_batch(handles)

        assert sum(counts.visible + counts.in_flight for counts in await queue.counts()) == 0


@pytest.mark.statement("b80")
async def test_of_two_concurrent_settlements_one_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send(b"paid")
        (message,) = await queue.receive()
        errors: list[MessageGoneError] = []

        async def attempt(ending: Callable[[], Awaitable[None]]) -> None:
            try:
                await ending()
            except MessageGoneError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(attempt, message.delete)
            nursery.start_soon(attempt, lambda: message.reject("broken"))

        assert len(errors) == 1


@pytest.mark.statement("b64")
async def test_a_message_too_large_fails_alone_in_a_batch(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        large = OutgoingMessage(value=b"2", key=b"x" * 2_000_000)

        with pytest.raises(BatchError, match="1 of 3 messages were not acknowledged") as caught:
            await queue.send_batch([b"1", large, b"3"])

        assert isinstance(caught.value.errors[1], RecordTooLargeError)
        assert values(await queue.receive()) == [b"1", b"3"]


async def test_counts_of_all_partitions_are_in_their_order(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock, (3, 1, 2)) as (queue, cluster):
        cluster.leaders = {0: (3, 0), 1: (1, 0), 2: (2, 0)}
        await fill(queue, 30)
        await queue.receive(4)
        counts = await queue.counts()
        assert [each.partition for each in counts] == [0, 1, 2]
        assert sum(each.visible for each in counts) == 26
        assert sum(each.in_flight for each in counts) == 4


async def test_counts_follow_a_leader_change(autojump_clock: MockClock) -> None:
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


async def test_a_fatal_error_of_a_queue_call_is_raised_at_once(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await queue.counts()
        cluster.fronts[2].refusal = LogOfflineError("its disk failed")
        with pytest.raises(LogOfflineError):
            await queue.purge()
        assert trio.current_time() < 1


async def test_a_queue_seeks_to_a_time(autojump_clock: MockClock) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        await fill(queue, 10)
        await trio.sleep(60)
        moment = cluster.world.clock.now_ms()
        await fill(queue, 4)
        assert await queue.purge() == 14
        assert await queue.seek(moment) == 4
        assert await queue.seek("latest") == 0
        assert await queue.receive(wait=0) == []
