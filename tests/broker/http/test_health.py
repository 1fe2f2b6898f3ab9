"""Health pages at each stage of a broker, alone and in a cluster of three."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic
from tests.broker.http.http_client import HTTP, get, get_from
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    host_of,
    make_topic,
)
from tests.broker.world import World, config
from tests.cluster_secret import SECRET
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation
from tests.simulation.machine.world import World as Machines
from tidelog.broker.config.broker_config import DEFAULT
from tidelog.broker.server import open_broker
from tidelog.wire.errors import ConfigError, ConnectError

Json = dict[str, Any]


async def test_a_broker_alone_is_live_and_ready_and_needed(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(http_listen=HTTP) as broker:
        assert broker.http_address == HTTP
        assert world.told("http_listening") == [{"address": HTTP}]
        assert ((await get(world, "/health/live")).json) == {"live": True}
        assert ((await get(world, "/health/ready")).json) == {"ready": True}

        async with world.client() as client:
            await create_topic(client, partitions=25)
        reply = await get(world, "/health/safe-to-stop")
        found = cast("Json", reply.json)
        assert (reply.status, found["is_safe"]) == (503, False)
        assert len(found["reasons"]) == 2
        assert (found["partition_count"], len(found["partitions"])) == (25, 20)


async def test_a_broker_serves_no_http_unless_asked(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker:
        assert broker.http_address == ""
        assert list(world.network.listeners) == [("broker", 8433)]


async def test_a_taken_default_address_is_a_warning_and_a_taken_setting_an_error(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    await world.network.listen("broker", 8480)
    settings = config(http_listen=HTTP)

    with pytest.raises(ConfigError, match=r"broker:8480 for HTTP: .* in use; set http_listen \("):
        async with open_broker(settings, world.env, world.disk, secret=SECRET):
            pass
    sources = {"http_listen": DEFAULT}
    async with open_broker(
        settings, world.env, world.disk, secret=SECRET, sources=sources
    ) as broker:
        assert broker.http_address == ""
    assert "TIDELOG_HTTP_LISTEN" in str(world.told("http_not_listening")[0]["reason"])


def live(main: Callable[[ThreeBrokers, Process], Awaitable[None]]) -> None:
    """Run `main` on a machine beside three brokers with HTTP that are not started."""

    async def run(machines: Machines) -> None:
        brokers = ThreeBrokers(machines)
        brokers.serves_http = True
        done = trio.Event()

        async def probe(process: Process) -> None:
            await main(brokers, process)
            done.set()

        machines.add_node("probe").start(probe)
        await done.wait()

    Simulation(7).run(run)


async def health(process: Process, node_id: int, page: str) -> tuple[int, Json]:
    """Return status and content of a health page; status 0 while nothing listens."""
    try:
        reply = await get_from(process.env.network, host_of(node_id), f"/health/{page}")
    except (OSError, ConnectError):
        return 0, {}
    return reply.status, cast("Json", msgspec.json.decode(reply.body))


async def answers_200(process: Process, node_id: int, page: str) -> None:
    """Ask for a health page until it has status 200."""
    with trio.fail_after(120):
        while (await health(process, node_id, page))[0] != 200:  # noqa: ASYNC110  (it can only ask)
            await trio.sleep(0.1)


def test_a_broker_without_a_majority_is_live_and_not_ready() -> None:
    async def main(brokers: ThreeBrokers, process: Process) -> None:
        brokers.start(1)
        await answers_200(process, 1, "live")
        await trio.sleep(5)
        status, found = await health(process, 1, "ready")
        assert (status, found["ready"]) == (503, False)
        assert "other nodes of its cluster" in found["reason"] or "majority" in found["reason"]
        status, found = await health(process, 1, "safe-to-stop")
        assert (status, found["is_safe"], len(found["reasons"]) > 0) == (503, False, True)

        brokers.start(2, 3)
        await answers_200(process, 1, "ready")

    live(main)


def test_nodes_of_three_may_stop_one_after_the_other() -> None:
    async def main(brokers: ThreeBrokers, process: Process) -> None:
        brokers.start()
        await brokers.serve()
        await brokers.with_client(make_topic)
        await brokers.all_in_sync()
        for node_id in NODES:
            await answers_200(process, node_id, "safe-to-stop")
        reply = await brokers.with_client(lambda client: client.admin.safe_to_stop(2))
        assert (reply.is_safe, reply.remaining_voters, reply.reasons) == (True, [1, 3], [])

        brokers.stop(1)
        await until(lambda: brokers.machines[1].process is None, 60)
        await until(lambda: brokers.in_sync() == {2, 3}, 60)
        status, found = await health(process, 2, "safe-to-stop")
        assert status == 503
        assert found["remaining_voters"] == [3]
        assert found["partitions"][0] == {
            "topic": TOPIC,
            "partition": 0,
            "remaining_in_sync": [3],
            "min_insync_replicas": 2,
        }
        assert len(found["reasons"]) == 2

        brokers.start(1)
        await answers_200(process, 2, "safe-to-stop")
        assert brokers.in_sync() == {1, 2, 3}

    live(main)


def test_a_broker_without_contact_does_not_call_a_stop_safe() -> None:
    async def main(brokers: ThreeBrokers, process: Process) -> None:
        brokers.start()
        await brokers.serve()
        await answers_200(process, 1, "safe-to-stop")
        brokers.kill(2)
        brokers.kill(3)
        await trio.sleep(10)

        status, found = await health(process, 1, "safe-to-stop")
        assert status == 503
        assert "the controller does not answer" in found["reasons"][0]
        assert found["metadata_age_ms"] > 3_000

    live(main)


def test_a_broker_that_stops_is_not_ready() -> None:
    async def main(brokers: ThreeBrokers, process: Process) -> None:
        brokers.start()
        await brokers.serve()
        await brokers.with_client(make_topic)
        await brokers.all_in_sync()
        brokers.stop(1)
        reasons: set[str] = set()
        with trio.fail_after(60):
            while (seen := await health(process, 1, "ready"))[0] != 0:
                reasons |= {seen[1]["reason"]} if seen[0] == 503 else set()
                await trio.sleep(0.01)
        assert reasons == {"it is shutting down"}

    live(main)
