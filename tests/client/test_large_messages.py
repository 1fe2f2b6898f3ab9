"""Large messages above the size of a record, end to end."""

import pytest
from trio.testing import MockClock

from tests.client.large_messages import LONG, MiB, parts
from tests.client.queue_fixture import left, made, values, work_queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import MessageBodyLostError


async def test_a_large_message_is_received_joined(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send(LONG, headers=[("trace", b"1")])
        assert await left(queue) == (1, 0)

        (message,) = await queue.receive()

        assert message.value == LONG
        assert message.headers[0] == ("trace", b"1")
        assert (message.length, message.is_large, message.receive_count) == (len(LONG), True, 1)
        assert await left(queue) == (0, 1)
        await message.delete()
        assert await left(queue) == (0, 0)


async def test_large_and_small_messages_of_a_group_stay_in_order(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, partitions=2) as (client, _):
        await client.admin.create_queue("ordered", partitions=2, fifo=True)
        queue = client.queue("ordered")
        await queue.send_batch(
            [
                OutgoingMessage(value=b"1", key=b"k"),
                OutgoingMessage(value=LONG, key=b"k"),
                OutgoingMessage(value=b"3", key=b"k"),
            ]
        )
        await queue.send(LONG + b"4", key=b"k")

        found: list[bytes | None] = []
        while messages := await queue.receive(wait=0, max_value_bytes=4 * MiB):
            found += values(messages)
            await queue.delete_batch(messages)

        assert found == [b"1", LONG, b"3", LONG + b"4"]


async def test_large_messages_are_dead_lettered_and_redriven_complete(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, _):
        dead = await made(client, "dead")
        queue = await made(client, "orders", dead_letter_queue="dead", max_receive_count=1)
        await queue.send(LONG)
        (message,) = await queue.receive()
        await message.reject("I do not like it")

        (letter,) = await dead.receive(wait=20)

        assert letter.value == LONG
        assert letter.origin is not None
        assert letter.origin.reason == "I do not like it"
        await letter.release(0)
        await dead.redrive()
        (back,) = await queue.receive(wait=20)
        assert back.value == LONG
        assert (await left(dead), await left(queue)) == ((0, 0), (0, 1))


async def test_a_purge_and_a_seek_count_a_large_message_as_one(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([b"a", LONG, b"b"])

        assert await queue.purge() == 3
        assert await queue.seek("earliest") == 3
        assert values(await queue.receive()) == [b"a", LONG, b"b"]
        assert [seen.record.value for seen in await queue.peek()] == [b"a", b"", b"b"]


async def test_a_worker_joins_large_messages_up_to_max_value_bytes(
    autojump_clock: MockClock,
) -> None:
    seen: list[tuple[int, int]] = []

    async def handle(message: Message) -> None:
        if message.length <= MiB:
            seen.append((message.length, len(message.value or b"")))
        else:
            seen.append((message.length, sum(await parts(message))))
        if len(seen) == 3:
            worker.stop()

    async with work_queue(autojump_clock) as (_, queue):
        await queue.send_batch([LONG, b"a", LONG[: MiB + 1]])
        worker = queue.worker(handle, max_value_bytes=MiB)

        await worker.run()

        assert sorted(seen) == sorted([(len(LONG),) * 2, (1, 1), (MiB + 1,) * 2])
        assert await left(queue) == (0, 0)


async def test_a_worker_rejects_a_message_with_deleted_chunks(autojump_clock: MockClock) -> None:
    async def handle(message: Message) -> None:
        assert message.value == b"after"
        worker.stop()

    async with work_queue(autojump_clock) as (client, _):
        dead = await made(client, "dead")
        queue = await made(client, "orders", dead_letter_queue="dead")
        await queue.send_batch([LONG, b"after"])
        await client.admin.delete_records("orders", 0, 3)
        worker = queue.worker(handle, concurrency=1)

        await worker.run()

        (letter,) = await dead.receive(wait=20)
        assert worker.statistics.rejected_count == 1
        assert letter.origin is not None
        assert "MessageBodyLostError" in letter.origin.reason
        with pytest.raises(MessageBodyLostError):
            _ = letter.value


@pytest.mark.parametrize("scope", ["queue", "group"])
async def test_a_duplicate_large_message_is_kept_once(
    autojump_clock: MockClock, scope: str
) -> None:
    async with work_queue(autojump_clock) as (client, _):
        await client.admin.create_queue(
            "once",
            partitions=1,
            fifo=True,
            content_based_deduplication=True,
            deduplication_scope=scope,
        )
        queue = client.queue("once")
        other = LONG[:-1] + b"x"

        receipts = [
            await queue.send(LONG, group=b"k"),
            await queue.send(LONG, group=b"k"),
            await queue.send(other, group=b"k"),
            await queue.send(other, group=b"k", deduplication_id="another"),
            await queue.send(LONG, group=b"k", deduplication_id="another"),
        ]

        assert [each.is_duplicate for each in receipts] == [False, True, False, False, True]
        found: list[bytes | None] = []
        while messages := await queue.receive(wait=0):
            found += values(messages)
            await queue.delete_batch(messages)
        assert found == [LONG, other, other]
