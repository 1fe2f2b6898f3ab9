"""Processors, whose output is visible exactly once, with a real broker on virtual time."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.world import World
from tests.client.clients import client_of, orders_client
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.processing import processor as processor_module
from tidelog.client.processing.processor import Processor
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.coordinator.metadata import transaction_commands
from tidelog.wire.errors import ConfigError, NoPositionError, UnknownTopicError
from tidelog.wire.messages.queues import ORIGIN_OFFSET_HEADER, REASON_HEADER
from tidelog.wire.messages.transactions import TransactionDescription


def copied(record: Record) -> ProducerRecord:
    return ProducerRecord("copies", record.value, record.key)


async def read(client: Client, topic: str = "copies") -> list[Record]:
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        return [each async for each in consumer.records(await consumer.end_offsets())]


async def values(client: Client, topic: str = "copies") -> list[bytes | None]:
    return [record.value for record in await read(client, topic)]


async def fill(client: Client, first: int, end: int) -> list[bytes]:
    """Produce numbers to `orders`."""
    sent = [b"%d" % number for number in range(first, end)]
    async with client.producer() as producer:
        await producer.send_many("orders", sent, keys=sent)
    return sent


@asynccontextmanager
async def copies_client(time: MockClock, partition_count: int = 1) -> AsyncGenerator[Client, None]:
    async with orders_client(time, partition_count) as client:
        await client.admin.create_topic("copies")
        yield client


async def test_each_record_is_processed_once_over_restarts(autojump_clock: MockClock) -> None:
    async with copies_client(autojump_clock, 3) as client:
        sent = await fill(client, 0, 500)
        first = await client.process("orders", copied, name="copy", until_end=True)
        again = await client.process("orders", copied, name="copy", until_end=True)
        sent += await fill(client, 500, 600)
        third = await client.process("orders", copied, name="copy", until_end=True)

        assert (first.input_count, again.input_count, third.input_count) == (500, 0, 100)
        assert first.output_count == 500
        assert sorted(await values(client), key=str) == sorted(sent, key=str)
        group = await client.admin.describe_group("copy")
        assert [each.lag_records for each in group.partitions] == [0, 0, 0]


async def test_a_processor_leaves_no_producer_open(autojump_clock: MockClock) -> None:
    async with copies_client(autojump_clock, 3) as client:
        await fill(client, 0, 100)
        before = client.statistics().producers.open

        await client.process("orders", copied, name="copy", until_end=True)
        await wait_all_tasks_blocked()

        assert client.statistics().producers.open == before


async def test_chosen_partitions_need_no_group(autojump_clock: MockClock) -> None:
    async with copies_client(autojump_clock, 3) as client:
        sent = await fill(client, 0, 100)
        for partitions in ([0], [1, 2], [0, 1, 2]):
            await client.process(
                "orders", copied, name="copy", partitions=partitions, until_end=True
            )

        assert sorted(await values(client), key=str) == sorted(sent, key=str)
        assert await client.admin.list_groups() == []


async def test_output_becomes_visible_while_it_runs_and_stop_commits_the_rest(
    autojump_clock: MockClock,
) -> None:
    async with copies_client(autojump_clock) as client, trio.open_nursery() as nursery:
        processor = client.processor("orders", copied, name="copy", commit_interval=1.0)
        nursery.start_soon(processor.run)
        await fill(client, 0, 3)
        await until(lambda: processor.statistics.input_count == 3)
        assert len(await values(client)) == 3

        seen: list[bytes | None] = []
        other = client.processor(
            "orders", lambda record: seen.append(record.value), name="other", commit_interval=3600
        )
        nursery.start_soon(other.run)
        await until(lambda: len(seen) == 3)
        other.stop()
        processor.stop()

    assert other.statistics.input_count == 3


async def test_a_cancelled_processor_commits_nothing_more(autojump_clock: MockClock) -> None:
    async with copies_client(autojump_clock) as client:
        sent = await fill(client, 0, 5)
        seen: list[Record] = []

        def seeing(record: Record) -> ProducerRecord:
            seen.append(record)
            return copied(record)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                lambda: client.process("orders", seeing, name="copy", commit_interval=3600)
            )
            await until(lambda: len(seen) == 5)
            nursery.cancel_scope.cancel()

        assert await values(client) == []
        (found,) = await client.admin.list_transactions()
        assert (found.open_transaction_id, found.last_transaction_id) == (None, 0)
        assert (await client.admin.describe_group("copy")).members == ()
        await client.process("orders", copied, name="copy", until_end=True)
        assert await values(client) == sent


async def test_a_poison_record_stops_the_processor_behind_the_records_before(
    autojump_clock: MockClock,
) -> None:
    def picky(record: Record) -> ProducerRecord:
        if record.value == b"7":
            raise ValueError("7 is poison")
        return copied(record)

    async with copies_client(autojump_clock) as client:
        sent = await fill(client, 0, 10)
        with pytest.raises(ValueError, match="7 is poison") as failure:
            await client.process("orders", picky, name="copy", until_end=True)

        (note,) = failure.value.__notes__
        assert note.startswith("the transform of orders/0 offset 7 failed; the next run")
        assert await values(client) == sent[:7]
        counts = await client.process("orders", copied, name="copy", until_end=True)
        assert counts.input_count == 3
        assert await values(client) == sent


@pytest.mark.parametrize("batch", [False, True])
async def test_a_poison_record_goes_to_the_dead_letter_topic(
    autojump_clock: MockClock, batch: bool
) -> None:
    def picky(given: Record | Sequence[Record]) -> list[ProducerRecord]:
        records = [given] if isinstance(given, Record) else given
        if any(record.value == b"7" for record in records):
            raise ValueError("7 is poison")
        return list(map(copied, records))

    world = World(autojump_clock)
    async with client_of(world) as client:
        for topic in ("orders", "copies", "dead"):
            await client.admin.create_topic(topic)
        sent = await fill(client, 0, 10)
        counts = await client.process(
            "orders", picky, name="copy", batch=batch, dead_letter_topic="dead", until_end=True
        )

        assert (counts.input_count, counts.dead_letter_count) == (10, 1)
        assert sorted(await values(client), key=str) == [each for each in sent if each != b"7"]
        (dead,) = await read(client, "dead")
        headers = dict(dead.headers)
        assert (dead.key, dead.value, headers[ORIGIN_OFFSET_HEADER]) == (b"7", b"7", b"7")
        assert headers[REASON_HEADER].startswith(b"ValueError: 7 is poison\n\n")
        (logged,) = world.told("processor.dead_letter")
        assert (logged["topic"], logged["partition"], logged["offset"]) == ("orders", 0, 7)


async def test_a_second_owner_cannot_commit_output_of_the_same_input(
    autojump_clock: MockClock,
) -> None:
    """As after a rebalance of which the first owner has not heard."""
    async with copies_client(autojump_clock) as client:
        sent = await fill(client, 0, 5)
        may_go_on, has_read = trio.Event(), trio.Event()

        async def slow(record: Record) -> ProducerRecord:
            has_read.set()
            await may_go_on.wait()
            return copied(record)

        zombie = client.processor("orders", slow, name="copy", partitions=[0], commit_interval=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(zombie.run)
            await has_read.wait()
            for first, end in ((5, 10), (10, 12)):
                await client.process("orders", copied, name="copy", partitions=[0], until_end=True)
                sent += await fill(client, first, end)
            may_go_on.set()
            await until(lambda: zombie.statistics.input_count == 2)
            zombie.stop()

        assert zombie.statistics.restart_count == 1
        assert await values(client) == sent


async def test_members_share_the_partitions_and_hand_them_over(autojump_clock: MockClock) -> None:
    async with copies_client(autojump_clock, 4) as client, trio.open_nursery() as nursery:
        processors: list[Processor] = []

        def start() -> Processor:
            processor = client.processor("orders", copied, name="copy")
            processors.append(processor)
            nursery.start_soon(processor.run)
            return processor

        async def all_copied(count: int) -> None:
            await until(lambda: sum(each.statistics.input_count for each in processors) == count)

        first = start()
        sent = await fill(client, 0, 50)
        await all_copied(50)
        start()
        await trio.sleep(60)
        sent += await fill(client, 50, 250)
        await all_copied(250)
        assert first.statistics.input_count not in {50, 250}
        first.stop()
        await trio.sleep(30)
        sent += await fill(client, 250, 300)
        await all_copied(300)
        processors[1].stop()

        assert sorted(await values(client), key=str) == sorted(sent, key=str)


@pytest.mark.parametrize("offset", [4, 12])
async def test_a_processor_follows_a_group_that_was_moved(
    autojump_clock: MockClock, offset: int
) -> None:
    async with copies_client(autojump_clock) as client:
        sent = await fill(client, 0, 10)
        await client.process("orders", copied, name="copy", until_end=True)
        sent += await fill(client, 10, 13)
        await client.admin.reset_offsets("copy", "orders", ("offset", offset))
        moved = await client.process("orders", copied, name="copy", until_end=True)
        again = await client.process("orders", copied, name="copy", until_end=True)

        assert (moved.input_count, again.input_count) == (13 - offset, 0)
        assert await values(client) == sent[:10] + sent[offset:]


async def test_the_committed_offset_of_a_consumer_is_the_first_start(
    autojump_clock: MockClock,
) -> None:
    async with copies_client(autojump_clock) as client:
        sent = await fill(client, 0, 10)
        async with client.consumer(
            "orders", group_id="copy", auto_offset_reset="earliest"
        ) as consumer:
            await anext(aiter(consumer))
            await consumer.commit({("orders", 0): 6})
        for _ in range(2):
            await client.process("orders", copied, name="copy", until_end=True)

        assert await values(client) == sent[6:]


async def test_a_recreated_topic_is_read_from_its_beginning(autojump_clock: MockClock) -> None:
    async with copies_client(autojump_clock) as client:
        sent = await fill(client, 0, 10)
        await client.process("orders", copied, name="copy", until_end=True)
        await client.admin.delete_topic("orders")
        await client.admin.create_topic("orders")
        sent += await fill(client, 20, 23)
        await client.process("orders", copied, name="copy", until_end=True)

        assert await values(client) == sent


async def test_an_idle_processor_keeps_its_position_for_longer_than_names_are_kept(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_commands, "REMEMBERED_MS", 300_000)
    monkeypatch.setattr(processor_module, "_USE_S", 100.0)
    async with copies_client(autojump_clock) as client, trio.open_nursery() as nursery:
        await fill(client, 0, 3)
        processor = client.processor("orders", copied, name="copy", partitions=[0])
        nursery.start_soon(processor.run)
        await until(lambda: processor.statistics.input_count == 3)
        await trio.sleep(1000)

        (found,) = await client.admin.list_transactions()
        assert (found.last_transaction_id, found.open_transaction_id) == (3, None)
        processor.stop()


async def test_what_waiting_does_not_cure_ends_the_processor(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        await fill(client, 0, 1)
        with pytest.raises(UnknownTopicError, match="copies"):
            await client.process("orders", copied, name="copy")
        with pytest.raises(UnknownTopicError, match="nowhere"):
            await client.process("nowhere", copied, name="copy", partitions=[0])
        with pytest.raises(NoPositionError):
            await client.process("orders", copied, name="new", auto_offset_reset=None)


async def test_settings_are_checked(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        with pytest.raises(ConfigError, match="max_records must be above 0"):
            client.processor("orders", copied, name="copy", max_records=0)
        with pytest.raises(ConfigError, match="1 to 150 characters, not 0"):
            client.processor("orders", copied, name="")
        with pytest.raises(ConfigError, match="for one topic"):
            client.processor(["orders", "other"], copied, name="copy", partitions=[0])
        with pytest.raises(ConfigError, match="a topic to read"):
            client.processor([], copied, name="copy")


async def test_the_end_is_reached_although_the_last_commit_is_refused(
    autojump_clock: MockClock,
) -> None:
    """As when brokers do not answer, or a zombie has begun a transaction."""
    world = World(autojump_clock)
    async with client_of(world) as client, trio.open_nursery() as nursery:
        for topic in ("orders", "copies"):
            await client.admin.create_topic(topic)
        sent = await fill(client, 0, 10)

        async def abort_the_first() -> None:
            found: list[TransactionDescription] = []
            while not any(each.open_transaction_id for each in found):
                await trio.sleep(0.001)
                found = await client.admin.list_transactions()
            for each in found:
                assert each.open_transaction_id is not None
                await client.transaction(each.name, each.open_transaction_id).abort()
            world.work.let_all_sync()

        seen: list[int] = []

        def holding(record: Record) -> ProducerRecord:
            seen.append(record.offset)
            if len(seen) == len(sent):
                world.work.hold_syncs()
            return copied(record)

        nursery.start_soon(abort_the_first)
        counts = await client.process("orders", holding, name="copy", until_end=True)

        assert (counts.input_count, counts.restart_count) == (10, 1)
        assert await values(client) == sent
