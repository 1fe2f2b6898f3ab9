"""Queue with partitions on several brokers, for clients, on virtual time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tests.client.fake_cluster import FakeCluster, fronted_client, fronted_cluster
from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.send.message_fields import OutgoingMessage


@asynccontextmanager
async def work_queue(
    time: MockClock, *, partitions: int = 1, **settings: float | str
) -> AsyncGenerator[tuple[Client, Queue], None]:
    """Run a broker with a queue."""
    async with client_of(World(time)) as client:
        yield client, await made(client, "work", partitions=partitions, **settings)


async def made(client: Client, name: str, *, partitions: int = 1, **settings: float | str) -> Queue:
    """Create a queue."""
    given = cast("dict[str, Any]", settings)
    await client.admin.create_queue(name, partitions=partitions, **given)
    return client.queue(name)


@asynccontextmanager
async def queue_of(
    time: MockClock, node_ids: tuple[int, ...] = (1, 2), **settings: float | str
) -> AsyncGenerator[tuple[Queue, FakeCluster], None]:
    """Run nodes, each leading one partition of a queue."""
    async with (
        fronted_cluster(time, node_ids, {"orders": len(node_ids)}) as cluster,
        fronted_client(cluster, node_ids) as client,
    ):
        cluster.leaders = {number: (node_id, 0) for number, node_id in enumerate(node_ids)}
        given = cast("dict[str, Any]", settings)
        await client.admin.create_queue("work", topic="orders", **given)
        yield client.queue("work"), cluster


def lead(cluster: FakeCluster, node_id: int) -> None:
    """Make one node the leader of all partitions."""
    for number, (_, epoch) in cluster.leaders.items():
        cluster.leaders[number] = (node_id, epoch + 1)


async def fill(queue: Queue, count: int) -> None:
    """Send numbers, spread over the partitions by their keys."""
    keys = [OutgoingMessage(value=b"%d" % n, key=b"key %d" % n) for n in range(count)]
    await queue.send_batch(keys)


async def drain(queue: Queue) -> list[Message]:
    """Receive and delete until the queue is empty."""
    found: list[Message] = []
    while messages := await queue.receive(wait=0):
        await queue.delete_batch(messages)
        found += messages
    return found


def values(messages: list[Message]) -> list[bytes | None]:
    """Return the values of messages."""
    return [message.value for message in messages]


async def left(queue: Queue) -> tuple[int, int]:
    """Return how many messages are visible or delayed, and how many are in flight."""
    counts = await queue.counts()
    return sum(each.visible + each.delayed for each in counts), sum(
        each.in_flight for each in counts
    )
