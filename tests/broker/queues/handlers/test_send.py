"""Tests of sending to queues. Numbers in docstrings: docs/queue-statements.md."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, fetch_all, produce, submit
from tests.broker.queues.queue_requests import (
    create_queue,
    outgoing,
    purge,
    receive,
    send,
    settle,
    submit_send,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import (
    BrokerError,
    InvalidBatchError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    RequestTimedOutError,
    ThrottledError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.queue_admin import AlterQueueRequest
from tidelog.wire.protocol import api

WINDOW_S = 300


@pytest.mark.statement("b39")
async def test_a_duplicate_send_returns_the_original_and_is_not_appended(
    mock_clock: MockClock,
) -> None:
    """Statement 39."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        first = await send(client, queue, (b"a", "1"), (b"b", "2"))
        again = await send(client, queue, (b"c", "2"), (b"d", "3"), (b"e", "3"))

        assert (first.offsets, first.duplicates) == ([0, 1], [])
        assert (again.offsets, again.duplicates) == ([1, 2, 2], [0, 2])
        assert [each.value for each in await receive(client, queue)] == [b"a", b"b", b"d"]
        only_old = await send(client, queue, (b"f", "1"))
        assert (only_old.offsets, only_old.duplicates) == ([0], [0])
        assert len(await fetch_all(client, topic_of(broker))) == 3


@pytest.mark.statement("b40", "b41")
async def test_the_deduplication_window_begins_with_the_original_and_outlives_its_deletion(
    mock_clock: MockClock,
) -> None:
    """Statements 40 and 41."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))
        await settle(client, queue, await receive(client, queue))
        await world.pass_time(WINDOW_S - 1)
        assert (await send(client, queue, (b"a", "1"))).offsets == [0]
        await world.pass_time(1)
        assert (await send(client, queue, (b"a", "1"))).offsets == [1]
        await world.pass_time(WINDOW_S - 1)
        assert (await send(client, queue, (b"a", "1"))).offsets == [1]


@pytest.mark.statement("b49")
async def test_the_deduplication_window_covers_delayed_messages(
    mock_clock: MockClock,
) -> None:
    """Statement 49."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(
            broker, is_fifo=True, delivery_delay_ms="10min", deduplication_window_ms="1min"
        )
        await send(client, queue, (b"a", "1"))
        await world.pass_time(59)
        again = await send(client, queue, (b"a", "1"))
        assert (again.offsets, again.duplicates) == ([0], [0])
        assert await receive(client, queue) == []
        await world.pass_time(1)
        assert (await send(client, queue, (b"a", "1"))).offsets == [1]


@pytest.mark.statement("b45", "b46")
async def test_content_based_deduplication_keeps_the_same_content_once(
    mock_clock: MockClock,
) -> None:
    """Statements 45 and 46."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        assert (await send(client, queue, (b"a", None), (b"a", None))).offsets == [0, 1]
        request = AlterQueueRequest("orders", {"content_based_deduplication": "on"}, [])
        await submit(client, api.ALTER_QUEUE, request).reply()

        # An earlier send of the content counts, too: it is the same queue.
        assert (await send(client, queue, (b"a", None), (b"b", None))).offsets == [0, 2]
        assert (await send(client, queue, (b"b", None), (b"b", "id"))).offsets == [2, 3]


@pytest.mark.statement("b42")
async def test_two_queues_on_one_topic_have_separate_deduplication_windows(
    mock_clock: MockClock,
) -> None:
    """Statement 42 is about queues; records produced to the topic are in no window."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        other = await create_queue(broker, "other", is_fifo=True)
        await produce(client, topic_of(broker), outgoing(queue, (b"p", "1")))

        assert (await send(client, queue, (b"a", "1"))).offsets == [1]
        assert (await send(client, other, (b"b", "1"))).offsets == [2]
        assert (await send(client, queue, (b"c", "1"))).offsets == [1]
        for each in (queue, other):
            assert [found.value for found in await receive(client, each)] == [b"a", b"b"]


@pytest.mark.statement("b42", "b43")
async def test_deduplication_by_message_group_keeps_an_id_once_in_each_group(
    mock_clock: MockClock,
) -> None:
    """Statements 42 and 43: g1/x, g2/x, g1/x."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True, deduplication_scope="group")
        found: list[int | None] = []
        for group in (b"g1", b"g2", b"g1"):
            batch = outgoing(queue, (b"v", "x"), group=group)
            found += (await submit_send(client, queue, batch).reply()).offsets

        assert found == [0, 1, 0]


@pytest.mark.statement("b47")
async def test_purged_messages_can_be_sent_again(mock_clock: MockClock) -> None:
    """Statement 47."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))
        await settle(client, queue, await receive(client, queue))
        assert await purge(client, queue) == 0
        assert (await send(client, queue, (b"a", "1"))).offsets == [1]
        assert (await send(client, queue, (b"a", "1"))).offsets == [1]

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert (await send(client, queue, (b"a", "1"))).offsets == [1]
        assert await purge(client, queue) == 1
        assert (await send(client, queue, (b"a", "1"))).offsets == [2]


@pytest.mark.statement("b39")
async def test_a_restarted_broker_recognizes_duplicates_of_earlier_sends(
    mock_clock: MockClock,
) -> None:
    """Statements 39 and 41, from the log."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))
        await world.pass_time(WINDOW_S - 10)
        await send(client, queue, (b"b", "2"))
        await produce(client, topic_of(broker), batch_of(b"p" * 1000))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert (await send(client, queue, (b"a", "1"), (b"b", "2"))).offsets == [0, 1]
        await world.pass_time(10)
        assert (await send(client, queue, (b"a", "1"), (b"b", "2"))).offsets == [3, 1]


@pytest.mark.statement("b39")
async def test_two_concurrent_sends_of_one_id_are_one_message(
    mock_clock: MockClock,
) -> None:
    """Neither is acknowledged before the message is committed."""
    world = World(mock_clock)
    async with (
        world.broker() as broker,
        world.client() as client,
        world.client() as other,
    ):
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "0"))
        world.work.hold_syncs()
        first = submit_send(client, queue, outgoing(queue, (b"b", "1")))
        second = submit_send(other, queue, outgoing(queue, (b"c", "1")))
        await let_happen()

        assert not first.is_answered
        assert not second.is_answered
        world.work.let_all_sync()
        replies = [await first.reply(), await second.reply()]
        assert [reply.offsets for reply in replies] == [[1], [1]]
        assert sorted(reply.duplicates for reply in replies) == [[], [0]]


async def test_sends_wait_while_the_deduplication_window_is_read(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        world.work.hold_reads()
        pending = [
            submit_send(client, queue, outgoing(queue, (b"b", sent_id))) for sent_id in "112"
        ]
        await let_happen()
        world.work.let_all_read()

        assert [(await each.reply()).offsets for each in pending] == [[0], [0], [1]]


@pytest.mark.statement("b39", "b46")
async def test_a_repeated_send_request_returns_the_original_offsets_at_any_time(
    mock_clock: MockClock,
) -> None:
    """Also without ids, and when the window is over."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))
        batch = outgoing(queue, (b"a", "1"), (b"b", "2"), (b"c", None), producer_id=9, sequence=0)
        first = await submit_send(client, queue, batch).reply()
        assert (first.offsets, first.duplicates) == ([0, 1, 2], [0])
        await world.pass_time(2 * WINDOW_S)
        again = await submit_send(client, queue, batch).reply()

        # The original is no longer known, only that there was one.
        assert (again.offsets, again.duplicates) == ([None, 1, 2], [0])
        assert again.timestamp_ms == first.timestamp_ms

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        again = await submit_send(client, queue, batch).reply()
        assert (again.offsets, again.duplicates) == ([None, 1, 2], [0])
        after = outgoing(queue, (b"d", None), producer_id=9, sequence=2)
        assert (await submit_send(client, queue, after).reply()).offsets == [3]
        assert len(await fetch_all(client, topic_of(broker))) == 4


@pytest.mark.statement("b39")
async def test_a_send_is_repeated_behind_and_before_sends_of_others(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))
        batch = outgoing(queue, (b"b", "2"), producer_id=9, sequence=0)
        first = await submit_send(client, queue, batch).reply()
        await send(client, queue, (b"c", "3"))

        again = await submit_send(client, queue, batch).reply()

        assert again.offsets == first.offsets == [1]
        assert len(await fetch_all(client, topic_of(broker))) == 3


async def test_another_batch_under_the_same_sequence_is_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await submit_send(
            client, queue, outgoing(queue, (b"a", "1"), producer_id=9, sequence=0)
        ).reply()
        batch = outgoing(queue, (b"b", "2"), producer_id=9, sequence=0)

        with pytest.raises(OutOfOrderSequenceError, match="another batch under sequence 0"):
            await submit_send(client, queue, batch).reply()
        assert len(await fetch_all(client, topic_of(broker))) == 1


async def test_messages_have_the_append_time_of_the_broker(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await world.pass_time(7)
        reply = await send(client, queue, (b"a", "1"))

        assert START_MS + 7000 <= reply.timestamp_ms <= START_MS + 8000


@pytest.mark.statement("b65")
@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (encode_batch(Columns(1, values=[b"v"]), first_timestamp_ms=1), InvalidRequestError),
        (
            encode_batch(
                Columns(2, values=[b"v", b"w"], timestamp_deltas=[0, 1]), first_timestamp_ms=1
            ),
            InvalidRequestError,
        ),
        (b"no batch at all", InvalidBatchError),
    ],
)
async def test_a_send_with_an_invalid_message_is_refused_as_a_whole(
    mock_clock: MockClock, batch: bytes, error: type[BrokerError]
) -> None:
    """Statement 65."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        with pytest.raises(error):
            await submit_send(client, queue, bytearray(batch)).reply()
        with pytest.raises(error):
            await submit_send(client, queue, bytearray(batch)).reply()
        assert await fetch_all(client, topic_of(broker)) == []


async def test_a_send_to_an_unknown_queue_or_partition_is_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        batch = outgoing(queue, (b"a", "1"))
        with pytest.raises(UnknownPartitionError):
            await submit_send(client, queue, batch, partition=1).reply()
        with pytest.raises(UnknownTopicIdError):
            await submit_send(client, b"?" * 16, batch).reply()


async def test_a_send_that_times_out_before_its_commit_has_an_unknown_outcome(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))
        world.work.hold_syncs()
        batch = outgoing(queue, (b"b", "2"), producer_id=9, sequence=0)
        pending = submit_send(client, queue, batch, timeout_ms=1000)
        await let_happen()
        await world.pass_time(1.1)
        with pytest.raises(RequestTimedOutError):
            await pending.reply()
        world.work.let_all_sync()

        assert (await submit_send(client, queue, batch).reply()).offsets == [1]


async def test_sends_above_the_send_rate_are_throttled(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, send_rate="10")
        values = [b"%d" % number for number in range(30)]
        reply = await submit_send(client, queue, batch_of(*values, at_ms=1)).reply()
        assert 2000 <= reply.throttle_ms <= 2001
        with pytest.raises(ThrottledError, match="send_rate") as failure:
            await submit_send(client, queue, batch_of(b"early")).reply()
        assert failure.value.retry_after_ms is not None

        await world.pass_time(failure.value.retry_after_ms / 1000)
        assert (await submit_send(client, queue, batch_of(b"late")).reply()).offsets == [30]

        request = AlterQueueRequest("orders", {}, ["send_rate"])
        await submit(client, api.ALTER_QUEUE, request).reply()
        assert (await submit_send(client, queue, batch_of(b"now")).reply()).throttle_ms == 0


async def test_a_send_cancelled_while_the_window_is_read_is_not_appended_later(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        await send(client, queue, (b"a", "1"))

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        world.work.hold_reads()
        async with world.client() as hasty:
            submit_send(hasty, queue, outgoing(queue, (b"b", "2")))
            await let_happen()
        late = submit_send(client, queue, outgoing(queue, (b"c", "3")), timeout_ms=1000)
        await let_happen()
        await world.pass_time(1.1)
        with pytest.raises(RequestTimedOutError, match="nothing was appended"):
            await late.reply()
        world.work.let_all_read()

        assert (await send(client, queue, (b"d", "4"))).offsets == [1]
        assert len(await fetch_all(client, topic_of(broker))) == 2
