"""Cluster with a consumer group and working members, on virtual time."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from tests.client.fake_cluster import FakeCluster, fronted_client, fronted_cluster
from tests.client.group_service import GroupService
from tidelog.client.client import Client
from tidelog.client.config import AllConsumerSettings
from tidelog.client.consumer.consumer import Consumer
from tidelog.coordinator.groups.config import GroupConfig

EARLIEST: AllConsumerSettings = {"auto_offset_reset": "earliest"}


class GroupFixture:
    """A cluster with groups, one client, and the records of its members."""

    def __init__(
        self,
        cluster: FakeCluster,
        groups: GroupService,
        client: Client,
        *,
        nursery: trio.Nursery,
    ) -> None:
        self.cluster = cluster
        self.groups = groups
        self.client = client
        self.nursery = nursery
        self.given: dict[str, list[tuple[int, int]]] = {}
        """Partition and offset of all records that a member received, by its name."""
        self.pace = 0.0
        """Seconds that a member of `work` takes for each record."""

    async def produce(self, count: int, *, partition_count: int = 2) -> None:
        async with self.client.producer() as producer:
            for number in range(count):
                await producer.send("orders", b"%d" % number, partition=number % partition_count)

    async def work(self, name: str, **settings: object) -> None:
        """Join as a member and process records without end."""
        given = self.given.setdefault(name, [])
        async with consumer_of(self.client, **settings) as consumer:
            async for record in consumer:
                await trio.sleep(self.pace)
                given.append((record.partition, record.offset))

    def start(self, name: str, **settings: object) -> Callable[[], Awaitable[None]]:
        """Start a working member; return the function that makes it leave."""
        scope = trio.CancelScope()
        gone = trio.Event()

        async def run() -> None:
            with scope:
                await self.work(name, **settings)
            gone.set()

        async def leave() -> None:
            scope.cancel()
            await gone.wait()

        self.nursery.start_soon(run)
        return leave

    def all_given(self) -> list[tuple[int, int]]:
        return sorted(each for given in self.given.values() for each in given)


def consumer_of(client: Client, **settings: object) -> Consumer:
    chosen: AllConsumerSettings = {**EARLIEST, **settings}  # type: ignore[typeddict-item]
    return client.consumer("orders", group_id="billing", **chosen)


@asynccontextmanager
async def group_fixture_of(
    time: MockClock,
    partition_count: int = 2,
    node_ids: tuple[int, ...] = (1,),
    *,
    config: GroupConfig | None = None,
) -> AsyncGenerator[GroupFixture, None]:
    topics = {"orders": partition_count}
    async with fronted_cluster(time, node_ids, topics) as cluster:
        groups = GroupService(cluster, config)
        async with fronted_client(cluster) as client, trio.open_nursery() as nursery:
            nursery.start_soon(groups.run)
            yield GroupFixture(cluster, groups, client, nursery=nursery)
            nursery.cancel_scope.cancel()


def every(partition_count: int, count: int) -> list[tuple[int, int]]:
    """Return partition and offset of all records that `produce` creates."""
    return sorted((number % partition_count, number // partition_count) for number in range(count))
