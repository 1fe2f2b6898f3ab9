"""Benchmark of a consumer group of 1,000 members on three brokers: join, leave, idle."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from time import perf_counter

import trio

import tidelog
from bench.figures import Row, Settings
from bench.nodes import PATIENCE_S, Nodes
from tidelog.client.consumer.consumer import Consumer

_CLIENTS = 10
_TOPIC = "work"
_GROUP = "workers"


def run(settings: Settings) -> list[Row]:
    """Join members to as many partitions; remove one member; then measure the idle group."""
    count = settings.choose(1_000, 100)
    seconds = settings.choose(20, 5)
    with Nodes(settings.directory, 3) as nodes:
        nodes.wait_complete()
        shared, taken_over, idle = trio.run(_play, nodes, count, seconds)
    return [
        Row(f"members: {count:,} join a group at once, until each has a partition",
            f"{shared:.1f} s"),
        Row("members: one of them leaves, until its partition has another owner",
            f"{taken_over:.1f} s"),
        Row("members: CPU of the broker that coordinates them while nothing happens",
            f"{idle:.1f} %"),
    ]  # fmt: skip


async def _play(nodes: Nodes, count: int, seconds: float) -> tuple[float, float, float]:
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(tidelog.connect(nodes.addresses))
            for _ in range(_CLIENTS)
        ]
        await clients[0].admin.create_topic(_TOPIC, count)
        members: list[Consumer] = []
        leaving = trio.Event()
        async with trio.open_nursery() as nursery:

            async def take_part(number: int) -> None:
                consumer = clients[number % _CLIENTS].consumer(
                    _TOPIC, group_id=_GROUP, auto_offset_reset="earliest"
                )
                async with consumer:
                    members.append(consumer)
                    if number == 0:
                        await leaving.wait()
                    else:
                        await trio.sleep_forever()
                members.remove(consumer)

            began = perf_counter()
            for number in range(count):
                nursery.start_soon(take_part, number)
            await _until(lambda: [len(each.assignment) for each in members] == [1] * count)
            shared = perf_counter() - began
            coordinator_id = nodes.wait_leader()
            cpu_before = nodes.cpu_seconds(coordinator_id)
            began = perf_counter()
            await trio.sleep(seconds)
            idle = (nodes.cpu_seconds(coordinator_id) - cpu_before) / (perf_counter() - began)
            began = perf_counter()
            leaving.set()
            await _until(lambda: sum(len(each.assignment) for each in members) == count)
            await _until(lambda: len(members) == count - 1)
            await _until(lambda: sum(len(each.assignment) for each in members) == count)
            taken_over = perf_counter() - began
            nursery.cancel_scope.cancel()
    return shared, taken_over, idle * 100


async def _until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(2 * PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  (the benchmark observes the public state only)
            await trio.sleep(0.01)
