"""Fields of outgoing messages, and their records."""

from typing import Unpack

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tests.client.queue_fixture import drain, values, work_queue
from tidelog.client.producer.producer import Producer
from tidelog.client.queue.context import QueueContext
from tidelog.client.queue.send.message_fields import (
    MessageFields,
    OutgoingMessage,
    QueueKind,
    check_for_kind,
    plain_messages,
    record_of,
)
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.errors import BatchError, InvalidRequestError


def test_queue_headers_follow_the_headers_of_the_sender() -> None:
    message = OutgoingMessage(
        value=b"v", key=b"k", headers=[("trace", b"1")], delay=1.5, priority=2, deduplication_id="ä"
    )

    record = record_of(message, "orders", now_ms=10_000)

    assert (record.topic, record.value, record.key) == ("orders", b"v", b"k")
    assert record.headers == (
        ("trace", b"1"),
        ("tidelog.deliver_at_ms", b"11500"),
        ("tidelog.priority", b"2"),
        ("tidelog.deduplication_id", "ä".encode()),
    )


def test_a_message_without_fields_is_a_plain_record() -> None:
    assert record_of(OutgoingMessage(b"v"), "orders", now_ms=1).headers == ()
    assert OutgoingMessage(b"v") == OutgoingMessage(value=b"v")


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (
            OutgoingMessage(value=b"v", delay=-1),
            "delay must be a number of seconds from 0 on, not -1",
        ),
        (OutgoingMessage(value=b"v", priority=-1), "a priority is a number from 0 on, not -1"),
        (OutgoingMessage(value=b"v", deduplication_id=""), "has 1 to 128 bytes, not 0"),
        (OutgoingMessage(value=b"v", deduplication_id="a" * 129), "has 1 to 128 bytes, not 129"),
        (OutgoingMessage(value=b"v", headers=[("tidelog.x", b"")]), "'tidelog.x' is one"),
    ],
)
def test_invalid_values_are_refused(message: OutgoingMessage, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        record_of(message, "orders", now_ms=0)


def test_a_delay_is_a_number_of_seconds() -> None:
    message = OutgoingMessage(value=b"v", delay="1h")  # type: ignore[arg-type]
    for check in (
        lambda: record_of(message, "orders", now_ms=0),
        lambda: check_for_kind(message, QueueKind(topic_retention_ms=1)),
    ):
        with pytest.raises(TypeError, match="delay must be a number of seconds, not '1h'"):
            check()


@pytest.mark.parametrize(
    ("message", "is_fifo", "complaint"),
    [
        (OutgoingMessage(value=b"v", deduplication_id="1"), False, "only FIFO queues take"),
        (
            OutgoingMessage(value=b"v", priority=0),
            False,
            "has no priorities; it needs `priority_weights`",
        ),
        (OutgoingMessage(value=b"v"), True, "needs a group"),
        (OutgoingMessage(value=b"v", key=b"k", delay=1), True, "have no delays of their own"),
        (OutgoingMessage(value=b"v", key=b"k", priority=1), True, "and no priorities"),
    ],
)
def test_fifo_and_standard_queues_refuse_different_fields(
    message: OutgoingMessage, is_fifo: bool, complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        check_for_kind(message, QueueKind(is_fifo=is_fifo))


def test_fifo_and_standard_queues_accept_their_fields() -> None:
    message = OutgoingMessage(value=b"v", delay=9.0, priority=1)
    check_for_kind(message, QueueKind(priority_count=2))
    check_for_kind(OutgoingMessage(value=b"v", key=b"k", delay=0), QueueKind(is_fifo=True))


def test_group_and_key_are_the_same_thing() -> None:
    message = OutgoingMessage(value=b"v", group=b"g")

    assert record_of(message, "orders", now_ms=1).key == b"g"
    check_for_kind(message, QueueKind(is_fifo=True))
    with pytest.raises(ValueError, match="give one of them"):
        record_of(OutgoingMessage(value=b"v", key=b"k", group=b"g"), "orders", now_ms=1)


@pytest.mark.statement("b33")
def test_a_fifo_message_with_delay_0_gets_the_delivery_delay_of_the_queue() -> None:
    """Statement 33."""
    message = OutgoingMessage(value=b"v", group=b"g", delay=0)

    assert record_of(message, "orders", now_ms=1, is_fifo=True).headers == ()
    assert record_of(message, "orders", now_ms=1).headers == (("tidelog.deliver_at_ms", b"1"),)


HEADERS = (("a", b"1"),)
CONTEXT = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)
LARGE = bytes((32 << 10) + 1)


def message(value: bytes = b"v", **fields: Unpack[MessageFields]) -> OutgoingMessage:
    return msgspec.structs.replace(OutgoingMessage(value=value, headers=HEADERS), **fields)


@pytest.mark.parametrize(
    ("messages", "headers"),
    [
        ([b"a", b"b"], CONTEXT),
        ([b"a", LARGE[:-1]], CONTEXT),
        ([message(b"a"), message(b"b")], HEADERS + CONTEXT),
        ([message(headers=CONTEXT)], CONTEXT),
        ([message(headers=())], CONTEXT),
    ],
)
def test_messages_that_differ_in_their_values_are_plain(
    messages: list[bytes | OutgoingMessage], headers: Headers
) -> None:
    values = [each if isinstance(each, bytes) else each.value for each in messages]

    assert plain_messages(messages, CONTEXT) == (values, headers)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [b"a", LARGE],
        [b"a", "b"],
        [b"a", message()],
        [message(), b"a"],
        [message(LARGE)],
        [message(headers=iter(HEADERS))],
        [message(), message(headers=(("a", b"2"),))],
        [message(key=b"k")],
        [message(group=b"g")],
        [message(), message(delay=0)],
        [message(priority=0)],
        [message(deduplication_id="1")],
        [OutgoingMessage(value=None, headers=HEADERS)],
    ],
)
def test_other_messages_are_not_plain(messages: list[bytes | OutgoingMessage]) -> None:
    assert plain_messages(messages, ()) is None


def test_headers_of_plain_messages_are_checked() -> None:
    with pytest.raises(ValueError, match="are set by queues"):
        plain_messages([message(headers=(("tidelog.deliver_at_ms", b"1"),))], ())
    with pytest.raises(TypeError, match="pairs of str and bytes"):
        plain_messages([message(headers=(("a", "text"),))], ())  # type: ignore[arg-type]


async def test_a_queue_without_priorities_refuses_a_priority(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        with pytest.raises(InvalidRequestError, match="no priorities; it needs `priority_weights`"):
            await queue.send(b"urgent", priority=0)
        with pytest.raises(BatchError, match=r"1 of 2 messages .* no priorities"):
            await queue.send_batch([b"plain", OutgoingMessage(value=b"urgent", priority=0)])
        assert values(await drain(queue)) == [b"plain"]

        await client.admin.alter_queue("work", set={"priority_weights": "2,1"})

        await queue.send(b"later", priority=1)
        await queue.send(b"urgent", priority=0)
        assert values(await queue.receive()) == [b"urgent", b"later"]


@pytest.mark.statement("b99")
async def test_a_priority_beyond_the_last_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, priority_weights="4,2,1") as (client, queue):
        for priority in (3, 255):
            wrong = f"is {priority}, it must be from 0 to 2: .* have 3 of them"
            with pytest.raises(InvalidRequestError, match=wrong):
                await queue.send(b"v", priority=priority)
            with pytest.raises(BatchError, match=wrong) as caught:
                await queue.send_batch([b"plain", OutgoingMessage(value=b"v", priority=priority)])
            assert [*caught.value.receipts] == [0]
        assert values(await drain(queue)) == [b"plain", b"plain"]

        await client.admin.alter_queue("work", set={"priority_weights": "8,4,2,1"})

        await queue.send(b"last", priority=3)
        assert values(await queue.receive()) == [b"last"]


@pytest.mark.statement("b99")
async def test_a_message_without_a_priority_takes_the_default_priority(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, priority_weights="1,1,1") as (client, queue):
        await queue.send(b"plain")
        await queue.send(b"keyed", key=b"k")
        async with client.producer() as producer:
            await producer.send("work", b"produced")
        await queue.send(b"medium", priority=1)
        await queue.send(b"least", priority=2)
        await queue.send(b"urgent", priority=0)

        messages = await queue.receive(visibility_timeout=0)
        least_urgent = [b"plain", b"keyed", b"produced", b"least"]
        assert values(messages) == [b"urgent", b"medium", *least_urgent]

        await client.admin.alter_queue("work", set={"default_priority": "0"})

        assert values(await queue.receive()) == [
            b"plain",
            b"keyed",
            b"produced",
            b"urgent",
            b"medium",
            b"least",
        ]


async def test_the_producer_is_opened_once(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        shared = QueueContext(vars(client)["_cluster"])
        found: list[Producer] = []

        async def ask() -> None:
            found.append(await shared.producer.get())

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert len(set(map(id, found))) == 1
        await client.admin.create_topic("orders")
        assert (await found[0].send("orders", b"v")).offset == 0


@pytest.mark.statement("b13", "b97")
async def test_a_delay_beyond_the_retention_of_the_topic_is_refused_with_both(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        wrong = r"is 604800 s, and topic 'work' deletes records after 604800 s \(retention_ms\)"
        with pytest.raises(InvalidRequestError, match=wrong):
            await queue.send(b"v", delay=7 * 86_400)
        with pytest.raises(BatchError, match=wrong) as caught:
            await queue.send_batch([b"now", OutgoingMessage(value=b"v", delay=7 * 86_400)])
        assert [*caught.value.receipts] == [0]
        await queue.send(b"in time", delay=7 * 86_400 - 1)

        await client.admin.alter_topic("work", set={"retention_ms": "30d"})

        await queue.send(b"later", delay=7 * 86_400)
        assert values(await queue.receive()) == [b"now"]


def test_none_stands_for_no_headers() -> None:
    message = OutgoingMessage(value=b"v", headers=None)  # type: ignore[arg-type]

    assert plain_messages([message], ()) is None
    assert record_of(message, "orders", now_ms=0).headers == ()
