"""Collections of metrics that are cancelled, or that go on while objects change."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import gc

import trio
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic
from tests.broker.collectors.readings import read_metrics
from tests.broker.longest_step import longest_step
from tests.broker.world import ADDRESS, World
from tidelog.broker.collectors.metrics_collector import MetricSelection
from tidelog.broker.server import Broker
from tidelog.client.client import connect
from tidelog.coordinator.groups.pattern import TopicPattern
from tidelog.wire.metrics.exposition import expose


async def collect_in_part(broker: Broker, steps: int) -> bool:
    """Cancel a collection after so many steps of other tasks; return whether it was at its end."""
    is_complete = False

    async def collect() -> None:
        nonlocal is_complete
        await broker.metrics.collect()
        is_complete = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return is_complete


async def test_a_collection_that_is_cancelled_hides_no_changes(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    address = "{}:{}".format(*ADDRESS)
    async with (
        world.broker() as broker,
        world.client() as reader,
        connect(address, env=world.env) as client,
    ):
        await client.admin.create_queue("work", alert_depth=0)
        steps, is_complete = 0, False
        while not is_complete:
            steps += 1
            await create_topic(reader, f"topic{steps}")
            await client.admin.alter_queue("work", set={"alert_depth": steps})
            await trio.sleep(1)
            is_complete = await collect_in_part(broker, steps)
            await trio.sleep(1)

            found = await read_metrics(reader, "queue_alert")

            assert found["queue_alert_depth", "work", ""] == steps
            cluster = broker._cluster
            assert cluster is not None
            state = cluster.metadata.state
            count = sum(len(state.partitions(each.topic_id)) for each in state.catalog.topics)
            assert broker.metrics._broker._health.partition_count == count
    assert steps > 3


async def test_a_choice_of_few_among_many_series_is_made_in_steps(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(metrics_objects_max=20_000) as broker:
        topics = broker.metrics._topics
        for number in range(20_000):
            topics.of(f"topic{number}").sent_bytes += 1
        names = TopicPattern("topic19999")
        found: list[bytes] = []

        async def read() -> None:
            found.extend(expose(await broker.metrics.collect(MetricSelection(["topic"], names))))

        broker.metrics._has_topic = topics.__contains__
        gc.disable()  # The heap of all tests is large.
        try:
            with longest_step() as longest:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read)
        finally:
            gc.enable()

    assert b"topic19999" in b"".join(found)
    assert longest.seconds < 0.02
