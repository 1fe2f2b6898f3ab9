"""A client beyond its quotas, with a real broker on virtual time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.broker.security.logins import TOKEN_OF_ALICE, with_alice
from tests.broker.world import ADDRESS, World
from tests.client.clients import client_of
from tidelog.client.client import Client, connect
from tidelog.wire.errors import ThrottledError

KiB = 1024
VALUE = bytes(20 * KiB)


@asynccontextmanager
async def quota_client(clock: MockClock) -> AsyncGenerator[tuple[World, Client]]:
    """Return a client of a broker with the topic `orders`, in a cluster with a feature level."""
    world = World(clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", partitions=2)
        await trio.sleep(1)  # The controller sets the first feature level.
        assert (await client.admin.describe_features()).level
        yield world, client


async def values_of(client: Client) -> list[bytes | None]:
    async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets()
        return [record.value async for record in consumer.records(ends)]


async def test_a_throttled_producer_is_slower_and_keeps_all_records_in_order(
    autojump_clock: MockClock,
) -> None:
    async with quota_client(autojump_clock) as (_, client):
        await client.security.alter_quotas("anonymous", set={"produce_bytes_per_s": "50KiB"})
        began_at = trio.current_time()

        async with client.producer(batch_size=25 * KiB, linger=0) as producer:
            for number in range(30):
                producer.send_nowait("orders", number.to_bytes(2, "big") + VALUE, key=b"k")
            await producer.flush()

        took_s = trio.current_time() - began_at
        assert 9 <= took_s <= 16
        await client.security.alter_quotas("anonymous", remove=["*"])
        values = [value[:2] for value in await values_of(client) if value is not None]
        assert values == [number.to_bytes(2, "big") for number in range(30)]
        throttled_s = client.statistics().connections.throttled_s
        assert list(throttled_s) == ["produce_bytes_per_s"]
        assert 8 <= throttled_s["produce_bytes_per_s"] <= took_s + 1


async def test_a_throttled_producer_does_not_delay_other_calls(autojump_clock: MockClock) -> None:
    async with quota_client(autojump_clock) as (_, client):
        await client.security.alter_quotas("anonymous", set={"produce_bytes_per_s": "5KiB"})
        async with client.producer(linger=0) as producer:
            await producer.send("orders", VALUE, key=b"k")
            producer.send_nowait("orders", VALUE, key=b"k")

            began_at = trio.current_time()
            await client.admin.describe_topics(["orders"])

            assert trio.current_time() - began_at < 0.5
            await client.security.alter_quotas("anonymous", remove=["*"])
            await producer.flush()


async def test_a_throttled_consumer_reads_everything_later(autojump_clock: MockClock) -> None:
    async with quota_client(autojump_clock) as (_, client):
        async with client.producer(batch_size=25 * KiB) as producer:
            for _ in range(20):
                producer.send_nowait("orders", VALUE, key=b"k")
            await producer.flush()
        await client.security.alter_quotas("anonymous", set={"fetch_bytes_per_s": "50KiB"})
        began_at = trio.current_time()

        assert len(await values_of(client)) == 20

        assert client.statistics().connections.throttled_s["fetch_bytes_per_s"] > 0
        assert trio.current_time() - began_at < 20


async def test_with_over_quota_error_a_send_raises_and_later_records_are_sent(
    autojump_clock: MockClock,
) -> None:
    async with quota_client(autojump_clock) as (_, client):
        await client.security.alter_quotas(
            "anonymous", set={"produce_bytes_per_s": "10KiB", "over_quota": "error"}
        )
        async with client.producer(linger=0) as producer:
            await producer.send("orders", VALUE, key=b"k")

            with pytest.raises(ThrottledError, match="produce_bytes_per_s") as refused:
                await producer.send("orders", b"refused", key=b"k")

            assert refused.value.retry_after_ms is not None
            await trio.sleep(refused.value.retry_after_ms / 1000)
            receipt = await producer.send("orders", b"later", key=b"k")
            assert receipt.offset == 1


async def test_a_client_logs_once_a_minute_that_it_was_throttled(
    autojump_clock: MockClock,
) -> None:
    async with quota_client(autojump_clock) as (world, client):
        await client.security.alter_quotas("anonymous", set={"produce_bytes_per_s": "2KiB"})
        async with client.producer(linger=0) as producer:
            for _ in range(3):
                producer.send_nowait("orders", VALUE, key=b"k")
            await trio.sleep(61)

            (line,) = world.told("client.throttled")
            assert line["quota"] == "produce_bytes_per_s"
            assert line["percent"] in range(20, 101)
            assert "principal" not in line  # The client has not logged in.
            await client.security.alter_quotas("anonymous", remove=["*"])
            await producer.flush()


async def test_a_throttled_client_names_its_principal(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    world.network.is_encrypted = True
    async with world.broker() as broker:
        await with_alice(broker)
        async with (
            connect("{}:{}".format(*ADDRESS), env=world.env) as admin,
            connect("{}:{}".format(*ADDRESS), env=world.env, token=TOKEN_OF_ALICE) as client,
        ):
            assert admin.statistics().connections.principal is None
            await client.admin.create_topic("orders")
            await admin.security.alter_quotas("user:alice", set={"produce_bytes_per_s": "2KiB"})
            async with client.producer(linger=0) as producer:
                for _ in range(3):
                    producer.send_nowait("orders", VALUE, key=b"k")
                await trio.sleep(61)

                (line,) = world.told("client.throttled")
                assert line["principal"] == "user:alice"
                assert client.statistics().connections.principal == "user:alice"
                await admin.security.alter_quotas("user:alice", remove=["*"])
                await producer.flush()
