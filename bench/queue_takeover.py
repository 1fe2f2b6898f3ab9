"""Benchmark of queue failover: seconds without service after a broker is killed."""

import signal
from itertools import islice
from time import perf_counter
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread
from bench.nodes import PATIENCE_S, Nodes
from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message

_NAME: Final = "in_flight"
_RECEIVED: Final = 1_000
_GOAL_S: Final = 2.0
_LEASE_S: Final = 3600.0
_LOOK_S: Final = 0.01


def run(settings: Settings) -> list[Row]:
    """Kill the broker of a queue with one partition repeatedly."""
    lease_count = settings.choose(100_000, 10_000)
    rounds = settings.choose(5, 2)
    with Nodes(settings.directory, 3) as nodes:
        nodes.wait_complete()
        return trio.run(_measure, nodes, lease_count, rounds)


async def _measure(nodes: Nodes, lease_count: int, rounds: int) -> list[Row]:
    elected: list[float] = []
    served: list[float] = []
    async with tidelog.connect(nodes.addresses) as client:
        await client.admin.create_queue(_NAME, partitions=1, receive_acks="all")
        queue = client.queue(_NAME)
        leased = await _lease(queue, lease_count)
        for _ in range(rounds):
            killed_id = await _wait_in_sync(client)
            nodes.signal(killed_id, signal.SIGKILL)
            began = perf_counter()
            await _wait_led(client, killed_id)
            elected.append(perf_counter() - began)
            with trio.fail_after(PATIENCE_S):
                await leased.pop().delete()
            served.append(perf_counter() - began - elected[-1])
            nodes.start(killed_id)
            await trio.to_thread.run_sync(nodes.wait_complete)
        (counts,) = await queue.counts()
    what = f"queue takeover: SIGKILL of the broker of {lease_count:,} leases, {rounds} times"
    after = Spread.of(served)
    return [
        Row(f"{what}: s until another one is elected", Spread.of(elected).text(".2f")),
        Row(
            f"{what}: s from then until it has settled one of them",
            after.text(".2f"),
            f"all < {_GOAL_S:g}",
            after.high < _GOAL_S,
        ),
        Row(
            f"{what}: leases that are there at the end",
            f"{counts.in_flight:,}",
            f"{len(leased):,}",
            counts.in_flight == len(leased),
        ),
    ]


async def _lease(queue: Queue, count: int) -> list[Message]:
    """Receive twice as many messages, and delete every other one, so that no two are adjacent."""
    numbers = iter(range(2 * count))
    while values := [b"%d" % number for number in islice(numbers, 20_000)]:
        await queue.send_batch(values)
    leased: list[Message] = []
    while len(leased) < count:
        received = await queue.receive(_RECEIVED, visibility_timeout=_LEASE_S, wait=20)
        leased += [message for message in received if message.offset % 2]
        await queue.delete_batch([message for message in received if not message.offset % 2])
    return leased


async def _wait_in_sync(client: Client) -> int:
    """Return the queue's leader, once all replicas of its journal and topic are in sync."""
    with trio.fail_after(PATIENCE_S):
        while True:
            (queue,) = await client.admin.describe_queues([_NAME])
            (topic,) = await client.admin.describe_topics([_NAME])
            leader_id = queue.partitions[0].leader_id
            copies = [queue.partitions[0].in_sync_replicas, topic.partitions[0].in_sync_replicas]
            if leader_id is not None and all(len(each) == 3 for each in copies):  # noqa: PLR2004
                return leader_id
            await trio.sleep(_LOOK_S)


async def _wait_led(client: Client, killed_id: int) -> None:
    with trio.fail_after(PATIENCE_S):
        while True:
            (queue,) = await client.admin.describe_queues([_NAME])
            if queue.partitions[0].leader_id not in (None, killed_id):
                return
            await trio.sleep(_LOOK_S)
