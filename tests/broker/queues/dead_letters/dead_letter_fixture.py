"""A queue with a dead-letter queue, and helpers for tests of dead letters."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from trio.testing import MockClock

from tests.broker.broker_requests import fetch_all, submit
from tests.broker.queues.queue_requests import Message, create_queue, receive, settle
from tests.broker.world import World
from tests.broker.world import settle as let_happen
from tidelog.broker.server import Broker
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.queues import SettleAction
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


class DeadLetterQueue(NamedTuple):
    """A broker with the queue `orders`, whose dead letters go to the queue and topic `dead`."""

    world: World
    broker: Broker
    client: RpcConnection
    dead: bytes
    queue: bytes


@asynccontextmanager
async def dead_letter_queue(
    mock_clock: MockClock, **settings: str
) -> AsyncGenerator[DeadLetterQueue]:
    """Run a broker with both queues."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, dead_letter_queue="dead", **settings)  # type: ignore[arg-type]
        yield DeadLetterQueue(world, broker, client, dead, queue)


async def let_move(world: World, seconds: int = 10) -> None:
    """Let time pass for moves, including retries."""
    await let_happen()
    for _ in range(seconds):
        await world.pass_time(1)


async def reject(client: RpcConnection, queue: bytes, max_messages: int = 10) -> list[Message]:
    """Receive some messages and reject them, which makes them dead letters."""
    messages = await receive(client, queue, max_messages)
    await settle(client, queue, messages, action=SettleAction.REJECT)
    await let_happen()
    return messages


async def values_of(client: RpcConnection, topic_id: bytes) -> list[bytes | None]:
    """Return the values of all records of a topic."""
    return [record.value for record in await fetch_all(client, topic_id)]


async def headers_at(client: RpcConnection, topic_id: bytes, offset: int) -> dict[str, bytes]:
    """Return the headers of the first record of a batch."""
    request = FetchRequest(0, 1, 1 << 20, [PartitionFetch(topic_id, 0, offset, 1)])
    pending = submit(client, api.FETCH, request)
    _, data = await pending.reply_and_attachment()
    header = parse_header(data)
    assert header is not None
    columns = decode_columns(header, data[: header.size], uncompressed_length_max=1 << 20)
    assert columns.headers is not None
    return dict(columns.headers[0])
