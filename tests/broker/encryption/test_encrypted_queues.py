"""Tests of queues on encrypted topics: dead letters, a missing key, shredded messages."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import alter_topic, batch_of, produce, submit
from tests.broker.encryption.keyrings import MASTER, key_file
from tests.broker.queues.dead_letters.dead_letter_fixture import let_move, values_of
from tests.broker.queues.queue_requests import (
    create_queue,
    peek,
    receive,
    settle,
    states,
    topic_of,
)
from tests.broker.world import World
from tests.simulation.machine.disk_contents import contents
from tidelog.broker.server import Broker
from tidelog.wire.errors import BrokerError, KeyUnavailableError
from tidelog.wire.messages.keys import AlterKeysRequest, KeyAction
from tidelog.wire.messages.queues import RedriveRequest, SettleAction
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

SECRET = b"a message that no disk may show"


async def make_queues(world: World, broker: Broker, client: RpcConnection) -> tuple[bytes, bytes]:
    """Create the queue `orders` and its dead-letter queue on encrypted topics; return their ids."""
    await world.pass_time(3)
    dead = await create_queue(broker, "dead", topic="dead")
    queue = await create_queue(broker, dead_letter_queue="dead", topic="orders")
    await alter_topic(client, "orders", encryption="on")
    await alter_topic(client, "dead", encryption="on")
    await world.pass_time(1)
    return queue, dead


async def test_messages_and_dead_letters_are_sealed_and_a_redrive_moves_them_back(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    world.key_file = key_file(MASTER)
    async with world.broker() as broker, world.client() as client:
        queue, dead = await make_queues(world, broker, client)
        await produce(client, topic_of(broker), batch_of(SECRET, b"b"))

        messages = await receive(client, queue, 10)
        assert [each.value for each in messages] == [SECRET, b"b"]
        await settle(client, queue, messages[:1], action=SettleAction.REJECT)
        await let_move(world)

        assert await values_of(client, topic_of(broker, "dead")) == [SECRET]
        assert [each.value for each in await receive(client, dead, 10)] == [SECRET]
        assert (await peek(client, queue)).runs

        await settle(client, queue, messages[1:])
        await world.pass_time(60)  # The dead letter is visible again.
        request = RedriveRequest(dead, [0], None, None, None, False)
        (result,) = (await submit(client, api.REDRIVE, request).reply()).results
        await let_move(world)

        assert result.count == 1
        assert [each.value for each in await receive(client, queue, 10)] == [SECRET]
        assert await states(client, dead) == (0, 0, 0, 0)
    stored = b"".join(data or b"" for data in contents(world.disk, "").values())
    assert SECRET not in stored


async def test_a_missing_key_quarantines_and_moves_no_message(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    world.key_file = key_file(MASTER)
    async with world.broker() as broker, world.client() as client:
        queue, _ = await make_queues(world, broker, client)
        await produce(client, topic_of(broker), batch_of(SECRET))
    world.key_file = ""
    async with world.broker() as broker, world.client() as client:
        with pytest.raises(BrokerError) as caught:
            await receive(client, queue, 10)
        assert isinstance(caught.value, KeyUnavailableError)
        await let_move(world)
        assert not world.told("messages_unreadable")
        assert await values_of(client, topic_of(broker, "dead")) == []

        world.key_file = key_file(MASTER)
        await world.pass_time(6)

        assert [each.value for each in await receive(client, queue, 10)] == [SECRET]


async def test_shredded_messages_are_dropped_and_later_ones_delivered(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    world.key_file = key_file(MASTER)
    async with world.broker() as broker, world.client() as client:
        queue, _ = await make_queues(world, broker, client)
        await produce(client, topic_of(broker), batch_of(SECRET, b"b"))
        assert (await states(client, queue))[0] == 2

        request = AlterKeysRequest(KeyAction.SHRED, "orders")
        await submit(client, api.ALTER_KEYS, request).reply()
        await produce(client, topic_of(broker), batch_of(b"later"))

        assert [each.value for each in await receive(client, queue, 10)] == [b"later"]
        assert not world.told("messages_unreadable")
