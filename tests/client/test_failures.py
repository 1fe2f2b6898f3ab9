"""Failures: lost connections, broker crashes and silent brokers."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import settle
from tests.client.crashes import SEED, scene
from tidelog.client.client import Client, connect
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.receipt import Receipt
from tidelog.wire.errors import ConnectError, ConnectionLostError, DeliveryTimeoutError


async def values_of(client: Client) -> list[bytes | None]:
    async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets()
        return [record.value async for record in consumer.records(ends)]


async def test_a_record_with_a_lost_acknowledgement_is_stored_once(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (client, stage):
        receipts: list[Receipt] = []

        async def send(producer: Producer) -> None:
            receipts.append(await producer.send("orders", b"v"))

        async with client.producer() as producer, trio.open_nursery() as nursery:
            await producer.send("orders", b"first")
            stage.world.work.hold_syncs()
            nursery.start_soon(send, producer)
            await settle()
            stage.network.reset_all()
            await settle()
            stage.world.work.let_all_sync()

        assert [receipt.offset for receipt in receipts] == [1]
        assert await values_of(client) == [b"first", b"v"]


async def test_pipelined_batches_keep_their_order_across_lost_connections(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (client, stage):
        values = [b"%06d" % number for number in range(3000)]
        async with client.producer(batch_size=2_000) as producer:
            for number, value in enumerate(values):
                producer.send_nowait("orders", value)
                if number % 300 == 299:
                    await trio.lowlevel.checkpoint()
                    stage.network.reset_all()
                    await trio.sleep(0.3)

        assert await values_of(client) == values
        assert stage.network.connect_count >= 3


async def test_a_broker_crash_only_pauses_clients(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (client, stage):
        values = [b"%06d" % number for number in range(2000)]
        async with client.producer(batch_size=2_000) as producer:
            await producer.send_many("orders", values[:1000])
            for value in values[1000:]:
                producer.send_nowait("orders", value)
            await trio.lowlevel.checkpoint()
            await stage.crash()
            await trio.sleep(3)
            await stage.start()

        assert await values_of(client) == values


async def test_a_consumer_keeps_its_position_across_a_lost_connection(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (client, stage):
        values = [b"%06d" % number for number in range(500)]
        seen: list[bytes | None] = []
        async with (
            client.producer() as producer,
            client.consumer("orders", auto_offset_reset="earliest") as consumer,
        ):
            for start in range(0, 500, 50):
                await producer.send_many("orders", values[start : start + 50])
                stage.network.reset_all()
                ends = await consumer.end_offsets()
                seen += [record.value async for record in consumer.records(ends)]

        assert seen == values


async def test_a_silent_connection_is_closed_and_reopened(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (client, stage):
        async with client.producer() as producer:
            await producer.send("orders", b"first")
            began = trio.current_time()
            stage.network.silence_all()

            receipt = await producer.send("orders", b"second")

            assert 30 <= trio.current_time() - began < 60
        assert receipt.offset == 1
        assert await values_of(client) == [b"first", b"second"]


async def test_a_second_silent_connection_is_closed_as_early(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (client, stage):
        async with client.producer() as producer, trio.open_nursery() as nursery:
            await producer.send("orders", b"first")
            began = trio.current_time()
            stage.world.work.hold_syncs()
            stage.network.silence_all()
            nursery.start_soon(producer.send, "orders", b"second")
            await trio.sleep(40)  # The second connection is there, and has not been answered.
            stage.network.silence_all()
            stage.world.work.let_all_sync()

        assert 60 <= trio.current_time() - began < 90
        assert await values_of(client) == [b"first", b"second"]


async def test_a_consumer_closes_a_silent_connection(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (client, stage):
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            with trio.move_on_after(2):
                await anext(consumer.records())
            stage.network.silence_all()
            async with connect(SEED, env=stage.env) as other, other.producer() as producer:
                await producer.send("orders", b"v")
            with trio.fail_after(60):
                record = await anext(consumer.records())

        assert record.value == b"v"


async def test_records_fail_after_delivery_timeout_while_a_broker_is_down(
    autojump_clock: MockClock,
) -> None:
    async with (
        scene(autojump_clock) as (client, stage),
        client.producer(delivery_timeout=20) as producer,
    ):
        await producer.send("orders", b"v")
        await stage.crash()
        began = trio.current_time()

        with pytest.raises(DeliveryTimeoutError, match=r"are not in the log.*cannot connect to"):
            await producer.send("orders", b"v")

        assert 20 <= trio.current_time() - began < 21
        assert producer.statistics().buffered_bytes == 0


async def test_a_sent_record_fails_after_delivery_timeout_beside_a_silent_broker(
    autojump_clock: MockClock,
) -> None:
    async with (
        scene(autojump_clock) as (client, stage),
        client.producer(delivery_timeout=2) as producer,
    ):
        await producer.send("orders", b"first")
        began = trio.current_time()
        stage.network.silence_all()

        with pytest.raises(DeliveryTimeoutError, match="may or may not be in the log"):
            await producer.send("orders", b"second")

        assert 2 <= trio.current_time() - began < 2.1
        assert producer.statistics().buffered_bytes == 0
        await trio.sleep(60)  # The client has closed the silent connection.
        await producer.send("orders", b"third")
        assert await values_of(client) == [b"first", b"second", b"third"]


async def test_an_unanswered_call_raises_the_last_error(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock, request_timeout=5.0) as (client, stage):
        await stage.crash()
        began = trio.current_time()

        with pytest.raises(ConnectError, match="broker:8433"):
            await client.admin.list_topics()

        assert trio.current_time() - began < 5


async def test_an_idle_client_does_not_reconnect_to_a_broker_that_is_down(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, stage):
        await stage.crash()
        await trio.sleep(10)
        knocks = stage.network.connect_count

        await trio.sleep(1000)

        assert stage.network.connect_count == knocks


async def test_an_ambiguous_change_is_not_retried(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (client, stage):
        caught: list[ConnectionLostError] = []

        async def create() -> None:
            with pytest.raises(ConnectionLostError) as info:
                await client.admin.create_topic("payments")
            caught.append(info.value)

        stage.world.work.hold_work()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            await settle()
            stage.network.reset_all()
            await settle()
            stage.world.work.let_all()

        assert len(caught) == 1
        assert "payments" in await client.admin.list_topics()


async def test_an_unclean_election_is_not_retried(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (client, stage):
        await client.admin.list_topics()
        stage.network.silence_all()

        async def accept() -> None:
            with pytest.raises(ConnectionLostError):
                await client.admin.elect_leaders("orders", accept_data_loss=True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            await settle()
            stage.network.reset_all()
