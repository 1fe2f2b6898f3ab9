"""Tests of counts, purges, seeks and cancellations."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import Pending, batch_of, produce, raise_if, submit
from tests.broker.queues.queue_requests import (
    count,
    create_queue,
    peek,
    purge,
    receive,
    received,
    seek,
    settle,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.queue_layer.commands import remove
from tidelog.wire.errors import ErrorCode, InvalidRequestError, LeaderNotAvailableError
from tidelog.wire.messages.queues import (
    CancelScheduledRequest,
    CountMessagesRequest,
    MessageState,
    PeekRequest,
    PurgeRequest,
    QueueSeekRequest,
    ReceiveRequest,
    RedriveRequest,
)
from tidelog.wire.messages.redrives import DescribeRedriveRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

TIMEOUT_S = 30
QUEUE = b"queue orders...."
"""Id of the queue that tests create."""


async def test_a_purge_deletes_all_messages(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await receive(client, queue, 1)

        assert await purge(client, queue) == 3

        assert await states(client, queue) == (0, 0, 0, 0)
        await produce(client, topic_of(broker), batch_of(b"d"))
        assert [each.value for each in await receive(client, queue)] == [b"d"]


@pytest.mark.statement("b70")
async def test_a_purge_keeps_messages_sent_after_its_request(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        world.work.hold_reads()
        asked_for = submit(client, api.PURGE, PurgeRequest(queue, [0]))
        await let_happen()
        await produce(client, topic_of(broker), batch_of(b"c"))
        world.work.let_all_read()

        assert (await asked_for.reply()).results[0].count == 2
        assert [each.value for each in await receive(client, queue)] == [b"c"]


async def test_very_many_messages_are_cancelled_and_purged_in_parts(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "PIECES_AT_ONCE", 2)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="1h")
        for number in range(9):
            await produce(client, topic_of(broker), batch_of(b"m", at_ms=START_MS + number))
        request = CancelScheduledRequest(queue, 0, [(1, 1), (3, 2), (7, 3)])

        (refused,) = (await submit(client, api.CANCEL_SCHEDULED, request).reply()).refused

        assert refused.runs == [(9, 1)]
        assert await states(client, queue) == (0, 0, 4, 0)
        assert await purge(client, queue) == 4
        assert await states(client, queue) == (0, 0, 0, 0)


@pytest.mark.statement("b18")
async def test_a_seek_makes_messages_in_the_log_visible_again(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await settle(client, queue, await receive(client, queue))
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        assert await seek(client, queue, 1) == 2

        again = await received(pending)
        assert [(each.value, each.receive_count) for each in again] == [(b"b", 1), (b"c", 1)]


async def test_the_oldest_message_age_is_counted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", at_ms=START_MS - 7))

        assert (await count(client, queue)).oldest_timestamp_ms == START_MS - 7


async def test_a_cancelled_delayed_message_is_never_delivered(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="1d")
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        reply = await submit(
            client, api.CANCEL_SCHEDULED, CancelScheduledRequest(queue, 0, [(1, 1), (7, 1)])
        ).reply()
        (refused,) = reply.refused
        assert (refused.runs, refused.error.code) == ([(7, 1)], ErrorCode.MESSAGE_GONE)
        for runs in ([(1, 0)], [(-1, 1)], [(0, 2), (1, 1)]):
            with pytest.raises(InvalidRequestError):
                await submit(
                    client, api.CANCEL_SCHEDULED, CancelScheduledRequest(queue, 0, runs)
                ).reply()

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        await world.pass_time(86_400)
        assert [each.value for each in await receive(client, queue)] == [b"a", b"c"]
        reply = await submit(
            client, api.CANCEL_SCHEDULED, CancelScheduledRequest(queue, 0, [(0, 1)])
        ).reply()
        assert reply.refused[0].error.code == ErrorCode.RECEIPT_EXPIRED


@pytest.mark.parametrize(
    ("api_", "message"),
    [
        (api.PURGE, PurgeRequest(QUEUE, [0])),
        (api.QUEUE_SEEK, QueueSeekRequest(QUEUE, 0, 2)),
        (api.CANCEL_SCHEDULED, CancelScheduledRequest(QUEUE, 0, [(0, 1)])),
        (api.REDRIVE, RedriveRequest(QUEUE, [0])),
        (api.COUNT_MESSAGES, CountMessagesRequest(QUEUE, [0])),
        (api.PEEK, PeekRequest(QUEUE, 0, [], 0, 10, 0)),
    ],
    ids=["purge", "seek", "cancel", "redrive", "count", "look"],
)
async def test_what_cannot_be_begun_in_time_is_not_done_much_later(
    mock_clock: MockClock, api_: api.AnyApi, message: object
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="1d")
        assert queue == QUEUE
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        assert await states(client, queue) == (0, 0, 2, 0)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        world.work.hold_reads()
        asked_for = submit(client, api_, message)
        await let_happen()
        await world.pass_time(10.1)
        world.work.let_all_read()

        with pytest.raises(LeaderNotAvailableError, match="nothing was changed"):
            await first_result(asked_for)
        assert await states(client, queue) == (0, 0, 2, 0)


async def first_result(pending: Pending[Any]) -> None:
    """Raise the error of a request, or of the first of its partitions."""
    reply = await pending.reply()
    for result in (getattr(reply, "results", None) or getattr(reply, "counts", None) or ())[:1]:
        raise_if(result.error)


@pytest.mark.parametrize(
    ("api_", "request_of"),
    [
        (api.COUNT_MESSAGES, CountMessagesRequest),
        (api.PURGE, PurgeRequest),
        (api.REDRIVE, RedriveRequest),
        (api.DESCRIBE_REDRIVE, DescribeRedriveRequest),
        (api.RECEIVE, partial(ReceiveRequest, max_messages=1, max_bytes=1, max_wait_ms=0)),
    ],
    ids=lambda each: each.key.name if isinstance(each, Api) else "",
)
async def test_a_request_names_no_more_partitions_than_the_queue_has(
    mock_clock: MockClock, api_: Api[Any, Any], request_of: Callable[[bytes, list[int]], object]
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, partitions=2)

        await submit(client, api_, request_of(queue, [0, 1])).reply()
        with pytest.raises(InvalidRequestError, match="has 2 partitions, and the request names 3"):
            await submit(client, api_, request_of(queue, [0, 1, 2])).reply()


async def test_peek_shows_states_and_holders_of_messages(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await receive(client, queue, 1)

        seen = (await peek(client, queue)).runs

        assert [(run.first_offset, run.state, run.holder) for run in seen] == [
            (0, MessageState.IN_FLIGHT, "a test"),
            (1, MessageState.VISIBLE, ""),
        ]


async def test_peek_returns_records_up_to_the_byte_limit(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        for value in (b"a", b"b", b"c"):
            await produce(client, topic_of(broker), batch_of(value))

        one = await peek(client, queue, max_bytes=1)
        all_of_them = await peek(client, queue, max_bytes=1 << 20)

        assert ([run.count for run in one.runs], one.next_offset) == ([1], 1)
        assert ([run.count for run in all_of_them.runs], all_of_them.next_offset) == ([3], None)
