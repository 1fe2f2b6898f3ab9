"""Connection pool, with brokers that answer, hang, move or have unexpected node ids."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import FakeCluster, fronted_client, fronted_cluster
from tidelog.client.cluster.address import Address
from tidelog.client.cluster.background_tasks import BackgroundTasks
from tidelog.client.cluster.connection_pool import ConnectionPool
from tidelog.client.cluster.metadata import MetadataCache
from tidelog.client.config import ClientConfig
from tidelog.client.metrics.counters import ConnectionCounters
from tidelog.wire.errors import ConnectError, ConnectionLostError, OverloadedError
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.wire.protocol import api


class Place:
    """A cluster, connections to it, and their callbacks."""

    def __init__(self, cluster: FakeCluster, nursery: trio.Nursery) -> None:
        self.cluster = cluster
        self.metadata = MetadataCache()
        self.change_count = 0
        self.changed = trio.Event()
        self.doubted_at: list[float] = []
        self.connections = ConnectionPool(
            ClientConfig(connect_timeout=3.0),
            cluster.world.env,
            BackgroundTasks(nursery),
            counters=ConnectionCounters(trio.current_time),
            metadata=self.metadata,
            on_change=self._changed,
            on_stale_metadata=self._doubted,
        )

    def announce(self, node_id: int, *, as_node: int | None = None) -> None:
        host, port = self.cluster.fronts[node_id].address
        brokers = [*self.metadata.brokers.values(), BrokerAddress(as_node or node_id, host, port)]
        self.metadata.apply(MetadataReply("cluster", brokers, []))

    def lead(self, node_id: int) -> None:
        """Let a broker lead the only partition of a topic."""
        topic = TopicMetadata("orders", bytes(16), [PartitionMetadata(0, node_id, node_id)])
        brokers = [*self.metadata.brokers.values()]
        self.metadata.apply(MetadataReply("cluster", brokers, [topic]))

    def _changed(self) -> None:
        self.change_count += 1
        self.changed.set()

    def _doubted(self) -> None:
        self.doubted_at.append(trio.current_time())


@asynccontextmanager
async def place_of(time: MockClock, *node_ids: int) -> AsyncGenerator[Place, None]:
    async with fronted_cluster(time, node_ids) as cluster, trio.open_nursery() as nursery:
        yield Place(cluster, nursery)
        nursery.cancel_scope.cancel()


async def test_a_connection_is_opened_on_demand_and_kept(
    autojump_clock: MockClock,
) -> None:
    async with place_of(autojump_clock, 1) as place:
        place.announce(1)
        assert place.connections.nowait(1) is None
        await trio.testing.wait_all_tasks_blocked()

        made = place.connections.nowait(1)

        assert made is not None
        assert made is place.connections.live(1) is await place.connections.reach(1)
        assert place.connections.in_order() == [1]
        assert place.change_count == 1


async def test_a_connected_broker_is_not_connected_twice(
    autojump_clock: MockClock,
) -> None:
    async with place_of(autojump_clock, 1) as place:
        place.announce(1)
        first = await place.connections.reach(1)

        second = await place.connections.connect(Address(*place.cluster.fronts[1].address))

        assert second is first


async def test_an_unannounced_node_triggers_a_metadata_refresh(autojump_clock: MockClock) -> None:
    async with place_of(autojump_clock, 1) as place:
        assert place.connections.nowait(9) is None
        assert len(place.doubted_at) == 1
        with pytest.raises(ConnectError, match="node 9 is not announced"):
            await place.connections.reach(9)
        assert autojump_clock.current_time() == 0


async def test_a_connection_lost_at_once_is_reestablished(
    autojump_clock: MockClock,
) -> None:
    async with place_of(autojump_clock, 1) as place:
        place.announce(1)
        place.connections.nowait(1)
        await place.changed.wait()
        made = place.connections.live(1)
        assert made is not None
        made.close()

        assert place.connections.nowait(1) is None

        await trio.sleep(0.5)
        assert place.connections.live(1) is not None


async def test_metadata_are_refreshed_while_a_broker_is_unreachable(
    autojump_clock: MockClock,
) -> None:
    async with place_of(autojump_clock, 1) as place:
        place.announce(1)
        place.cluster.fronts[1].is_frozen = True

        place.connections.nowait(1)
        await trio.sleep(2.5)
        assert len(place.doubted_at) == 2
        await trio.sleep(1)

        assert isinstance(place.connections.failure(1), ConnectError)
        place.connections.forget_failure(1)
        assert place.connections.failure(1) is None


async def test_a_broker_with_an_unexpected_node_id_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with place_of(autojump_clock, 1) as place:
        place.announce(1, as_node=2)

        place.connections.nowait(2)
        await trio.sleep(0.01)

        assert place.connections.live(2) is None
        assert "is announced as node 2 and is another one" in str(place.connections.failure(2))


async def test_connecting_to_a_broker_that_is_not_ready_fails(autojump_clock: MockClock) -> None:
    async with place_of(autojump_clock, 1) as place:
        place.announce(1)
        front = place.cluster.fronts[1]
        front.is_ready = False

        with pytest.raises(OverloadedError):
            await place.connections.reach(1)
        assert autojump_clock.current_time() == 0


async def test_a_silent_broker_is_asked_last_until_it_replies(
    autojump_clock: MockClock,
) -> None:
    async with place_of(autojump_clock, 1, 2) as place, trio.open_nursery() as nursery:
        place.announce(1)
        place.announce(2)
        connection = await place.connections.reach(1)
        await place.connections.reach(2)
        place.cluster.fronts[1].is_frozen = True

        nursery.start_soon(connection.ask, api.METADATA, MetadataRequest([]))
        await trio.sleep(5)
        assert place.connections.is_silent(1)
        assert place.connections.in_order() == [2, 1]

        place.cluster.fronts[1].is_frozen = False
        await connection.ask(api.METADATA, MetadataRequest([]))
        await trio.sleep(2)
        assert not place.connections.is_silent(1)
        nursery.cancel_scope.cancel()


async def test_a_silent_broker_is_left_soon_after_another_one_leads(
    autojump_clock: MockClock,
) -> None:
    async with place_of(autojump_clock, 1, 2) as place, trio.open_nursery() as nursery:
        place.announce(1)
        place.announce(2)
        place.lead(1)
        connection = await place.connections.reach(1)
        await trio.sleep(2)
        place.cluster.fronts[1].is_frozen = True

        async def ask() -> None:
            with suppress(ConnectionLostError):
                await connection.ask(api.METADATA, MetadataRequest([]))

        nursery.start_soon(ask)
        await trio.sleep(5)
        place.doubted_at.clear()
        await trio.sleep(2)
        gaps = [later - earlier for earlier, later in pairwise(place.doubted_at)]
        assert len(gaps) >= 2
        assert gaps == pytest.approx([0.5] * len(gaps))

        place.lead(2)
        await trio.sleep(0.6)
        assert connection.is_lost


async def test_a_request_to_a_hanging_broker_is_hedged(
    autojump_clock: MockClock,
) -> None:
    async with (
        fronted_cluster(autojump_clock, [1, 2]) as cluster,
        fronted_client(cluster, [1, 2]) as client,
    ):
        for _ in range(2):  # Connect to both.
            await client.admin.list_topics()
        cluster.fronts[1].is_frozen = True
        started = trio.current_time()

        for _ in range(4):
            assert await client.admin.list_topics() == ["orders"]

        assert trio.current_time() - started < 5
