"""Chunk writer: large messages from bytes, files and streams."""

import gc
import gzip
import io
import os
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from weakref import ref

import pytest
import trio
from trio.testing import MockClock

from tests.client.large_messages import LONG, KiB, MiB
from tests.client.queue_fixture import left, queue_of, values, work_queue
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.record_accumulator import RecordAccumulator
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.batch.large_messages import LARGE_MESSAGE_BYTES_MAX
from tidelog.wire.errors import BatchError, DeliveryTimeoutError, RecordTooLargeError


async def pieces(value: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(value), size):
        await trio.lowlevel.checkpoint()
        yield value[at : at + size]


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_large_message_may_be_a_file_or_a_stream(
    autojump_clock: MockClock, partitions: int
) -> None:
    async with work_queue(autojump_clock, partitions=partitions) as (_, queue):
        await queue.send(io.BytesIO(LONG))
        await queue.send(pieces(LONG, 70_001))
        await queue.send(trio.wrap_file(io.BytesIO(LONG)))
        await queue.send(pieces(b"short", 2))
        await queue.send(io.BytesIO(b""))

        found = [await queue.receive(1) for _ in range(5)]

        lengths = [len(message.value or b"") for (message,) in found]
        assert sorted(lengths) == [0, 5, len(LONG), len(LONG), len(LONG)]
        assert {message.value for (message,) in found} == {LONG, b"short", b""}


async def test_an_invalid_source_of_bytes_is_refused(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        for value in ("text", 7, [b"a"]):
            with pytest.raises(TypeError):
                await queue.send(value)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="it returned str"):
            await queue.send(io.StringIO("text"))  # type: ignore[arg-type]
        assert await left(queue) == (0, 0)


async def test_a_topic_with_a_low_max_message_bytes_accepts_large_messages(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, _):
        await client.admin.create_topic("short", config={"max_message_bytes": "8KiB"})
        await client.admin.create_queue("short", topic="short")
        queue = client.queue("short")
        value = LONG[: 300 * KiB]

        await queue.send(value)
        await queue.send(LONG)

        first, second = await queue.receive()
        assert (first.value, second.value) == (value, LONG)


async def test_a_value_above_max_message_bytes_of_a_batch_is_sent_in_chunks(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, _):
        await client.admin.create_topic("short", config={"max_message_bytes": "8KiB"})
        await client.admin.create_queue("short", topic="short")
        queue = client.queue("short")
        mixed = [b"one", LONG[: 20 * KiB], b"three", LONG[: 30 * KiB]]

        receipts = await queue.send_batch(mixed)
        more = await queue.send_batch([OutgoingMessage(value=mixed[1], key=b"a"), b"two"])

        assert len({receipt.offset for receipt in (*receipts, *more)}) == 6
        received = [message.value or b"" for message in await queue.receive(10)]
        assert sorted(received) == sorted([*mixed, mixed[1], b"two"])


async def test_a_cancelled_sender_of_chunks_leaves_no_message(autojump_clock: MockClock) -> None:
    async def for_ever() -> AsyncIterator[bytes]:
        while True:
            await trio.sleep(1)
            yield LONG

    async with work_queue(autojump_clock) as (_, queue):
        with trio.move_on_after(5.5):
            await queue.send(for_ever())
        await queue.send(b"after")

        messages = await queue.receive()

        assert values(messages) == [b"after"]
        assert messages[0].offset > 20, "chunks came before"
        await queue.delete_batch(messages)
        assert await left(queue) == (0, 0)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_failed_send_of_chunks_leaves_nothing_in_the_memory_of_the_client(
    autojump_clock: MockClock, *, is_cancelled: bool
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        for _ in range(3):
            await trio.sleep(1)
            yield LONG
        if is_cancelled:
            await trio.sleep_forever()
        raise OSError("the disk is gone")

    async with work_queue(autojump_clock) as (client, queue):
        shared = vars(client)["_queues"].producer
        value = broken()
        written = ref(value)
        with nullcontext() if is_cancelled else pytest.raises(OSError, match="disk is gone"):
            with trio.move_on_after(5):
                await queue.send(value)
        del value
        await trio.sleep(1)

        producer: Producer = await shared.get()
        accumulator: RecordAccumulator = vars(producer)["_accumulator"]
        assert accumulator.buffered_bytes == 0
        gc.collect()
        assert written() is None, "the source is dropped, and its pieces"
        (counts,) = await queue.counts()
        assert (counts.visible, counts.oldest_timestamp_ms) == (0, None)
        assert await queue.peek() == []
        assert ((await queue.send(b"next")).offset or 0) > 10, "chunks came before"
        assert values(await queue.receive()) == [b"next"]


async def test_a_message_above_the_maximum_length_is_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.queue.send.chunk_writer.LARGE_MESSAGE_BYTES_MAX", 2 * MiB)
    async with work_queue(autojump_clock) as (_, queue):
        with pytest.raises(RecordTooLargeError, match="at most 2097152 bytes, and this one more"):
            await queue.send(pieces(LONG, 70_001))
        assert await queue.receive(wait=0) == []


@pytest.mark.statement("b100")
async def test_a_message_that_is_known_to_be_too_long_is_refused_before_its_upload(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    longest = LARGE_MESSAGE_BYTES_MAX
    sparse = tmp_path / "sparse"
    sparse.touch()
    async with work_queue(autojump_clock) as (_, queue):
        for surplus in (1, MiB):
            os.truncate(sparse, longest + 10 + surplus)
            with sparse.open("rb") as file:
                file.seek(10)
                with pytest.raises(RecordTooLargeError) as refusal:
                    await queue.send(file)
            assert f"at most {longest} bytes, and this one {longest + surplus}" in str(
                refusal.value
            )
            assert refusal.value.detail("size_bytes") == longest + surplus
            async with await trio.open_file(sparse, "rb") as opened:
                await opened.seek(10)
                with pytest.raises(RecordTooLargeError):
                    await queue.send(opened)

        assert (await queue.send(b"next")).offset == 0, "no chunk was sent"


@pytest.mark.statement("b100")
async def test_bytes_that_are_too_long_are_refused_before_their_upload(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.queue.send.chunk_writer.LARGE_MESSAGE_BYTES_MAX", 2 * MiB)
    value = LONG[: 2 * MiB + 1]
    async with work_queue(autojump_clock) as (_, queue):
        for source in (value, io.BytesIO(value), trio.wrap_file(io.BytesIO(value))):
            with pytest.raises(RecordTooLargeError, match="and this one 2097153"):
                await queue.send(source)

        assert (await queue.send(b"next")).offset == 0, "no chunk was sent"
        await queue.send(io.BytesIO(value[1:]))


async def test_the_length_of_a_compressed_or_streamed_file_is_not_known_in_advance(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(LONG))
    first, second = os.pipe()
    os.write(second, b"piped")
    os.close(second)
    async with work_queue(autojump_clock) as (_, queue):
        with gzip.open(packed) as unpacked, os.fdopen(first, "rb") as piped:
            await queue.send(unpacked)
            await queue.send(piped)

        assert values(await queue.receive()) == [LONG, b"piped"]


async def test_a_failed_large_message_does_not_fail_others_of_its_batch(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock) as (queue, cluster):
        keys: dict[int, bytes] = {}
        for number in range(20):
            receipt = await queue.send(b"", key=b"%d" % number)
            keys[receipt.partition] = b"%d" % number
        await queue.purge()
        cluster.fronts[2].is_frozen = True

        with pytest.raises(BatchError, match="1 of 3 messages") as failure:
            await queue.send_batch(
                OutgoingMessage(value=value, key=keys[partition])
                for value, partition in ((b"first", 0), (LONG, 1), (b"third", 0))
            )

        assert list(failure.value.errors) == [1]
        assert isinstance(failure.value.errors[1], DeliveryTimeoutError)
        assert values(await queue.receive(visibility_timeout=600)) == [b"first", b"third"]


async def test_acknowledged_messages_stay_so_when_others_cannot_be_chunked(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        raise DeliveryTimeoutError("too late")

    async with work_queue(autojump_clock) as (client, _):
        await client.admin.create_topic("short", config={"max_message_bytes": "8KiB"})
        await client.admin.create_queue("short", topic="short")
        queue = client.queue("short")
        monkeypatch.setattr("tidelog.client.queue.send.publisher.ChunkWriter.send", fail)

        with pytest.raises(BatchError, match="1 of 2 messages") as failure:
            await queue.send_batch([LONG[: 20 * KiB], b"second"])

        assert list(failure.value.errors) == [0]
        assert values(await queue.receive()) == [b"second"]
