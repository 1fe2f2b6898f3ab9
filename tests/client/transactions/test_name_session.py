"""Sessions of transaction names: what the next transaction of a client need not ask for."""

# Counts the requests of a client.
# pyright: reportPrivateUsage=false

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.world import ADDRESS, World
from tests.client.transactions.test_transaction import values
from tidelog.broker.server import Broker
from tidelog.client.client import Client, connect
from tidelog.client.config import ProducerConfig
from tidelog.client.processing.input_progress import PlannedTransaction
from tidelog.client.processing.input_transactions import OVERTAKEN, InputTransactions
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.coordinator.metadata.transaction_commands import NEXT_MS
from tidelog.wire.errors import BrokerError, StaleTransactionError
from tidelog.wire.protocol.api import Api, ApiKey


@asynccontextmanager
async def two_clients(clock: MockClock) -> AsyncGenerator[tuple[Client, Client]]:
    """Connect two clients to a broker with its first feature level, and the topic `orders`."""
    world = World(clock)
    address = "{}:{}".format(*ADDRESS)
    async with (
        world.broker() as broker,
        connect(address, env=world.env) as one,
        connect(address, env=world.env) as other,
    ):
        await until_level(world, broker)
        await one.admin.create_topic("orders", 1)
        yield one, other


async def until_level(world: World, broker: Broker) -> None:
    assert broker._cluster is not None
    while not broker._cluster.metadata.state.feature_level:
        await world.pass_time(0.1)


async def write(client: Client, transaction_id: int, *sent: bytes) -> None:
    transaction = client.transaction("job", transaction_id)
    async with transaction.task() as task:
        await task.send_many("orders", list(sent))
    await transaction.commit([task.result])


def requests_of(client: Client) -> list[ApiKey]:
    """Return the list to which further requests of a client to any broker are added."""
    asked: list[ApiKey] = []
    call_any = client._cluster.call_any

    async def counted(method: Api[Any, Any], request: object, *, is_repeatable: bool) -> object:
        asked.append(method.key)
        return await call_any(method, request, is_repeatable=is_repeatable)

    client._cluster.call_any = counted  # type: ignore[method-assign, assignment]
    return asked


async def test_the_next_transaction_of_a_client_needs_a_commit_alone(
    autojump_clock: MockClock,
) -> None:
    async with two_clients(autojump_clock) as (client, _):
        await write(client, 3, b"a")
        asked = requests_of(client)

        await write(client, 9, b"b")
        await write(client, 10, b"c")

        assert asked == [ApiKey.COMMIT_TRANSACTION] * 2
        assert await values(client) == [b"a", b"b", b"c"]


async def test_tasks_of_one_transaction_have_producers_of_their_own(
    autojump_clock: MockClock,
) -> None:
    async with two_clients(autojump_clock) as (client, _):
        for transaction_id in range(3):
            transaction = client.transaction("job", transaction_id)
            async with transaction.task() as first, transaction.task() as second:
                await first.send_many("orders", [b"%d-1" % transaction_id])
                await second.send_many("orders", [b"%d-2" % transaction_id])
            async with transaction.task() as third:
                await third.send_many("orders", [b"%d-3" % transaction_id])
            results = [third.result, first.result, second.result]
            places = [place for result in results for place in result.places]
            assert len({place.producer_id for place in places}) == 3
            await transaction.commit(results)

        assert await values(client) == [
            b"%d-%d" % (transaction_id, task) for transaction_id in range(3) for task in (3, 1, 2)
        ]


async def test_a_client_begins_again_after_another_client_of_the_name(
    autojump_clock: MockClock,
) -> None:
    async with two_clients(autojump_clock) as (one, other):
        await write(one, 3, b"a")
        await write(other, 5, b"b")

        await write(one, 9, b"c")
        with pytest.raises(StaleTransactionError):
            await write(other, 8, b"late")
        await write(other, 10, b"d")

        assert await values(one) == [b"a", b"b", b"c", b"d"]


async def test_a_client_begins_again_after_a_long_pause(autojump_clock: MockClock) -> None:
    async with two_clients(autojump_clock) as (client, _):
        await write(client, 3, b"a")
        asked = requests_of(client)
        autojump_clock.jump(2 * NEXT_MS / 1000)

        await write(client, 4, b"b")

        assert asked[0] is ApiKey.BEGIN_TRANSACTION
        assert await values(client) == [b"a", b"b"]


async def test_an_abort_ends_the_next_transaction(autojump_clock: MockClock) -> None:
    async with two_clients(autojump_clock) as (client, _):
        await write(client, 3, b"a")
        transaction = client.transaction("job", 4)
        async with transaction.task() as task:
            await task.send_many("orders", [b"dropped"])
        assert not await transaction.abort()

        await write(client, 4, b"b")

        assert task.result.number
        assert await values(client) == [b"a", b"b"]


async def test_a_topic_that_is_created_again_takes_the_next_transaction(
    autojump_clock: MockClock,
) -> None:
    async with two_clients(autojump_clock) as (client, other):
        await write(client, 3, b"a")
        await other.admin.delete_topic("orders")
        await other.admin.create_topic("orders", 1)

        for attempt in range(3):
            try:
                await write(client, 4 + attempt, b"b")
                break
            except BrokerError:
                assert attempt < 2

        assert await values(other) == [b"b"]


async def test_an_owner_that_lost_its_input_commits_nothing_by_its_session(
    autojump_clock: MockClock,
) -> None:
    """A commit has begun its transaction, but that of another owner came in between."""
    async with two_clients(autojump_clock) as clients:
        old, new = (
            InputTransactions(
                client._cluster, "input", timeout=60.0, config=ProducerConfig(linger=0.0)
            )
            for client in clients
        )

        def planned(previous_id: int, transaction_id: int, value: bytes) -> PlannedTransaction:
            records = [ProducerRecord("orders", value)]
            return PlannedTransaction(previous_id, transaction_id, transaction_id, records, 1, 0)

        await old.take_over()
        await old.commit(planned(0, 10, b"0-10"))
        assert await new.take_over() == 10
        await new.commit(planned(10, 20, b"10-20"))

        for transaction_id in (15, 30):
            with pytest.raises(OVERTAKEN):
                await old.commit(planned(10, transaction_id, b"again"))
        assert await old.take_over() == 20
        await old.commit(planned(20, 30, b"20-30"))

        assert await values(clients[0]) == [b"0-10", b"10-20", b"20-30"]
