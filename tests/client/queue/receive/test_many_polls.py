"""Long polls of more queues than one connection may have unanswered requests."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

import tidelog
from tidelog.client.client import Client
from tidelog.client.cluster import connection_pool
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.connection_pool import ConnectionPool
from tidelog.wire.protocol.api import ApiKey
from tidelog.wire.transport.rpc import RpcConnection

_IN_FLIGHT_MAX = 16
_QUEUES = 100


def _pool_of(client: Client) -> ConnectionPool:
    cluster: ClusterClient = vars(client)["_cluster"]
    pool: ConnectionPool = vars(cluster)["_connections"]
    return pool


def _polls(pool: ConnectionPool) -> list[int]:
    """Return the number of receives under way on each connection of a pool."""
    first: Mapping[int, RpcConnection] = vars(pool)["_connections"]
    further: Mapping[int, list[RpcConnection]] = vars(pool)["_further"]
    connections = [*first.values(), *(each for of_node in further.values() for each in of_node)]
    return [
        sum(asked.api_key is ApiKey.RECEIVE for asked in vars(each)["_open"].values())
        for each in connections
    ]


async def test_polls_of_many_queues_leave_room_for_sends(tmp_path: Path) -> None:
    names = [f"q-{number}" for number in range(_QUEUES)]
    found: dict[str, bytes | None] = {}

    async def poll(client: Client, name: str) -> None:
        (message,) = await client.queue(name).receive(1, wait=60)
        found[name] = message.value
        await message.delete()

    async with (
        tidelog.open_broker(
            tmp_path, max_in_flight_requests_per_connection=_IN_FLIGHT_MAX
        ) as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_queues(names)
        pool = _pool_of(client)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(poll, client, name)
            await _wait_for_polls(pool, _QUEUES)
            assert max(_polls(pool)) <= 12
            for name in names:
                await client.queue(name).send(name.encode())
        assert found == {name: name.encode() for name in names}
        assert client.statistics().connections.opened == len(_polls(pool)) >= 9


async def _wait_for_polls(pool: ConnectionPool, count: int) -> None:
    while sum(_polls(pool)) < count:
        await trio.testing.wait_all_tasks_blocked(0.01)


async def test_further_connections_end_with_the_first_and_when_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "_FURTHER_IDLE_S", 0.1)
    names = [f"q-{number}" for number in range(40)]
    async with (
        tidelog.open_broker(
            tmp_path, max_in_flight_requests_per_connection=_IN_FLIGHT_MAX
        ) as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_queues(names)
        pool = _pool_of(client)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(partial(client.queue(name).receive, 1, wait=8))
            await _wait_for_polls(pool, len(names))
            (first,) = vars(pool)["_connections"].values()
            (further,) = vars(pool)["_further"].values()
            before = [*further]
            first.close()
            # The receives ask again, on new connections.
            await _wait_for_polls(pool, len(names))
            assert all(connection.is_lost for connection in before)
        assert max(_polls(pool)) == 0
        while len(_polls(pool)) > 1:
            await trio.testing.wait_all_tasks_blocked(0.01)
        statistics = client.statistics().connections
        assert statistics.opened - statistics.closed == 1
